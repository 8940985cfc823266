// The promise of equal bits, run: one configuration on many layouts, each compared with the first, bit by bit.
//
// Every layout is a run of this program as a user starts it: processes of its own, in a folder of its own. Controls are
// runs that must differ; a comparison that finds them equal compares nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tutti/train/run_diff.h"

namespace tutti::bench {

struct LayoutsProblem {
  std::string config;
  std::vector<std::string> overrides;  // --section.key=value, for all runs
  int64_t steps = 10;                  // at least 2; checkpoints are saved in the middle and at the end
  bool all = false;                    // the rows beyond the usual ones, too
  std::vector<std::string> only = {};  // names of rows: these and their bases; empty: no choice
};

inline constexpr const char* kReference = "one-rank";

struct Layout {
  std::string name;
  std::vector<std::string> flags;      // of tutti train
  std::vector<std::string> variables;  // NAME=value
  // Flags of a second start that goes on where the first, killed after its first checkpoint, left off; empty: none.
  std::vector<std::string> resumed_with = {};
  bool loses_a_rank = false;  // the first start ends because rank 1 alone is killed; else all of it is
  bool is_control = false;
  std::string why_not = {};       // why it cannot run here
  std::string base = kReference;  // the row it is compared with; its own name: nothing
};

// The reference first, controls last; every row stands behind its base. UsageError for a configuration that cannot be
// read, and for the name of no row, with the names there are.
std::vector<Layout> layouts_of(const LayoutsProblem& problem);

struct LayoutResult {
  std::string loss_hex, grad_norm_hex;  // of the last step
  std::string digest;                   // of the last checkpoint: parameters and optimizer state
  double step_ms = 0;                   // median
  // The work and memory of rank 0 in the last step, beside what the plan (step_plan.h) says of its memory and of the
  // rank that sends the most.
  int64_t product_flops = 0, peak_bytes = 0, planned_peak_bytes = 0, sent_bytes = 0, planned_sent_bytes = 0;
  std::filesystem::path run;
  train::RunDiff diff;          // from the reference
  std::string excess = {};      // what a rank did or held that its share does not explain; "": nothing
  bool is_as_promised = false;  // same bits, or different for a control, and no excess
};

// Runs one row in `folder`, and compares it with `base`, the result of the row that it names (null for that row
// itself): bits, and whether ranks share work, memory and bytes as their layout says. UsageError when `tutti train`
// refuses the configuration, EnvironmentError when a run fails; both hold the end of what it printed.
LayoutResult run_layout(const LayoutsProblem& problem, const Layout& layout, const std::filesystem::path& folder,
                        const LayoutResult* base);

// Kills the run, with all its ranks, that another thread of this process is waiting for in run_layout(); nothing
// otherwise.
void kill_running_layout();

}  // namespace tutti::bench
