// Products in fast mode: who may compute them, and that whoever does is right.
#include "tutti/codegen/gemm/fast_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tutti/codegen/gemm/choice.h"
#include "tutti/core/error.h"
#include "tutti/runtime/numerics.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using choice::ChoiceMode;
using choice::ChoiceOptions;

struct Shape {
  int64_t m, n, k;
  DType dtype = DType::f32;
  bool a_transposed = false, b_transposed = false;
  int64_t batch = 1;
  int64_t slack = 0;  // between rows
};

// Operands between -1 and 1, a result full of NaN, and what it should be.
class Product {
 public:
  explicit Product(const Shape& s)
      : shape(s),
        a_(fill(s.m, s.k, s.a_transposed, 1)),
        b_(fill(s.k, s.n, s.b_transposed, 2)),
        c_(static_cast<size_t>(s.batch * s.m * row() * itemsize(s.dtype))) {
    forget();
  }

  GemmProblem problem() {
    const GemmOperand a{a_.data(), shape.dtype, shape.a_transposed ? 1 : shape.k + shape.slack,
                        shape.a_transposed ? shape.m + shape.slack : 1};
    const GemmOperand b{b_.data(), shape.dtype, shape.b_transposed ? 1 : shape.n + shape.slack,
                        shape.b_transposed ? shape.k + shape.slack : 1};
    const GemmBatch batch{shape.batch, one(shape.m, shape.k, shape.a_transposed),
                          one(shape.k, shape.n, shape.b_transposed), shape.m * row()};
    return {shape.m, shape.n, shape.k, a, b, c_.data(), shape.dtype, row(), 1, batch, shape.dtype, cpu_target()};
  }
  // Largest difference from sums in double, over what sums in any order may differ; infinity when anything behind a row
  // was written.
  double error() const {
    const double unit = shape.dtype == DType::f64 ? 0x1p-53 : 0x1p-24,
                 rounding = shape.dtype == DType::bf16 ? 0x1p-8 : unit;
    double most = 0;
    for (int64_t x = 0; x < shape.batch; ++x)
      for (int64_t i = 0; i < shape.m; ++i)
        for (int64_t j = 0; j < row(); ++j) {
          const double got = load(c_, (x * shape.m + i) * row() + j);
          if (j >= shape.n) {
            if (!std::isnan(got)) return std::numeric_limits<double>::infinity();
            continue;
          }
          double sum = 0, size = 0;
          for (int64_t k = 0; k < shape.k; ++k) {
            const double term =
                load(a_, x * one(shape.m, shape.k, shape.a_transposed) +
                             (shape.a_transposed ? k * (shape.m + shape.slack) + i : i * (shape.k + shape.slack) + k)) *
                load(b_, x * one(shape.k, shape.n, shape.b_transposed) +
                             (shape.b_transposed ? j * (shape.k + shape.slack) + k : k * (shape.n + shape.slack) + j));
            sum += term;
            size += std::abs(term);
          }
          const double allowed = static_cast<double>(shape.k) * unit * size + rounding * std::abs(sum);
          most =
              std::max(most, std::isnan(got) ? std::numeric_limits<double>::infinity() : std::abs(got - sum) / allowed);
        }
    return most;
  }
  void forget() {
    for (int64_t i = 0; i < shape.batch * shape.m * row(); ++i)
      store_from_double(c_.data() + i * itemsize(shape.dtype), shape.dtype, NAN);
  }
  std::vector<std::byte> multiply(ThreadPool& pool) {
    forget();
    const GemmProblem p = problem();
    batched_gemm(p.batch, p.m, p.n, p.k, p.a, p.b, {p.c, p.c_dtype, p.c_row_stride}, ContractionTree::halving(p.k, 16),
                 {.pool = &pool});
    return c_;
  }

  const Shape shape;

 private:
  int64_t row() const { return shape.n + shape.slack; }
  int64_t one(int64_t rows, int64_t columns, bool transposed) const {
    return transposed ? columns * (rows + shape.slack) : rows * (columns + shape.slack);
  }
  double load(const std::vector<std::byte>& from, int64_t i) const {
    return load_as_double(from.data() + i * itemsize(shape.dtype), shape.dtype);
  }
  std::vector<std::byte> fill(int64_t rows, int64_t columns, bool transposed, uint64_t state) const {
    const int64_t count = shape.batch * one(rows, columns, transposed);
    std::vector<std::byte> bytes(static_cast<size_t>(count * itemsize(shape.dtype)));
    for (int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      store_from_double(bytes.data() + i * itemsize(shape.dtype), shape.dtype,
                        static_cast<double>(static_cast<int32_t>(state >> 32)) * 0x1p-31);
    }
    return bytes;
  }
  const std::vector<std::byte> a_, b_;
  std::vector<std::byte> c_;
};

constexpr GemmLibrary kLibraryWithoutKernels{
    "Nothing 1.0", [](DType, DType, DType) { return true; },
    [](int64_t, int64_t, int64_t, const GemmOperand&, const GemmOperand&, const GemmResult&) { return "no kernel"; }};

TEST(GemmLibraries, AreThoseOfTheBuild) { EXPECT_EQ(static_cast<int>(gemm_libraries().size()), TUTTI_GEMM_LIBRARIES); }

TEST(GemmLibraries, MultiplyShapesOfAllKinds) {
  ThreadPool one(1), three(3);
  for (const GemmLibrary* library : gemm_libraries()) {
    SCOPED_TRACE(library->name);
    for (const Shape& s : {Shape{64, 48, 32},
                           {1, 65, 300},
                           {1, 65, 300, DType::f32, false, true},
                           {37, 1, 130},
                           {130, 1, 37, DType::f32, true, true},
                           {1, 1, 1},
                           {33, 50, 1},
                           {70, 41, 90, DType::f32, true, false},
                           {41, 70, 90, DType::f32, true, true},
                           {20, 30, 40, DType::f32, false, false, 1, 5},
                           {20, 30, 40, DType::f32, true, true, 4, 3},
                           {17, 19, 23, DType::f32, false, true, 5},
                           {1, 30, 40, DType::f32, false, false, 3, 2},
                           {45, 33, 60, DType::f64, false, true}}) {
      if (!library->multiplies(s.dtype, s.dtype, s.dtype)) continue;
      for (ThreadPool* pool : {&one, &three}) {
        Product product(s);
        multiply_by(*library, product.problem(), *pool);
        EXPECT_LE(product.error(), 1.0) << s.m << "x" << s.n << "x" << s.k << " " << name_of(s.dtype) << " on "
                                        << pool->threads();
      }
    }
  }
}

TEST(GemmLibraries, SayWhatTheyMultiply) {
  for (const GemmLibrary* library : gemm_libraries()) {
    EXPECT_TRUE(library->multiplies(DType::f32, DType::f32, DType::f32)) << library->name;
    EXPECT_FALSE(library->multiplies(DType::f32, DType::bf16, DType::f32)) << library->name;
    EXPECT_FALSE(library->multiplies(DType::f16, DType::f16, DType::f16)) << library->name;
  }
}

TEST(GemmLibraries, AComplaintNamesLibraryAndProduct) {
  ThreadPool pool(1);
  Product product({64, 48, 32});
  try {
    multiply_by(kLibraryWithoutKernels, product.problem(), pool);
    FAIL() << "nothing was thrown";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(
        error.what(),
        "Nothing 1.0 does not multiply f32 [64, 32] by [32, 48]: no kernel; numerics mode strict uses no library");
  }
}

std::vector<std::string> providers_of(const GemmProblem& p) {
  choice::ChoiceEngine<GemmProvider> engine(gemm_providers, gemm_provider_rules(), ChoiceOptions{});
  choice::Signature call = gemm_signature(p, 1);
  call.classes = 2;
  const auto found = engine.partition(call);
  std::vector<std::string> names;
  for (const auto& members : found->classes)
    for (const uint32_t i : members) names.push_back(gemm_provider_rules().name(found->bucket[i]));
  return names;
}

TEST(GemmProviders, LibrariesServeOperandsThatTheyCanRead) {
  Product product({64, 48, 32}), columns({64, 1, 32});
  std::vector<std::string> all{"tree"};
  for (const GemmLibrary* library : gemm_libraries()) all.emplace_back(library->name);
  EXPECT_EQ(providers_of(product.problem()), all);
  GemmProblem column = columns.problem();
  column.b.row_stride = column.b.column_stride = 1;  // of one column
  EXPECT_EQ(providers_of(column), all);
  const auto only_the_tree = [&](const char* what, const std::function<void(GemmProblem&)>& change) {
    GemmProblem p = product.problem();
    change(p);
    EXPECT_EQ(providers_of(p), std::vector<std::string>{"tree"}) << what;
  };
  only_the_tree("every second column", [](GemmProblem& p) { p.a.column_stride = 2; });
  only_the_tree("one row repeated", [](GemmProblem& p) { p.b.row_stride = 0; });
  only_the_tree("rows that overlap", [](GemmProblem& p) { p.a.row_stride = 31; });
  only_the_tree("rows too far apart", [](GemmProblem& p) { p.b.row_stride = int64_t{1} << 31; });
  only_the_tree("more columns than an int",
                [](GemmProblem& p) { p.n = p.b.row_stride = p.c_row_stride = int64_t{1} << 31; });
  only_the_tree("another type of the result", [](GemmProblem& p) { p.c_dtype = DType::f16; });
}

TEST(GemmProviders, HeuristicTakesALibraryWhereItHasInstructionsOfItsOwn) {
  const auto cost = gemm_provider_rules().cost;
  const auto signature = [](DType dtype, CpuTarget target) {
    Product product({64, 48, 32, dtype});
    GemmProblem p = product.problem();
    p.target = target;
    return gemm_signature(p, 1);
  };
  const GemmProvider tree{nullptr}, library{&kLibraryWithoutKernels};
  for (const CpuTarget target : {CpuTarget::avx2, CpuTarget::avx512, CpuTarget::avx512bf16}) {
    EXPECT_LT(cost(tree, signature(DType::f32, target)), cost(library, signature(DType::f32, target)));
    const bool has_units = target == CpuTarget::avx512bf16 && !__builtin_cpu_supports("amx-bf16");
    EXPECT_EQ(cost(library, signature(DType::bf16, target)) < cost(tree, signature(DType::bf16, target)), !has_units)
        << name_of(target);
  }
}

TEST(GemmProviders, MeasuringTakesTheFastestAndKeepsIt) {
  const tutti::testing::TemporaryFolder folder;
  choice::WinnerStore store(folder / "cache", "machine");
  const ChoiceOptions options{.mode = ChoiceMode::measure, .samples = 2};
  Product product({200, 100, 100});
  GemmProviderChooser chooser(options, &store), later(options, &store);
  int runs = 0;
  const auto slow_tree = [&](const GemmProvider& provider) {
    ++runs;
    if (provider.library == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  EXPECT_EQ(chooser.known(product.problem(), 1).library, nullptr);
  const GemmLibrary* winner = chooser.choose(product.problem(), 1, slow_tree).library;
  EXPECT_EQ(winner == nullptr, gemm_libraries().empty());
  EXPECT_EQ(chooser.known(product.problem(), 1).library, winner);
  const int before = runs;
  EXPECT_EQ(chooser.choose(product.problem(), 1, slow_tree).library, winner);
  EXPECT_EQ(later.choose(product.problem(), 1, slow_tree).library, winner);
  EXPECT_EQ(runs, before);
  // One that cannot run is not chosen.
  GemmProviderChooser other(options);
  EXPECT_EQ(other
                .choose(product.problem(), 1,
                        [](const GemmProvider& provider) { TUTTI_CHECK_ENV(provider.library == nullptr, "no kernel"); })
                .library,
            nullptr);
}

TEST(FastMode, IsOfARankAndOfAScope) {
  EXPECT_EQ(numerics_mode(), NumericsMode::strict);
  RankContext other({});
  {
    const RankContext::Scope there(other);
    set_numerics_mode(NumericsMode::fast);
  }
  EXPECT_EQ(numerics_mode(), NumericsMode::strict);
  const RankContext::Scope there(other);
  EXPECT_EQ(numerics_mode(), NumericsMode::fast);
  {
    const NumericsScope scope(NumericsMode::strict);
    EXPECT_EQ(numerics_mode(), NumericsMode::strict);
  }
  EXPECT_EQ(numerics_mode(), NumericsMode::fast);
  // As two threads would: the first ends before the second.
  auto first = std::make_unique<StrictScope>(), second = std::make_unique<StrictScope>();
  first.reset();
  EXPECT_EQ(numerics_mode(), NumericsMode::strict);
  second.reset();
  EXPECT_EQ(numerics_mode(), NumericsMode::fast);
}

TEST(FastMode, ProductsAreRightAndTheTreeServesF32UntilMeasured) {
  ThreadPool pool(2);
  Product product({200, 100, 100});
  const std::vector<std::byte> strict = product.multiply(pool);
  const NumericsScope fast(NumericsMode::fast);
  EXPECT_EQ(product.multiply(pool), strict);
  EXPECT_LE(product.error(), 1.0);
  const GemmProblem p = product.problem();
  EXPECT_EQ(describe_gemm(p.m, p.n, p.k, p.a, p.b, {p.c, p.c_dtype, p.c_row_stride}, ContractionTree::halving(p.k, 16),
                          {.pool = &pool})
                .substr(0, 9),
            "tree gemm");
}

// As many as fit the processor: where it does not multiply bf16, the tree does.
TEST(FastMode, BFloat16IsRightWhoeverMultipliesIt) {
  const NumericsScope fast(NumericsMode::fast);
  ThreadPool pool(2);
  Product product({200, 130, 100, DType::bf16});
  product.multiply(pool);
  EXPECT_LE(product.error(), 1.0);
}

}  // namespace
}  // namespace tutti::codegen
