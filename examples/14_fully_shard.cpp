// Lesson 14: fully sharded training. Ranks divide parameters, gradients and optimizer state; the model stays as it is
// written, and losses and weights have the bits of one rank. Each block is a group whose parameters are made whole
// together.
// Last line of output: 1, 2, 3, 4 and 6 ranks: same loss, same weights
#include <cstdio>
#include <set>
#include <string>

#include "tutti/tutti.h"

using namespace tutti;

constexpr int64_t kShards = 8, kRows = 16, kWidth = 48;

struct Model final : nn::Module {
  Model() {
    for (int i = 0; i < 4; ++i) blocks->add(kWidth, kWidth);
  }
  Tensor forward(Tensor x) const {
    for (const auto& block : *blocks) x = x + gelu(block(x));
    return sum(x, {.dims = {1}});
  }
  nn::Child<nn::ModuleList<nn::Linear>> blocks{this, "blocks"};
};

std::string result_of(comm::ProcessGroup& group) {
  seed_all(1);
  Model model;  // has no memory yet
  for (auto& block : *model.blocks) parallel::fully_shard(*block);
  parallel::fully_shard(model);  // what no block has taken
  nn::initialize(model);         // each rank draws the rows that it stores
  const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.003});
  parallel::Shards shards(kShards, &group, nn::leaves_of(optimizer->parameters()));
  double loss = 0;
  for (int step = 1; step <= 30; ++step) {
    for (parallel::Shard& shard : shards.step(step)) {  // those of this rank
      const Tensor x = uniform({kRows, kWidth}, -1.0, 1.0);
      const Tensor error = nn::call(model, x) - sin(sum(x, {.dims = {1}}));
      shard.backward(error * error, 1.0 / (kShards * kRows));
    }
    loss = shards.finish_step(*optimizer).loss / (kShards * kRows);
  }
  uint64_t weights = 0;
  for (const auto& [name, values] : model.state_dict()) {
    const Tensor whole = dist::is_dtensor(values) ? dist::full_tensor(values) : values;
    weights = hash64(whole.raw_data(), static_cast<size_t>(whole.nbytes()), weights);
  }
  return fmt::format("loss {:a}, weights {:016x}", loss, weights);
}

int main() {
  std::set<std::string> results;
  for (const int ranks : {1, 2, 3, 4, 6}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const std::string result = result_of(group);
      if (group.rank() == 0) results.insert(result);
    });
  }
  for (const std::string& result : results) std::printf("%s\n", result.c_str());
  std::printf("1, 2, 3, 4 and 6 ranks: %s\n", results.size() == 1 ? "same loss, same weights" : "other bits");
}
