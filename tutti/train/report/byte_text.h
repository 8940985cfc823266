// Sizes of memory as text, in units that fit them.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::train {

struct ByteUnit {
  double nbytes;
  const char* name;
  int digits;  // behind the point
};
// The largest unit, from B to TiB, of which there is at least one; what is written beside each other shares that of the
// largest.
ByteUnit byte_unit(int64_t nbytes);
// "41.2": without the unit.
std::string in_unit(int64_t nbytes, const ByteUnit& unit);
// "512 B", "41.2 KiB", "66.4 MiB", "1.50 GiB"
std::string byte_text(int64_t nbytes);

}  // namespace tutti::train
