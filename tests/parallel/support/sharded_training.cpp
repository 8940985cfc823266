#include "tests/parallel/support/sharded_training.h"

#include <bit>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/dist/dtensor.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/unary.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {

Tensor Block::forward(const Tensor& x) const { return add(x, down(tanh(up(norm(x))))); }

Tensor Model::losses(const Tensor& tokens, const Tensor& labels, bool checkpoints) const {
  Tensor x = embed(tokens);
  for (const nn::Child<Block>& block : *blocks) {
    const auto run = [&](std::span<const Tensor> inputs) {
      if (before_read) before_read(autograd::is_backward_running() ? "recompute" : "block");
      return block(inputs[0]);
    };
    x = checkpoints ? checkpoint(run, std::span(&x, 1)) : run(std::span(&x, 1));
  }
  if (before_read) before_read("head");
  return cross_entropy(matmul(mul(x, frozen.use()), transpose(embed->weight, 0, 1), {.out_dtype = DType::f32}), labels);
}

Tensor numbers(int64_t step, int64_t shard, int64_t salt) {
  const Tensor t = Tensor::empty({kRows}, DType::i32);
  for (int64_t i = 0; i < kRows; ++i)
    t.data<int32_t>()[i] = static_cast<int32_t>((step * 31 + shard * 7 + i * 3 + salt) % kVocabulary);
  return t;
}

dist::Mesh mesh_for(const comm::ProcessGroup& group, int replicas) {
  if (replicas == 1) return dist::init_device_mesh("cpu", {group.size()}, {.names = {"dp_shard"}});
  return dist::init_device_mesh("cpu", {replicas, group.size() / replicas}, {.names = {"dp_replicate", "dp_shard"}});
}

Trained train(comm::ProcessGroup* group, const Options& o) {
  seed_all(5);
  Model model;
  model.before_read = o.before_read;
  if (o.dtype != DType::f32) model.to(o.dtype);
  std::optional<ShardedModule> sharded;
  dist::Mesh mesh;
  if (o.values_before) nn::initialize(model);
  if (group != nullptr) {
    mesh = mesh_for(*group, o.replicas);
    const FullyShardOptions options{
        .mesh = mesh,
        .reshard_after_forward = o.reshard,
        .outer_dp_sharding_strategy = o.outer,
        .shard_dim = [&](const nn::NamedParameter& p) { return p.parameter.sizes().ndim() > o.dim ? o.dim : 0; }};
    std::vector<ShardedModule> blocks;
    for (nn::Child<Block>& block : *model.blocks) blocks.push_back(fully_shard(*block, options));
    sharded = fully_shard(model, options);
    sharded->set_prefetch(o.prefetch);
    if (o.set_lists) o.set_lists(model, blocks, *sharded);
  }
  if (!o.values_before) nn::initialize(model);
  const auto optimizer = o.sgd ? optim::make_sgd(model.named_parameters(), {.lr = 0.1, .momentum = 0.9})
                               : optim::make_adamw(model.named_parameters(), {.lr = 0.02});
  Shards shards(kShards, group, nn::leaves_of(optimizer->parameters()), o.schedule, o.overlap);
  shards.set_reduce_scatter_max_input_buffers(o.input_buffers);
  const auto forward = [&](const Tensor& tokens, const Tensor& labels) {
    const Tensor losses = model.losses(tokens, labels, o.checkpoints);
    backward(losses, ones(losses.sizes()), {.sink = shards.sink()});
    return detach(losses);
  };
  std::function<Tensor(const Tensor&, const Tensor&)> run = forward;
  if (o.compiled) {
    run = compile(forward, {.name = "shard"});
    optimizer->compile();
  }
  Trained result;
  result.mesh = mesh;
  for (int64_t step = 0; step < 3; ++step) {
    for (Shard& shard : shards.step(step))
      shard.add(run(numbers(step, shard.index(), 0), numbers(step, shard.index(), 5)));
    const ShardSums sums = shards.finish();
    const float norm = optim::norm_of(sums.squares);
    result.losses.push_back(std::bit_cast<uint64_t>(sums.loss));
    result.norms.push_back(std::bit_cast<uint32_t>(norm));
    optimizer->step(sums.gradients, 0.02, optim::clip_scale(norm, 1.0));
    if (!o.evaluates) continue;
    {
      const NoGradScope no_grad;
      if (o.before_read) o.before_read("evaluation");
      const Tensor losses = cast(model.losses(numbers(step, 1, 2), numbers(step, 2, 7), false), DType::f64);
      for (int64_t i = 0; i < losses.numel(); ++i)
        result.losses.push_back(std::bit_cast<uint64_t>(losses.data<double>()[i]));
    }
    optimizer->step(sums.gradients, 0.01, 1.0);
  }
  for (const nn::NamedParameter& p : model.named_parameters()) {
    const NoGradScope no_grad;
    const Tensor master = p.parameter.master();
    const Tensor whole = contiguous(dist::is_dtensor(master) ? dist::full_tensor(master) : master);
    result.weights[p.name] = {whole.data<float>(), whole.data<float>() + whole.numel()};
  }
  return result;
}

void expect_the_bits_of_one_rank(int ranks, const Options& options, const std::string& transport) {
  Options alone = options;
  alone.compiled = alone.checkpoints = false;
  alone.schedule = Schedule::once_a_step;
  alone.overlap = Overlap::none;
  alone.before_read = nullptr;
  const Trained expected = train(nullptr, alone);
  std::vector<Trained> results(static_cast<size_t>(ranks));
  comm::run_ranks(
      ranks, [&](comm::ProcessGroup& group) { results[static_cast<size_t>(group.rank())] = train(&group, options); },
      {.transport = transport});
  for (const Trained& result : results) {
    EXPECT_EQ(result.losses, expected.losses) << ranks << " ranks";
    EXPECT_EQ(result.norms, expected.norms) << ranks << " ranks";
    EXPECT_EQ(result.weights, expected.weights) << ranks << " ranks";
    EXPECT_TRUE(result.mesh.expired()) << "what fully_shard() has made outlives the model on " << ranks << " ranks";
  }
}

}  // namespace tutti::parallel
