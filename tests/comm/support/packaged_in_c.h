// Packages with collectives through the C interface: that of this program, or of a runtime of packages that was linked
// by itself.
#pragma once

#include <string>

#include "tutti/comm/process_group.h"
#include "tutti/deploy/tutti_collectives.h"

namespace tutti::comm::packaged {

// The functions of the interface that the tests call.
struct FunctionsInC {
  decltype(&tutti_package_open) open = tutti_package_open;
  decltype(&tutti_package_close) close = tutti_package_close;
  decltype(&tutti_package_num_groups) num_groups = tutti_package_num_groups;
  decltype(&tutti_package_group) group = tutti_package_group;
  decltype(&tutti_package_set_groups) set_groups = tutti_package_set_groups;
  decltype(&tutti_package_run) run = tutti_package_run;
  decltype(&tutti_last_error) last_error = tutti_last_error;
  bool is_alone = false;  // of a runtime that has the collectives of tutti_collectives.h only
};
// The functions that a shared library exports. Throws where one is missing.
FunctionsInC functions_of(const std::string& library);

// On each of two ranks. Packages functions, runs them through the interface in calls of several sizes and compares bits
// with the live functions; then what does not fit, with codes. Throws where something is not as it should be.
void check_in_c(const FunctionsInC& functions, ProcessGroup& group, const std::string& folder);

// On each of two ranks. Writes FOLDER/mlp.RANK and FOLDER/exchanges.RANK, and beside each what
// examples/run_package/run_on_ranks.c prints of it, in .txt: the results of the live function. The argument of
// FOLDER/whole.RANK is i64, which that program does not have.
void write_packages(ProcessGroup& group, const std::string& folder);

}  // namespace tutti::comm::packaged
