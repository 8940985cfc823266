// Process groups for programs in C: the table of functions through which packages communicate.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/process_group.h"
#include "tutti/deploy/tutti_collectives.h"

namespace tutti::comm {

// The group for tutti_package_set_groups(), also of a runtime of packages that was linked by itself. Its table must not
// outlive it.
class CollectivesInC {
 public:
  explicit CollectivesInC(std::shared_ptr<ProcessGroup> group);
  const tutti_collectives& table() const { return table_; }

 private:
  const std::shared_ptr<ProcessGroup> group_;
  tutti_collectives table_;
};

// For catch blocks. The code in C of the exception, and its text: TUTTI_PEER when another rank is gone or late.
tutti_code code_of_exception(std::string& text) noexcept;
// The code, and the text where the call takes it.
tutti_code say_exception(const tutti_collective_call& call) noexcept;

}  // namespace tutti::comm
