#include "tutti/train/agreement.h"

#include <bit>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/job/errors.h"

namespace tutti::train {
namespace {

// Every rank's value, in the order of ranks.
std::vector<uint64_t> values_of_ranks(comm::ProcessGroup& group, uint64_t mine) {
  std::vector<int64_t> values(static_cast<size_t>(group.size()), 0);
  values[static_cast<size_t>(group.rank())] = std::bit_cast<int64_t>(mine);
  group.all_reduce_values<int64_t>(values);  // each place has one summand that is not 0
  std::vector<uint64_t> result;
  for (const int64_t value : values) result.push_back(std::bit_cast<uint64_t>(value));
  return result;
}

}  // namespace

void agree(comm::ProcessGroup* group, const std::exception_ptr& problem) {
  int64_t failures = problem != nullptr;
  if (group != nullptr && group->size() > 1) group->all_reduce_values<int64_t>({&failures, 1});
  if (problem) std::rethrow_exception(problem);
  if (failures > 0) throw comm::StoppedByPeer("rank 0 stopped the run; its message says why");
}

void on_all_ranks(comm::ProcessGroup* group, FunctionRef<void()> action) {
  std::exception_ptr problem;
  try {
    action();
  } catch (...) {
    problem = std::current_exception();
  }
  std::vector<uint64_t> failed{problem != nullptr};
  if (group != nullptr && group->size() > 1) failed = values_of_ranks(*group, problem != nullptr);
  if (problem) std::rethrow_exception(problem);
  for (size_t r = 0; r < failed.size(); ++r) {
    if (failed[r] != 0) throw comm::StoppedByPeer(fmt::format("rank {} stopped the run; its message says why", r));
  }
}

int64_t value_of_first_rank(comm::ProcessGroup* group, int64_t value) {
  int64_t sum = is_first_rank(group) ? value : 0;
  if (group != nullptr && group->size() > 1) group->all_reduce_values<int64_t>({&sum, 1});
  return sum;
}

void check_equal_on_ranks(comm::ProcessGroup* group, std::span<const NamedHash> mine) {
  if (group == nullptr || group->size() == 1) return;
  for (const NamedHash& named : mine) {
    const std::vector<uint64_t> hashes = values_of_ranks(*group, named.hash);
    std::vector<size_t> others;
    for (size_t rank = 1; rank < hashes.size(); ++rank) {
      if (hashes[rank] != hashes[0]) others.push_back(rank);
    }
    TUTTI_CHECK(others.empty(),
                "{} of rank{} {} is not that of rank 0 (hash {:016x}, on rank 0 {:016x}); give every rank the same",
                named.name, others.size() == 1 ? "" : "s", fmt::join(others, ", "), hashes[others.front()], hashes[0]);
  }
}

}  // namespace tutti::train
