// The cuts a GEMM may take: all have the bits of the usual one, which the heuristic finds.
#include "tutti/codegen/gemm/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/temporary_folder.h"
#include "tutti/codegen/gemm/plan.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using choice::ChoiceMode;
using choice::ChoiceOptions;

// Sizes, dtypes and whether operands lie transposed.
struct Shape {
  int64_t m, n, k;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool a_transposed = false, b_transposed = false;
};

// The operands of one product, and what it is computed to.
class Product {
 public:
  explicit Product(const Shape& shape)
      : shape_(shape),
        tree(ContractionTree::halving(shape.k, 16)),
        a_(random(shape.m * shape.k, shape.a, 1)),
        b_(random(shape.k * shape.n, shape.b, 2)),
        c_(static_cast<size_t>(shape.m * shape.n * itemsize(shape.c))) {}

  GemmOperand a() const {
    return {a_.data(), shape_.a, shape_.a_transposed ? 1 : shape_.k, shape_.a_transposed ? shape_.m : 1};
  }
  GemmOperand b() const {
    return {b_.data(), shape_.b, shape_.b_transposed ? 1 : shape_.n, shape_.b_transposed ? shape_.k : 1};
  }
  GemmResult c() { return {c_.data(), shape_.c, shape_.n}; }
  GemmProblem problem(CpuTarget target = cpu_target()) {
    const DType compute = shape_.a == DType::f64 || shape_.b == DType::f64 ? DType::f64 : DType::f32;
    return {shape_.m, shape_.n, shape_.k, a(), b(), c_.data(), shape_.c, shape_.n, 1, {}, compute, target};
  }
  std::vector<std::byte> with_cut(const GemmCut& cut, ThreadPool& pool) {
    std::fill(c_.begin(), c_.end(), std::byte{0x55});
    run_gemm(GemmPlan(problem(), tree, cut), pool, nullptr);
    return c_;
  }
  std::vector<std::byte> with_chooser(GemmChooser& chooser, ThreadPool& pool) {
    std::fill(c_.begin(), c_.end(), std::byte{0x55});
    gemm(shape_.m, shape_.n, shape_.k, a(), b(), c(), tree, {.pool = &pool, .chooser = &chooser});
    return c_;
  }

 private:
  static std::vector<std::byte> random(int64_t count, DType dtype, uint64_t state) {
    std::vector<std::byte> bytes(static_cast<size_t>(count * itemsize(dtype)));
    for (int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      store_from_double(bytes.data() + i * itemsize(dtype), dtype,
                        static_cast<double>(static_cast<int32_t>(state >> 32)) * 0x1p-31);
    }
    return bytes;
  }

  const Shape shape_;

 public:
  const ContractionTree tree;

 private:
  const std::vector<std::byte> a_, b_;
  std::vector<std::byte> c_;
};

std::vector<GemmCut> cuts_for(GemmChooser& chooser, const choice::Signature& call) {
  const auto found = chooser.engine().partition(call);
  std::vector<GemmCut> cuts;
  for (const auto& members : found->classes)
    for (const uint32_t i : members) cuts.push_back(found->bucket[i]);
  return cuts;
}

class GemmCuts : public ::testing::TestWithParam<Shape> {};

TEST_P(GemmCuts, AllHaveTheSameBits) {
  ThreadPool one(1), three(3);
  Product product(GetParam());
  GemmChooser chooser(ChoiceOptions{});
  const std::vector<std::byte> expected = product.with_cut(usual_cut(product.problem()), one);
  const std::vector<GemmCut> cuts = cuts_for(chooser, gemm_signature(product.problem(), three.threads()));
  EXPECT_GT(cuts.size(), 50u);
  for (const GemmCut& cut : cuts) EXPECT_EQ(product.with_cut(cut, three), expected) << gemm_choice_rules().name(cut);
}

INSTANTIATE_TEST_SUITE_P(, GemmCuts,
                         ::testing::Values(Shape{37, 70, 300}, Shape{3, 200, 530}, Shape{130, 5, 290},
                                           Shape{1, 65, 1100}, Shape{19, 33, 270, DType::f32, DType::bf16, DType::bf16},
                                           Shape{41, 35, 40, DType::f64, DType::f32, DType::f64},
                                           Shape{33, 50, 300, DType::f32, DType::f32, DType::f32, true, true}),
                         [](const auto& info) {
                           return std::to_string(info.param.m) + "x" + std::to_string(info.param.n) + "x" +
                                  std::to_string(info.param.k);
                         });

TEST(GemmChoice, HeuristicIsTheUsualCut) {
  GemmChooser chooser(ChoiceOptions{});
  const auto never = [](const GemmCut&) -> double { throw InternalError("a cut was run"); };
  for (const CpuTarget target : {CpuTarget::avx2, CpuTarget::avx512})
    for (const int64_t m : {1, 2, 7, 21, 32, 33, 200})
      for (const int64_t n : {1, 5, 16, 47, 130, 1000})
        for (const int64_t k : {1, 100, 600, 3000})
          for (const bool transposed : {false, true})
            for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
              const DType compute = compute_dtype(dtype);
              const GemmProblem p{m,
                                  n,
                                  k,
                                  {nullptr, dtype, k, 1},
                                  {nullptr, dtype, transposed ? 1 : n, transposed ? k : 1},
                                  nullptr,
                                  dtype,
                                  n,
                                  1,
                                  {},
                                  compute,
                                  target};
              const ContractionTree tree = ContractionTree::halving(k);
              const GemmPlan usual(p, tree, usual_cut(p)),
                  chosen(p, tree, chooser.engine().choose(gemm_signature(p, 2), never));
              const auto geometry = [](const GemmPlan& plan) {
                return std::array{plan.problem.m,        plan.strips.parts,
                                  plan.strips.largest(), plan.panels.parts,
                                  plan.panels.largest(), static_cast<int64_t>(plan.chunks.size()),
                                  plan.tasks_per_thread, int64_t{plan.b_in_place}};
              };
              EXPECT_EQ(geometry(usual), geometry(chosen))
                  << m << " " << n << " " << k << " " << name_of(dtype) << transposed;
            }
}

TEST(GemmChoice, HeuristicAsksNoTable) {
  ThreadPool pool(1);
  Product product({200, 100, 100});
  GemmChooser chooser(ChoiceOptions{});
  (void)product.with_chooser(chooser, pool);
  EXPECT_EQ(chooser.engine().statistics().passes, 0);
  EXPECT_EQ(chooser.engine().statistics().memo_hits, 0);
}

TEST(GemmChoice, MeasuresOnceAndKeepsTheBits) {
  ThreadPool pool(2);
  Product product({200, 100, 100});
  const tutti::testing::TemporaryFolder folder;
  choice::WinnerStore store(folder / "cache", "machine");
  const ChoiceOptions options{.mode = ChoiceMode::measure, .samples = 2};
  const std::vector<std::byte> expected = product.with_cut(usual_cut(product.problem()), pool);
  GemmChooser chooser(options, &store), later(options, &store);
  EXPECT_EQ(product.with_chooser(chooser, pool), expected);
  EXPECT_EQ(chooser.engine().statistics().measured, 10);
  const int64_t predicate_calls = chooser.engine().statistics().all_predicate_calls();
  EXPECT_GT(predicate_calls, 0);
  EXPECT_EQ(product.with_chooser(chooser, pool), expected);
  EXPECT_EQ(chooser.engine().statistics().measured, 10);
  EXPECT_EQ(chooser.engine().statistics().all_predicate_calls(), predicate_calls);
  EXPECT_EQ(chooser.engine().statistics().memo_hits, 1);
  EXPECT_EQ(product.with_chooser(later, pool), expected);
  EXPECT_EQ(later.engine().statistics().measured, 0);
  EXPECT_EQ(later.engine().statistics().disk_hits, 1);
}

TEST(GemmChoice, DeterministicModeMeasuresNothing) {
  ThreadPool pool(1);
  Product product({200, 100, 100});
  GemmChooser chooser({.mode = ChoiceMode::measure, .deterministic = true});
  (void)product.with_chooser(chooser, pool);
  EXPECT_EQ(chooser.engine().statistics().measured, 0);
}

TEST(GemmChoice, SmallProductsAndLoopsOfThePoolAreNotMeasured) {
  ThreadPool pool(2);
  Product small({100, 100, 100}), large({200, 100, 100});
  GemmChooser chooser({.mode = ChoiceMode::measure});
  (void)small.with_chooser(chooser, pool);
  pool.parallel_for(2, 1, [&](int64_t begin, int64_t) {
    if (begin == 0) (void)large.with_chooser(chooser, pool);
  });
  EXPECT_EQ(chooser.engine().statistics().passes, 0);
}

TEST(GemmChoice, ACutThatCannotRunIsNotChosen) {
  Product product({200, 100, 100});
  GemmChooser chooser({.mode = ChoiceMode::measure});
  const GemmProblem p = product.problem();
  const GemmCut usual = usual_cut(p);
  const GemmCut chosen = chooser.choose(p, 1, [&](const GemmCut& cut) {
    if (!(cut.chunk_bytes == usual.chunk_bytes && cut.b_in_place)) throw EnvironmentError("no code generator here");
  });
  EXPECT_TRUE(chosen.b_in_place);
  EXPECT_EQ(chooser.known(p, 1), chosen);
}

TEST(GemmChoice, IsDescribed) {
  ThreadPool pool(1);
  Product product({200, 100, 100});
  GemmChooser chooser({.mode = ChoiceMode::measure});
  const GemmOptions options{.pool = &pool, .chooser = &chooser};
  const auto described = [&] {
    return describe_gemm(200, 100, 100, product.a(), product.b(), product.c(), product.tree, options);
  };
  EXPECT_NE(described().find("b packed"), std::string::npos);  // nothing is known yet, and asking measures nothing
  EXPECT_EQ(chooser.engine().statistics().passes, 0);
  (void)chooser.engine().choose(gemm_signature(product.problem(), 1),
                                [](const GemmCut& cut) { return cut.b_in_place ? 1.0 : 2.0; });
  EXPECT_NE(described().find("b in place"), std::string::npos);
}

}  // namespace
}  // namespace tutti::codegen
