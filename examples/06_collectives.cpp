// Lesson 6: process groups. Ranks make the same calls in the same order; who does not is named, on every rank.
// Last line of output: 4 ranks: the sum is 6, pairs sum to 1 and 5, and a wrong shape is an error that names rank 2
#include <atomic>
#include <cstdio>
#include <string>

#include "tutti/comm/run_ranks.h"

using namespace tutti;
using namespace tutti::comm;

std::atomic<int> sum{0}, first_pair{0}, second_pair{0};
std::atomic<bool> named{false};

void run_rank(ProcessGroup& world) {
  const Tensor mine = Tensor::of<float>({static_cast<float>(world.rank())});
  Work work = world.all_reduce(mine, ReduceKind::sum, {.async = true});  // returns at once
  const auto pair = world.split(world.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
  const Tensor ours = Tensor::of<float>({static_cast<float>(world.rank())});
  pair->all_reduce(ours);  // in place, done when it returns
  work.wait();
  if (world.rank() == 0) sum = static_cast<int>(mine.item()), first_pair = static_cast<int>(ours.item());
  if (world.rank() == 2) second_pair = static_cast<int>(ours.item());

  try {
    world.all_reduce(Tensor::empty({world.rank() == 2 ? 5 : 4}));
  } catch (const UsageError& e) {
    // collective #2 of group '0': the shapes differ: rank 0 called all_reduce(f32 [4], sum), rank 2 called ...
    if (std::string(e.what()).find("rank 2 called all_reduce(f32 [5], sum)") != std::string::npos) named = true;
  }
  world.barrier();  // the group goes on
}

int main() {
  run_ranks(4, run_rank);  // as threads; started by `tutti launch -n 4`, a program calls init_process_group() instead
  std::printf("4 ranks: the sum is %d, pairs sum to %d and %d, and a wrong shape is an error that names %s\n",
              sum.load(), first_pair.load(), second_pair.load(), named ? "rank 2" : "nobody");
}
