#include "tutti/core/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr std::array<std::string_view, kNumDTypes> kNames = {"f64", "f32", "bf16", "f16", "f8e4m3fn", "f8e5m2",
                                                             "i64", "i32", "i16",  "i8",  "u8",       "bool"};

// Rounds a float to a binary format with `exponent_bits` and `mantissa_bits`, ties to even, denormals kept.
// Returns sign, exponent and mantissa packed. A value that rounds past `largest` (packed too) gives `largest`, which is
// infinity for the formats that have one.
uint32_t round_to_small_float(float value, int exponent_bits, int mantissa_bits, uint64_t largest) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 31 << (exponent_bits + mantissa_bits);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = static_cast<int>(magnitude >> 23) - 127 + bias;
  uint64_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  if (magnitude >> 23 == 0) {
    mantissa = magnitude & 0x7fffffu;  // an f32 denormal: below the smallest value of every small format
    exponent = 1 - 127 + bias;
  }
  int drop = 23 - mantissa_bits;
  if (exponent <= 0) {
    drop += 1 - exponent;
    exponent = 0;
  }
  if (drop > 40) return sign;
  const uint64_t kept = mantissa >> drop;
  const uint64_t rest = mantissa & ((uint64_t{1} << drop) - 1);
  const uint64_t half = uint64_t{1} << (drop - 1);
  const uint64_t rounded = kept + (rest > half || (rest == half && (kept & 1)));
  // The hidden bit adds one to the exponent of a normal number; a carry out of the mantissa does the same.
  const uint64_t packed = (exponent == 0 ? rounded : (static_cast<uint64_t>(exponent - 1) << mantissa_bits) + rounded);
  return sign | static_cast<uint32_t>(std::min(packed, largest));
}

float small_float_to_float(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t exponent = bits >> mantissa_bits & ((1u << exponent_bits) - 1);
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const float sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return sign * std::ldexp(static_cast<float>(mantissa | 1u << mantissa_bits),
                           static_cast<int>(exponent) - bias - mantissa_bits);
}

// Toward zero. NaN and values outside int64 give the smallest int64, as the x86 conversion does.
int64_t truncated(double value) {
  const bool in_range = value >= -9223372036854775808.0 && value < 9223372036854775808.0;
  return in_range ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min();
}

}  // namespace

bfloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

float16 to_float16(float value) {
  if (std::isnan(value)) return {static_cast<uint16_t>(std::signbit(value) ? 0xfe00 : 0x7e00)};
  return {static_cast<uint16_t>(round_to_small_float(value, 5, 10, 0x7c00))};
}

float to_float(float16 value) {
  if ((value.bits & 0x7c00) == 0x7c00) {
    const float magnitude =
        value.bits & 0x3ff ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    return std::copysign(magnitude, value.bits & 0x8000 ? -1.0f : 1.0f);
  }
  return small_float_to_float(value.bits, 5, 10);
}

float8_e5m2 to_float8_e5m2(float value) {
  if (std::isnan(value)) return {static_cast<uint8_t>(std::signbit(value) ? 0xfe : 0x7e)};
  return {static_cast<uint8_t>(round_to_small_float(value, 5, 2, 0x7c))};
}

float to_float(float8_e5m2 value) {
  return to_float(float16{static_cast<uint16_t>(value.bits << 8)});  // the upper half of an f16
}

float8_e4m3fn to_float8_e4m3fn(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  // 448 is the largest finite value; 464 lies halfway to the missing 480 and rounds to even, which is 448.
  if (std::isnan(value) || std::fabs(value) > 464.0f) return {static_cast<uint8_t>(sign | 0x7f)};
  return {static_cast<uint8_t>(round_to_small_float(value, 4, 3, 0x7e))};
}

float to_float(float8_e4m3fn value) {
  if ((value.bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  return small_float_to_float(value.bits, 4, 3);
}

std::string_view name_of(DType dtype) { return kNames[static_cast<int>(dtype)]; }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

DType dtype_from_name(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  throw UsageError(unknown_name_message("dtype", name, std::vector<std::string>(kNames.begin(), kNames.end())));
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  TUTTI_CHECK(!is_fp8(a) && !is_fp8(b), "promote: {} and {} have no common type; cast the fp8 tensor first", name_of(a),
              name_of(b));
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a)) {
    if (a == DType::f64 || b == DType::f64) return DType::f64;
    return DType::f32;  // two different ones of f32, bf16, f16
  }
  if (a == DType::boolean) return b;
  if (b == DType::boolean) return a;
  if (a == DType::u8 || b == DType::u8) {
    const DType other = a == DType::u8 ? b : a;
    return other == DType::i8 ? DType::i16 : other;
  }
  return std::min(a, b);  // the wider signed type comes first in the enum
}

double load_as_double(const void* element, DType dtype) {
  return visit_dtype(dtype, [&]<class T>() -> double {
    const T value = *static_cast<const T*>(element);
    if constexpr (requires { to_float(value); } && !std::is_arithmetic_v<T>) return to_float(value);
    else return static_cast<double>(value);
  });
}

int64_t load_as_int64(const void* element, DType dtype) {
  return visit_dtype(dtype, [&]<class T>() -> int64_t {
    const T value = *static_cast<const T*>(element);
    if constexpr (std::is_integral_v<T>) return static_cast<int64_t>(value);
    else if constexpr (std::is_floating_point_v<T>) return truncated(value);
    else return truncated(to_float(value));
  });
}

void store_from_double(void* element, DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      *static_cast<double*>(element) = value;
      return;
    case DType::f32:
      *static_cast<float*>(element) = static_cast<float>(value);
      return;
    case DType::bf16:
      *static_cast<bfloat16*>(element) = to_bfloat16(static_cast<float>(value));
      return;
    case DType::f16:
      *static_cast<float16*>(element) = to_float16(static_cast<float>(value));
      return;
    case DType::f8e4m3fn:
      *static_cast<float8_e4m3fn*>(element) = to_float8_e4m3fn(static_cast<float>(value));
      return;
    case DType::f8e5m2:
      *static_cast<float8_e5m2*>(element) = to_float8_e5m2(static_cast<float>(value));
      return;
    case DType::boolean:
      *static_cast<bool*>(element) = value != 0.0;
      return;
    default:
      break;
  }
  store_from_int64(element, dtype, truncated(value));
}

void store_from_int64(void* element, DType dtype, int64_t value) {
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) *static_cast<T*>(element) = value != 0;
    else if constexpr (std::is_arithmetic_v<T>) *static_cast<T*>(element) = static_cast<T>(value);
    else store_from_double(element, dtype, static_cast<double>(value));
  });
}

}  // namespace tutti
