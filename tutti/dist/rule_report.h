// The sharding rules of all ops as a page.
#pragma once

#include <string>

namespace tutti::dist {

// docs/sharding_report.md: for each op of the table the rule of its first sample and how many of its rows are exact,
// tree and close; then the ops that have only the replicated row, with the reason.
std::string rule_report();

}  // namespace tutti::dist
