// Lesson 3: the same sum on one rank and on several. Floating-point addition is not associative, so the order decides
// the last bits; Tutti fixes one tree, and ranks hold its subtrees.
// Last line of output: 1, 2, 4 and 8 ranks: same bits
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tutti/codegen/combine.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops.h"

using namespace tutti;

constexpr int kShards = 8;
constexpr int64_t kSize = 1000;

// What one part of the batch contributes: here random numbers, in training a gradient.
Tensor contribution(int shard) {
  return normal({kSize}, random_key("shard " + std::to_string(shard)), 0.0, std::pow(10.0, shard - 4));
}

// Adds the contributions [begin, end) in tree order.
std::vector<float> subtree(int begin, int end) {
  std::vector<Tensor> kept;
  std::vector<const std::byte*> addends;
  for (int shard = begin; shard < end; ++shard) {
    addends.push_back(static_cast<const std::byte*>(kept.emplace_back(contribution(shard)).raw_data()));
  }
  std::vector<float> total(kSize);
  comm::combine(comm::ReduceKind::sum, DType::f32, addends, {}, kSize, reinterpret_cast<std::byte*>(total.data()));
  return total;
}

// Every rank adds its shards, then all ranks add what they have.
std::vector<float> sum_on(int ranks) {
  std::vector<float> result;
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    const int each = kShards / ranks;
    std::vector<float> mine = subtree(group.rank() * each, (group.rank() + 1) * each);
    group.all_reduce_values<float>(mine);  // the upper levels of the same tree
    if (group.rank() == 0) result = mine;
  });
  return result;
}

int count_differences(const std::vector<float>& a, const std::vector<float>& b) {
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  return count;
}

int main() {
  // One after the other, as a loop over micro-batches would do it.
  std::vector<float> in_a_row(kSize, 0.0f);
  for (int shard = 0; shard < kShards; ++shard) {
    const Tensor t = contribution(shard);
    for (size_t i = 0; i < in_a_row.size(); ++i) in_a_row[i] += t.data<float>()[i];
  }
  const std::vector<float> one = sum_on(1);
  std::printf("added in a row: %d of %d sums have other bits than the tree\n", count_differences(in_a_row, one),
              static_cast<int>(kSize));
  int different = 0;
  for (const int ranks : {2, 4, 8}) different += count_differences(sum_on(ranks), one);
  std::printf("1, 2, 4 and 8 ranks: %s\n", different == 0 ? "same bits" : "different bits");
}
