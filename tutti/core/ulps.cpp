#include "tutti/core/ulps.h"

#include <cstring>

namespace tutti {
namespace {

// Bits in the order of the values they stand for.
uint64_t place_of(const void* element, DType dtype) {
  const auto size = static_cast<size_t>(itemsize(dtype));
  uint64_t bits = 0;
  std::memcpy(&bits, element, size);  // x86-64 is little-endian, as all that the project runs on
  const uint64_t sign = uint64_t{1} << (8 * size - 1), all = sign | (sign - 1);
  return bits & sign ? ~bits & all : bits | sign;
}

}  // namespace

uint64_t ulps_between(const void* a, const void* b, DType dtype) {
  if (!is_floating(dtype)) {
    const int64_t x = load_as_int64(a, dtype), y = load_as_int64(b, dtype);
    return x < y ? static_cast<uint64_t>(y) - static_cast<uint64_t>(x)
                 : static_cast<uint64_t>(x) - static_cast<uint64_t>(y);
  }
  const uint64_t x = place_of(a, dtype), y = place_of(b, dtype);
  return x < y ? y - x : x - y;
}

}  // namespace tutti
