// Ranks as forked processes, for tests that kill them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/shm_group.h"

namespace tutti::comm {

struct ForkedResult {
  int wait_status = 0;
  std::string error;  // what() of the exception the rank ended with, else ""
  bool succeeded() const { return wait_status == 0 && error.empty(); }
};

// Runs fn in `ranks` child processes and waits for all.
std::vector<ForkedResult> run_forked(int ranks, const std::function<void(ShmGroup&)>& fn, int64_t chunk_bytes = 4096,
                                     ShmGroupOptions options = {});

// Values of rank r for an all_reduce of `count`: magnitudes differ so that another order of adding shows.
std::vector<float> rank_values(int rank, int64_t count);
// The sum of rank_values over `ranks` ranks by the halving rule, written as plainly as possible.
std::vector<float> serial_tree(int ranks, int64_t count);
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tutti::comm
