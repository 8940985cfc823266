// Calls of 3 ranks that make groups and do not fit together, for any transport.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// A way in which each rank makes a group, and the parts of the message that all of them must get.
struct Disagreement {
  const char* name;
  std::function<std::shared_ptr<ProcessGroup>(ProcessGroup& world)> make;
  std::vector<std::string> says;
};
const std::vector<Disagreement>& disagreements();
void PrintTo(const Disagreement& d, std::ostream* out);

// Collective over a world of 3 ranks. Throws unless all are refused within seconds, twice, and groups are made
// afterwards.
void check_disagreement(ProcessGroup& world, const Disagreement& d);
// Makes groups in several ways and uses them.
void expect_groups(ProcessGroup& world);

}  // namespace tutti::comm
