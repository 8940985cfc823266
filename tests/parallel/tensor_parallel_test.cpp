// parallelize_module: a transformer under a plan has the losses and gradients of one rank, bit for bit, and keeps its
// parts apart.
#include "tutti/parallel/tensor_parallel.h"

#include "tests/parallel/support/parallel_block.h"
#include "tests/support/low_rank_operand.h"
#include "tests/support/message_of.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::parallel {
namespace {

struct Case {
  const char* name;
  int ranks;
  bool sequence;
  DType dtype = DType::f32;
  const char* transport = "threads";
};

class TensorParallel : public testing::TestWithParam<Case> {};

TEST_P(TensorParallel, HasTheLossesAndGradientsOfOneRank) {
  const SmallLeaves leaves;
  const Case& c = GetParam();
  const auto is_it = [&](const comm::TransportInfo& info) { return info.name == c.transport && info.available; };
  const std::vector<comm::TransportInfo> known = comm::known_transports();
  if (std::string_view(c.transport) != "threads" && std::none_of(known.begin(), known.end(), is_it))
    GTEST_SKIP() << "no " << c.transport << " in this build";
  for (const bool fused_loss : {false, true}) {
    const Values expected = of_one_rank(c.dtype, fused_loss);
    run_on_ranks(c.transport, c.ranks, [&](const dist::Mesh& mesh) {
      const std::string found =
          difference(losses_and_gradients(mesh, small_plan(c.sequence), c.dtype, fused_loss), expected);
      if (!found.empty())
        throw std::logic_error(
            fmt::format("rank {}{}: {}", mesh->rank(), fused_loss ? ", linear_cross_entropy" : "", found));
    });
  }
}

constexpr Case kCases[] = {
    {"OnOneRank", 1, false},
    {"Tp2", 2, false},
    {"Tp4", 4, false},
    {"Tp2WithSequence", 2, true},
    {"Tp4WithSequence", 4, true},
    {"Tp2InBf16", 2, false, DType::bf16},
    {"Tp4InBf16WithSequence", 4, true, DType::bf16},
    {"Tp2OfProcesses", 2, false, DType::f32, "shm"},
    {"Tp4OfProcessesWithSequence", 4, true, DType::f32, "shm"},
    {"Tp2OfProcessesInBf16", 2, true, DType::bf16, "shm"},
};
INSTANTIATE_TEST_SUITE_P(Layouts, TensorParallel, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// The loss as a function of one element of a parameter, in f64 on one rank.
double loss_with(const std::string& changed, int64_t element, double by) {
  seed_all(7);
  SmallModel model;
  nn::initialize(model);
  const NoGradScope no_grad;
  model.to(DType::f64);
  for (const auto& [name, p] : model.named_parameters()) {
    if (name == changed) p.use().data<double>()[element] += by;
  }
  const Tensor losses =
      cross_entropy(matmul(model.forward(small_tokens(0)), transpose(model.embed->weight, 0, 1)), small_tokens(5));
  return sum(mul(losses, 0.25)).item();
}

// Replicated parameters with divided inputs must get their whole sum, and divided ones theirs once.
TEST(TensorParallel, GradientsHaveTheSizeOfFiniteDifferences) {
  const SmallLeaves leaves;
  const std::pair<const char*, int64_t> elements[] = {{"norm1.weight", 3},
                                                      {"norm2.weight", 5},
                                                      {"norm2.bias", 1},
                                                      {"final_norm.weight", 7},
                                                      {"attention.q_proj.weight", 17},
                                                      {"attention.o_proj.bias", 4},
                                                      {"attention.k_proj.bias", 20},
                                                      {"mlp.down.weight", 100},
                                                      {"mlp.down.bias", 2},
                                                      {"mlp.up.weight", 9},
                                                      {"embed.weight", 62 * kDim + 3}};
  std::map<std::string, double> slopes;
  for (const auto& [name, element] : elements)
    slopes[name] = (loss_with(name, element, 1e-4) - loss_with(name, element, -1e-4)) / 2e-4;
  for (const int ranks : {2, 4}) {
    for (const bool sequence : {false, true}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup&) {
        const Values seen =
            losses_and_gradients(dist::init_device_mesh("cpu", {ranks}), small_plan(sequence), DType::f32);
        for (const auto& [name, element] : elements)
          EXPECT_NEAR(seen.at(name)[static_cast<size_t>(element)], slopes[name],
                      1e-4 * std::max(1.0, std::abs(slopes[name])))
              << name << " on " << ranks << " ranks";
      });
    }
  }
}

// Each rank holds, draws and computes its part only, and nothing but activations travels.
TEST(TensorParallel, StoresPartsAndSendsActivationsOnly) {
  const SmallLeaves leaves;
  for (const bool sequence : {false, true}) {
    comm::run_ranks(4, [&](comm::ProcessGroup&) {
      const dist::Mesh mesh = dist::init_device_mesh("cpu", {4});
      SmallModel model;
      parallelize_module(model, mesh, small_plan(sequence));
      nn::initialize(model);
      EXPECT_EQ(model.mlp->up->weight.stored().extents(),
                (Extents{mesh->rank() == 0 || mesh->rank() == 2 ? 9 : 8, kDim}))
          << "34 rows by halving: 9, 8, 9, 8";
      EXPECT_EQ(model.attention->o_proj->weight.stored().extents(), (Extents{kDim, kHeads * kHeadDim / 4}));
      EXPECT_EQ(model.embed->weight.stored().extents(), (Extents{kVocabulary / 4, kDim}));
      const auto placed = [&](const Tensor& t) { return dist::distribute_tensor(t, mesh, {}, {.src_data_rank = -1}); };
      const Tensor tokens = placed(small_tokens(0)), labels = placed(small_tokens(5));
      const dist::CommCounter counter;
      const Tensor x = nn::call(model, tokens);
      const Tensor losses =
          cross_entropy(matmul(x, transpose(model.embed->weight, 0, 1), {.out_dtype = DType::f32}), labels);
      const double activation = kRows * kLength * kDim * 4.0, statistics = kRows * kLength * 3 * 4.0 * 3;
      // Embedding, attention and feed-forward send their sum: as all_reduce, or as reduce_scatter and all_gather,
      // between which the bias is added, with `sequence` also the norm. One more call is for the losses.
      EXPECT_EQ(counter.total().collectives, sequence ? 7 : 6) << counter.to_string();
      EXPECT_NEAR(counter.total().bytes, 3 * 2 * activation * 3 / 4 + statistics, 1) << counter.to_string();
      EXPECT_EQ(dist::placements_of(losses), (dist::Placements{dist::replicate()}));
    });
  }
}

// The sizes of what kernels of an op have made on this thread.
thread_local std::vector<Extents> made_sizes;
class NoteSizes final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    run_eager(call, outputs);
    if (std::string_view(call.op.name) == "embedding_backward") made_sizes.push_back(outputs[0].extents());
  }
};
StageMask note_sizes() {
  static NoteSizes stage;
  static const StageMask mask = register_stage("note sizes", StagePlace::kernels, &stage);
  return mask;
}

// A rank computes the gradient of the rows of a divided table that it has; of a table that every rank has, all of it,
// because sending would cost more.
TEST(TensorParallel, TheGradientOfATableIsComputedWhereItLies) {
  const SmallLeaves leaves;
  comm::run_ranks(4, [&](comm::ProcessGroup&) {
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {4});
    for (const bool is_divided : {true, false}) {
      nn::Embedding table(kVocabulary, kDim);
      if (is_divided) parallelize_module(table, mesh, RowwiseParallel{});
      else parallelize_module(table, mesh, ParallelPlan{});
      nn::initialize(table);
      const Tensor rows = nn::call(table, dist::distribute_tensor(small_tokens(0), mesh, {}, {.src_data_rank = -1}));
      const Tensor cotangent = dist::full(to_shape(rows.extents()), 1.0, mesh);
      made_sizes.clear();
      const dist::CommCounter counter;
      {
        const StageScope noted(note_sizes(), 0);
        backward(rows, cotangent);
      }
      EXPECT_EQ(counter.total().collectives, 0) << counter.to_string();
      EXPECT_EQ(made_sizes, (std::vector<Extents>{{is_divided ? kVocabulary / 4 : kVocabulary, kDim}}));
    }
  });
}

// What the ranks of one model do differently is an error on all of them.
TEST(TensorParallel, RanksThatDifferAreNamed) {
  const SmallLeaves leaves;
  const auto says = [](const std::function<void(const dist::Mesh&, SmallModel&)>& run) -> std::string {
    try {
      comm::run_ranks(2,
                      [&](comm::ProcessGroup&) {
                        SmallModel model;
                        run(dist::init_device_mesh("cpu", {2}), model);
                      },
                      {.timeout = std::chrono::seconds(20)});
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const std::string plans = says([](const dist::Mesh& mesh, SmallModel& model) {
    ParallelPlan plan = small_plan(false);
    if (mesh->rank() == 1) plan.pop_back();
    parallelize_module(model, mesh, plan);
  });
  EXPECT_NE(
      plans.find("parallelize_module: the ranks of mesh(2) have different plans or modules; give all of them the same"),
      std::string::npos)
      << plans;
  EXPECT_NE(plans.find("rank 1"), std::string::npos) << plans;
  const std::string batches = says([](const dist::Mesh& mesh, SmallModel& model) {
    parallelize_module(model, mesh, small_plan(false));
    nn::initialize(model);
    model.embed(dist::distribute_tensor(mesh->rank() == 1 ? narrow(small_tokens(0), 0, 0, 12) : small_tokens(0), mesh,
                                        {}, {.src_data_rank = -1}));
  });
  EXPECT_NE(batches.find("rank 1"), std::string::npos) << batches;
  EXPECT_NE(batches.find("the shapes differ"), std::string::npos) << batches;
}

TEST(TensorParallel, KeepsValuesThatAreThereAndTiedWeights) {
  const SmallLeaves leaves;
  comm::run_ranks(2, [&](comm::ProcessGroup&) {
    seed_all(7);
    SmallModel before, after;
    nn::initialize(before);
    const std::vector<float> up = values_of(before.mlp->up->weight.master());
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {2});
    parallelize_module(before, mesh, small_plan(false));
    parallelize_module(after, mesh, small_plan(false));
    nn::initialize(after);
    EXPECT_EQ(values_of(before.mlp->up->weight.master()), up);
    EXPECT_EQ(values_of(after.mlp->up->weight.master()), up) << "parts draw the numbers of the whole";
  });
}

TEST(TensorParallel, OutputsMayBePartsAndInputsPlain) {
  const codegen::ContractionLeafForTests leaf(4);
  comm::run_ranks(2, [](comm::ProcessGroup&) {
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {2});
    nn::Linear linear(8, 16);
    seed_all(3);
    nn::initialize(linear);
    const Tensor x = facets::sample_tensor(3, {6, 8}, DType::f32, -1.0, 1.0), expected = linear.forward(x);
    parallelize_module(linear, mesh, ColwiseParallel{.use_local_output = true});
    const Tensor part = nn::call(linear, x);
    EXPECT_FALSE(dist::is_dtensor(part));
    EXPECT_EQ(values_of(part), values_of(narrow(expected, 1, 8 * mesh->rank(), 8)));
  });
}

TEST(TensorParallel, WrongPlansChangeNothing) {
  comm::run_ranks(2, [](comm::ProcessGroup&) {
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {2});
    SmallModel model;
    const auto says = [&](const ParallelPlan& plan) {
      return message_of([&] { parallelize_module(model, mesh, plan); });
    };
    const std::string unknown = says({{"mlp.*", ColwiseParallel{}}, {"mlp.gat", ColwiseParallel{}}});
    EXPECT_NE(unknown.find("parallelize_module: unknown module pattern 'mlp.gat'"), std::string::npos) << unknown;
    EXPECT_NE(unknown.find("did you mean 'mlp.gate'"), std::string::npos) << unknown;
    const std::string norm = says({{"norm*", RowwiseParallel{}}});
    EXPECT_NE(norm.find("RowwiseParallel divides nn::Linear and nn::Embedding, and 'norm1' is neither"),
              std::string::npos)
        << norm;
    const std::string degree = says({{"attention.o_proj", RowwiseParallel{}}, {"mlp.down", RowwiseParallel{}}});
    EXPECT_NE(degree.find("RowwiseParallel of 'attention.o_proj' cuts its 48 input features, over which its result is "
                          "summed, over 2 ranks"),
              std::string::npos)
        << degree;
    EXPECT_NE(degree.find("The largest legal degree of the whole plan is 1"), std::string::npos) << degree;
    const std::string twice = says({{"embed", RowwiseParallel{}}, {"emb*", ColwiseParallel{}}});
    EXPECT_NE(twice.find("places one parameter as S(0) in 'embed' and as S(1) in 'embed'"), std::string::npos) << twice;
    nn::make_low_rank(*model.mlp->gate, 2);
    const std::string kind = says({{"mlp.gate", ColwiseParallel{}}});
    EXPECT_NE(kind.find("the weight of 'mlp.gate' is low-rank; ColwiseParallel divides dense ones"), std::string::npos)
        << kind;
    EXPECT_FALSE(model.embed->weight.is_materialized());
    const dist::Mesh flat = dist::init_device_mesh("cpu", {2, 1});
    EXPECT_NE(message_of([&] { parallelize_module(model, flat, ParallelPlan{}); }).find("has 2 dims; expected one"),
              std::string::npos);
  });
}

TEST(TensorParallel, TheLargestDegreeIsThatOfTheTightestSum) {
  const codegen::ContractionLeafForTests leaf(4);
  SmallModel model;
  EXPECT_EQ(largest_parallel_degree(model, small_plan(false)), 8) << "24 columns of keys: 6, then 3 elements";
}

}  // namespace
}  // namespace tutti::parallel
