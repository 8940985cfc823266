// fully_shard after parallelize_module: each tensor-parallel rank's part of a parameter is divided over data ranks,
// with the bits of one rank.
#include <algorithm>

#include "tests/parallel/support/parallel_block.h"
#include "tests/support/message_of.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kShards = 4;

struct Case {
  const char* name;
  int replicas, shards, tensor;
  Schedule schedule = Schedule::once_a_step;
  DType dtype = DType::f32;
  const char* transport = "threads";
  int dim = 0;
  int ranks() const { return replicas * shards * tensor; }
};

dist::Mesh data_mesh(const dist::Mesh& all, const Case& c) {
  return c.replicas > 1 ? all->slice({"dp_replicate", "dp_shard"}) : all->slice({"dp_shard"});
}

// Two steps of SGD; what is compared is the loss and norm of the second one, its gradients, and the weights.
Values trained(const Case& c) {
  seed_all(7);
  const bool is_divided = c.ranks() > 1;
  SmallModel model;
  if (c.dtype != DType::f32) model.to(c.dtype);
  dist::Mesh tensor;
  comm::ProcessGroup* data = nullptr;
  std::optional<ShardedModule> root;
  if (is_divided) {
    const dist::Mesh all =
        dist::init_device_mesh("cpu", {c.replicas, c.shards, c.tensor}, {.names = {"dp_replicate", "dp_shard", "tp"}});
    tensor = all->slice({"tp"});
    data = all->slice({"dp_replicate", "dp_shard"})->flatten("dp")->group().get();
    parallelize_module(model, tensor, small_plan(true));
    const FullyShardOptions options{.mesh = data_mesh(all, c), .shard_dim = [&](const nn::NamedParameter& p) {
                                      return std::min(c.dim, p.parameter.sizes().ndim() - 1);
                                    }};
    for (nn::Module* part : {static_cast<nn::Module*>(&*model.attention), static_cast<nn::Module*>(&*model.mlp)})
      fully_shard(*part, options);
    root.emplace(fully_shard(model, options));
  }
  nn::initialize(model);
  std::vector<nn::Parameter> parameters;
  std::vector<Tensor> leaves;
  for (const auto& [name, p] : model.named_parameters()) parameters.push_back(p), leaves.push_back(p.leaf());
  Shards shards(kShards, data, leaves, c.schedule);
  const auto placed = [&](const Tensor& t) {
    return tensor == nullptr ? t : dist::distribute_tensor(t, tensor, {}, {.src_data_rank = -1});
  };
  Values result;
  for (int step = 0; step < 2; ++step) {
    for (Shard& shard : shards.step(step)) {
      const auto seed = static_cast<int32_t>(shard.index() + 10 * step);
      const Tensor x = nn::call(model, placed(small_tokens(seed)));
      Tensor losses = cross_entropy(matmul(x, transpose(model.embed->weight, 0, 1), {.out_dtype = DType::f32}),
                                    placed(small_tokens(seed + 5)));
      if (tensor != nullptr) losses = dist::full_tensor(losses);
      shard.backward(losses, 0.25);
    }
    const ShardSums sums = shards.finish();
    result["loss"] = {static_cast<float>(sums.loss)};
    result["norm"] = {optim::norm_of(sums.squares)};
    const NoGradScope no_grad;
    for (size_t p = 0; p < parameters.size(); ++p) {
      result[fmt::format("gradient {}", p)] = values_of(sums.gradients[p]);
      parameters[p].will_change();
      const Tensor own = parameters[p].stored(), gradient = dist::is_dtensor(sums.gradients[p])
                                                                ? dist::to_local(sums.gradients[p])
                                                                : sums.gradients[p];
      add_(own, mul(gradient, -0.5));
      result[fmt::format("weight {}", p)] = values_of(parameters[p].master());
    }
  }
  return result;
}

class ShardedParts : public testing::TestWithParam<Case> {};

TEST_P(ShardedParts, HaveTheBitsOfOneRank) {
  const SmallLeaves leaves;
  const Case& c = GetParam();
  const std::vector<comm::TransportInfo> known = comm::known_transports();
  const auto is_it = [&](const comm::TransportInfo& info) { return info.name == c.transport && info.available; };
  if (std::string_view(c.transport) != "threads" && std::none_of(known.begin(), known.end(), is_it))
    GTEST_SKIP() << "no " << c.transport << " in this build";
  Values expected;
  comm::run_ranks(1, [&](comm::ProcessGroup&) {
    expected = trained({.name = "one", .replicas = 1, .shards = 1, .tensor = 1, .dtype = c.dtype});
  });
  run_on_ranks(c.transport, c.ranks(), [&](const dist::Mesh&) {
    const std::string found = difference(trained(c), expected);
    if (!found.empty()) throw std::logic_error(found);
  });
}

constexpr Case kCases[] = {
    {"Fsdp2Tp2", 1, 2, 2},
    {"Fsdp3Tp2", 1, 3, 2},
    {"Fsdp2Tp4", 1, 2, 4},
    {"Fsdp1Tp2", 1, 1, 2},
    {"Fsdp2Tp1", 1, 2, 1},
    {"Hsdp2x2Tp2", 2, 2, 2},
    {"EveryRound", 1, 3, 2, Schedule::every_round},
    {"Bf16", 1, 2, 2, Schedule::once_a_step, DType::bf16},
    {"ColumnsCut", 1, 3, 2, Schedule::once_a_step, DType::f32, "threads", 1},
    {"Processes", 1, 2, 2, Schedule::once_a_step, DType::f32, "shm"},
    {"Gathered", 1, 3, 2, Schedule::once_a_step, DType::bf16, "gloo"},
    {"GatheredEveryRound", 1, 3, 2, Schedule::every_round, DType::f32, "gloo"},
    {"GatheredWithReplicas", 2, 2, 2, Schedule::every_round, DType::f32, "gloo"},
};
INSTANTIATE_TEST_SUITE_P(Layouts, ShardedParts, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ShardedParts, StoreWhatIsLeftOfAPart) {
  const SmallLeaves leaves;
  comm::run_ranks(4, [](comm::ProcessGroup& group) {
    const dist::Mesh all = dist::init_device_mesh("cpu", {2, 2}, {.names = {"dp_shard", "tp"}});
    SmallModel model;
    parallelize_module(model, all->slice({"tp"}), small_plan(false));
    const ShardedModule sharded = fully_shard(model, {.mesh = all->slice({"dp_shard"})});
    nn::initialize(model);
    const Tensor up = model.mlp->up->weight.master();
    EXPECT_EQ(dist::spec_of(up).to_string(), "f32[34, 12]@[S(0), S(0)] order 1 0");
    EXPECT_EQ(model.mlp->up->weight.stored().extents(), (Extents{group.rank() < 2 ? 9 : 8, kDim}))
        << "17 rows of each part over two ranks";
    EXPECT_EQ(dist::spec_of(model.mlp->up->weight.use()).to_string(), "f32[34, 12]@[S(0)]");
    EXPECT_EQ(dist::spec_of(model.mlp->down->weight.master()).to_string(), "f32[12, 34]@[S(0), S(1)]");
    EXPECT_EQ(model.mlp->down->weight.stored().extents(), (Extents{kDim / 2, kHidden / 2}));
    EXPECT_EQ(dist::spec_of(model.norm1->weight.master()).to_string(), "f32[12]@[S(0), R]");
    EXPECT_TRUE(sharded.is_shared());
    EXPECT_LT(sharded.all_stored_bytes(), sharded.all_copy_bytes() * 6 / 10);
  });
}

TEST(ShardedParts, KeepValuesThatAreThere) {
  const SmallLeaves leaves;
  comm::run_ranks(6, [](comm::ProcessGroup&) {
    const dist::Mesh all = dist::init_device_mesh("cpu", {3, 2}, {.names = {"dp_shard", "tp"}});
    seed_all(7);
    SmallModel model;
    nn::initialize(model);
    Values before, after;
    for (const auto& [name, p] : model.named_parameters()) before[name] = values_of(p.master());
    parallelize_module(model, all->slice({"tp"}), small_plan(false));
    fully_shard(model, {.mesh = all->slice({"dp_shard"})});
    for (const auto& [name, p] : model.named_parameters()) after[name] = values_of(p.master());
    EXPECT_EQ(difference(after, before), "");
    for (const auto& [name, p] : model.named_parameters()) after[name] = values_of(p.use());
    EXPECT_EQ(difference(after, before), "");
  });
}

TEST(ShardedParts, WrongMeshesChangeNothing) {
  const SmallLeaves leaves;
  comm::run_ranks(4, [](comm::ProcessGroup&) {
    const dist::Mesh all = dist::init_device_mesh("cpu", {2, 2}, {.names = {"dp_shard", "tp"}});
    const dist::Mesh other = dist::init_device_mesh("cpu", {2, 2}, {.names = {"dp", "other"}});
    SmallModel model;
    parallelize_module(model, all->slice({"tp"}), small_plan(false));
    const std::string apart = message_of([&] { fully_shard(model, {.mesh = other->slice({"dp"})}); });
    EXPECT_NE(apart.find("come from different meshes; slice both from one"), std::string::npos) << apart;
    const std::string same = message_of([&] { fully_shard(model, {.mesh = all->slice({"tp"})}); });
    EXPECT_NE(same.find("fully_shard: parameter 'embed.weight' is divided over mesh(tp=2) already; give another dim of "
                        "the same mesh, such as mesh->slice({\"dp_shard\"})"),
              std::string::npos)
        << same;
    const std::string memory = message_of([&] {
      fully_shard(model, {.mesh = all->slice({"dp_shard"}),
                          .memory = [](const nn::NamedParameter& p) { return zeros(to_shape(p.parameter.sizes())); }});
    });
    EXPECT_NE(memory.find("is divided already; memory of one's own is for whole parameters"), std::string::npos)
        << memory;
    fully_shard(model, {.mesh = all->slice({"dp_shard"})});
  });
}

}  // namespace
}  // namespace tutti::parallel
