// Lesson 5: symmetric memory. Ranks allocate by themselves, meet once, and from then on read and write each other's
// tensors with ordinary loads and stores: no message is sent and nothing is copied that nobody asked for.
// Last line of output: 4 ranks: rank 0 was told by rank 3, all sums are 6, one write reached all
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "tutti/job/store/hash_store.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/symm/ops/one_shot_all_reduce.h"
#include "tutti/symm/symmetric_tensor.h"

using namespace tutti;
using namespace tutti::comm;

constexpr int kRanks = 4;
std::atomic<int> told_by{-1};
std::atomic<int> right_sums{0};
std::atomic<int> reached{0};

void run_rank(int rank, std::shared_ptr<Store> store) {
  // Here ranks are threads; as processes of one host they would do the same with a TcpStore.
  RankContext context({.rank = rank, .world_size = kRanks, .threads = 1});
  const RankContext::Scope scope(context);
  const std::vector<int> everybody{0, 1, 2, 3};
  const symm::SymmGroup group(symm::make_group_key("lesson", everybody, 0), rank, kRanks, std::move(store));

  // 1. Allocate: local. 2. Set up: the ranks meet and map each other's memory.
  symm::SymmetricTensor t(symm::SymmetricTensor::allocate({8}, DType::f32, kCpu, {.group = group}), group);
  t.setup_remote_handles();

  // 3. Write into the next rank's tensor and tell it so; wait for the one before.
  const int next = (rank + 1) % kRanks, before = (rank + kRanks - 1) % kRanks;
  t.remote_tensor(next).data<float>()[0] = static_cast<float>(rank);
  t.handle().put_signal(next);
  t.handle().wait_signal(before);
  if (rank == 0) told_by = static_cast<int>(t.local_tensor().data<float>()[0]);

  // 4. Ops read the peers where they are. 0 + 1 + 2 + 3, added in the same order on every rank.
  const Tensor sum = symm::one_shot_all_reduce(t.local_tensor(), group);
  right_sums += sum.data<float>()[0] == 6.0f;

  // 5. One call writes to all.
  if (rank == 2) t.handle().multicast_write(Tensor::of<float>({42.0f}), 7);
  t.handle().barrier();
  reached += t.local_tensor().data<float>()[7] == 42.0f;
}

int main() {
  HashStore store;
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < kRanks; ++r) ranks.emplace_back([&store, r] { run_rank(r, store.clone()); });
  }
  std::printf("%d ranks: rank 0 was told by rank %d, %s, %s\n", kRanks, told_by.load(),
              right_sums == kRanks ? "all sums are 6" : "some sums are wrong",
              reached == kRanks ? "one write reached all" : "a write was lost");
}
