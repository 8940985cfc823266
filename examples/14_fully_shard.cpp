// Lesson 14: fully sharded training. Ranks divide parameters, gradients and optimizer state; the model stays as it is
// written, and losses and weights have the bits of one rank. Each block is a group whose parameters are made whole
// together.
// Last line of output: 1, 2, 3, 4 and 6 ranks: same loss, same weights
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "tutti/autograd/backward.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/hash.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/activation.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/norm.h"
#include "tutti/ops.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"

using namespace tutti;

constexpr int64_t kShards = 8, kRows = 16, kWidth = 48;

struct Block final : nn::Module {
  Block() {
    net->add<nn::LayerNorm>(kWidth)
        .add<nn::Linear>(kWidth, 4 * kWidth)
        .add<nn::GELU>()
        .add<nn::Linear>(4 * kWidth, kWidth);
  }
  Tensor forward(const Tensor& x) const { return add(x, net(x)); }
  nn::Child<nn::Sequential> net{this, "net"};
};

struct Model final : nn::Module {
  Model() {
    for (int i = 0; i < 3; ++i) blocks->add();
  }
  Tensor forward(Tensor x) const {
    for (const nn::Child<Block>& block : *blocks) x = block(x);
    return sum(head(x), {.dims = {1}});
  }
  nn::Child<nn::ModuleList<Block>> blocks{this, "blocks"};
  nn::Child<nn::Linear> head{this, "head", kWidth, 1};
};

std::string train(comm::ProcessGroup& group) {
  seed_all(1);
  Model model;  // has no memory yet
  const dist::Mesh mesh = dist::mesh_from_group(group.shared_from_this(), "cpu", {.names = {"dp_shard"}});
  for (nn::Child<Block>& block : *model.blocks) parallel::fully_shard(*block, {.mesh = mesh});
  const parallel::ShardedModule sharded = parallel::fully_shard(model, {.mesh = mesh});  // what no block has taken
  nn::initialize(model);  // each rank draws the rows that it stores
  const auto optimizer = optim::make_adamw(model.named_parameters());
  parallel::Shards shards(kShards, &group, nn::leaves_of(model.named_parameters()));
  double loss = 0;
  for (int step = 1; step <= 30; ++step) {
    for (const int64_t s : shards.mine()) {
      const Tensor x = uniform({kRows, kWidth},
                               random_key("rows", 0, static_cast<uint32_t>(step), static_cast<uint32_t>(s)), -1.0, 1.0);
      const Tensor error = sub(model.forward(x), sin(sum(x, {.dims = {1}})));
      const Tensor losses = mul(error, error);
      backward(losses, full_like(losses, 1.0 / (kShards * kRows)), {.sink = shards.sink()});
      shards.add(losses);
    }
    const parallel::ShardSums sums = shards.finish();  // each rank gets the rows of the gradients that it stores
    optimizer->step(sums.gradients, 0.003);
    loss = sums.loss / (kShards * kRows);
  }
  if (group.size() == 4) {
    group.barrier();
    if (group.rank() == 0)
      std::printf("of 4 ranks, the first stores %lld of %lld bytes of the parameters\n",
                  static_cast<long long>(sharded.all_stored_bytes()), static_cast<long long>(sharded.all_copy_bytes()));
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
  std::mutex mutex;
  for (const int ranks : {1, 2, 3, 4, 6}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const std::string result = train(group);
      const std::lock_guard lock(mutex);
      results.insert(result);
    });
  }
  for (const std::string& result : results) std::printf("%s\n", result.c_str());
  std::printf("1, 2, 3, 4 and 6 ranks: %s\n", results.size() == 1 ? "same loss, same weights" : "other bits");
}
