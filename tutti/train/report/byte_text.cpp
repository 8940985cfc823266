#include "tutti/train/report/byte_text.h"

#include <fmt/format.h>

namespace tutti::train {

ByteUnit byte_unit(int64_t nbytes) {
  constexpr ByteUnit kUnits[] = {{1, "B", 0},
                                 {1 << 10, "KiB", 1},
                                 {1 << 20, "MiB", 1},
                                 {1 << 30, "GiB", 2},
                                 {static_cast<double>(int64_t{1} << 40), "TiB", 2}};
  ByteUnit fitting = kUnits[0];
  for (const ByteUnit& unit : kUnits) {
    if (static_cast<double>(nbytes) >= unit.nbytes) fitting = unit;
  }
  return fitting;
}

std::string in_unit(int64_t nbytes, const ByteUnit& unit) {
  return fmt::format("{:.{}f}", static_cast<double>(nbytes) / unit.nbytes, unit.digits);
}

std::string byte_text(int64_t nbytes) {
  const ByteUnit unit = byte_unit(nbytes);
  return fmt::format("{} {}", in_unit(nbytes, unit), unit.name);
}

}  // namespace tutti::train
