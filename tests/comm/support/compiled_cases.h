// Functional collectives inside compiled functions, for any transport.
#pragma once

#include <iosfwd>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm::functional {

struct CompiledCase {
  const char* name;
  std::vector<int> ranks;        // sizes of groups for which it is written
  void (*check)(ProcessGroup&);  // collective; throws what goes wrong
};
const std::vector<CompiledCase>& compiled_cases();
void PrintTo(const CompiledCase& c, std::ostream* out);

}  // namespace tutti::comm::functional
