// Element types of tensors and their scalar representations.
//
// bf16, f16 and the two fp8 formats are storage types: arithmetic on them happens in f32 (numerics contract, N1), and
// every conversion rounds to nearest, ties to even, and keeps denormals.
#pragma once

#include <bit>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "tutti/core/error.h"

namespace tutti {

enum class DType : uint8_t { f64, f32, bf16, f16, f8e4m3fn, f8e5m2, i64, i32, i16, i8, u8, boolean };
inline constexpr int kNumDTypes = 12;

// Storage structs: the bits of a value, convertible to and from float.
struct bfloat16 {
  uint16_t bits;
};
struct float16 {
  uint16_t bits;
};
struct float8_e4m3fn {
  uint8_t bits;
};
struct float8_e5m2 {
  uint8_t bits;
};

bfloat16 to_bfloat16(float value);
float16 to_float16(float value);
float8_e4m3fn to_float8_e4m3fn(float value);  // out of range becomes NaN: the format has no infinity
float8_e5m2 to_float8_e5m2(float value);
inline float to_float(bfloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
float to_float(float16 value);
float to_float(float8_e4m3fn value);
float to_float(float8_e5m2 value);

namespace detail {
inline constexpr int8_t kItemSizes[kNumDTypes] = {8, 4, 2, 2, 1, 1, 8, 4, 2, 1, 1, 1};
}
constexpr int64_t itemsize(DType dtype) { return detail::kItemSizes[static_cast<int>(dtype)]; }
constexpr bool is_floating(DType dtype) { return dtype <= DType::f8e5m2; }
constexpr bool is_integral(DType dtype) { return dtype >= DType::i64 && dtype <= DType::u8; }
constexpr bool is_fp8(DType dtype) { return dtype == DType::f8e4m3fn || dtype == DType::f8e5m2; }

// The type in which arithmetic on `dtype` is carried out: f32 for the narrow floats, the type itself otherwise.
constexpr DType compute_dtype(DType dtype) { return is_floating(dtype) && dtype != DType::f64 ? DType::f32 : dtype; }

std::string_view name_of(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);  // its name
DType dtype_from_name(std::string_view name);              // UsageError lists the known names

// The common type of two tensors: bool < integers by width < floats. u8 with a signed integer gives a signed type that
// holds both; bf16 with f16 gives f32. An fp8 type promotes only with itself (cast first).
DType promote(DType a, DType b);

template <class T>
struct dtype_of_t;
// The DType that stores T.
template <class T>
inline constexpr DType dtype_of = dtype_of_t<T>::value;
#define TUTTI_DTYPE_OF(T, D)          \
  template <>                         \
  struct dtype_of_t<T> {              \
    static constexpr DType value = D; \
  };
TUTTI_DTYPE_OF(double, DType::f64)
TUTTI_DTYPE_OF(float, DType::f32)
TUTTI_DTYPE_OF(bfloat16, DType::bf16)
TUTTI_DTYPE_OF(float16, DType::f16)
TUTTI_DTYPE_OF(float8_e4m3fn, DType::f8e4m3fn)
TUTTI_DTYPE_OF(float8_e5m2, DType::f8e5m2)
TUTTI_DTYPE_OF(int64_t, DType::i64)
TUTTI_DTYPE_OF(int32_t, DType::i32)
TUTTI_DTYPE_OF(int16_t, DType::i16)
TUTTI_DTYPE_OF(int8_t, DType::i8)
TUTTI_DTYPE_OF(uint8_t, DType::u8)
TUTTI_DTYPE_OF(bool, DType::boolean)
#undef TUTTI_DTYPE_OF

// Calls fn.template operator()<T>() with the storage type of `dtype`.
template <class Fn>
decltype(auto) visit_dtype(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f64:
      return fn.template operator()<double>();
    case DType::f32:
      return fn.template operator()<float>();
    case DType::bf16:
      return fn.template operator()<bfloat16>();
    case DType::f16:
      return fn.template operator()<float16>();
    case DType::f8e4m3fn:
      return fn.template operator()<float8_e4m3fn>();
    case DType::f8e5m2:
      return fn.template operator()<float8_e5m2>();
    case DType::i64:
      return fn.template operator()<int64_t>();
    case DType::i32:
      return fn.template operator()<int32_t>();
    case DType::i16:
      return fn.template operator()<int16_t>();
    case DType::i8:
      return fn.template operator()<int8_t>();
    case DType::u8:
      return fn.template operator()<uint8_t>();
    case DType::boolean:
      return fn.template operator()<bool>();
  }
  throw InternalError("visit_dtype: no such dtype");
}

// Load one element: floats widen to double, integers and bool to int64. For slow generic code (references, printing).
double load_as_double(const void* element, DType dtype);
int64_t load_as_int64(const void* element, DType dtype);
// Store one element. From double, floats round once (narrow floats go through f32), integers truncate toward zero, and
// bool stores value != 0.
void store_from_double(void* element, DType dtype, double value);
void store_from_int64(void* element, DType dtype, int64_t value);

}  // namespace tutti
