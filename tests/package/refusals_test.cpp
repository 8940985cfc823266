// What packages do not hold is refused, naming the op and why; what is called wrongly is refused, naming the argument.
#include <gtest/gtest.h>

#include "tests/package/support/packaged_cases.h"
#include "tutti/graph/control.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/dropout.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/numerics.h"

namespace tutti {
namespace {

using deploy::Package;
using package_test::for_this_processor;
using package_test::Mlp;
using package_test::usage_error_of;
using package_test::values;

// The error of packaging `fn`, and that nothing is left behind.
template <class Fn, class... Args>
std::string refusal_of(const Fn& fn, const Args&... args) {
  const testing::TemporaryFolder folder;
  const std::string text = usage_error_of([&] { package(folder / "f", fn, for_this_processor("f"), args...); });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  return text;
}

TEST(PackageRefusals, RandomNumbers) {
  const auto fn = [](const Tensor& x) { return dropout(x, 0.5); };
  EXPECT_HAS(refusal_of(fn, values(1, {4})), "it draws random numbers");
}

TEST(PackageRefusals, OpsOfTheUser) {
  static const OpDef kMine{.name = "mine",
                           .num_inputs = 1,
                           .infer = [](const OpCall& c, OutputMetas& m) { m.add(c[0].dtype(), c[0].sizes()); },
                           .kernel = [](const OpCall&, std::span<const Tensor>) {}};
  const auto fn = [](const Tensor& x) { return apply1(kMine, {&x, 1}); };
  const std::string text = refusal_of(fn, values(1, {4}));
  EXPECT_HAS(text, "mine");
  EXPECT_HAS(text, "op of the user that is not in the op table; add it with join_op_table()");
}

TEST(PackageRefusals, ArgumentsThatAreNoTensors) {
  EXPECT_HAS(refusal_of([](const Tensor& x, SymInt n) { return mul(x, static_cast<double>(n.value())); },
                        values(1, {4}), SymInt(3)),
             "it takes a SymInt or a RandomKey");
}

TEST(PackageRefusals, FastMode) {
  const NumericsScope fast(NumericsMode::fast);
  EXPECT_HAS(refusal_of([](const Tensor& x) { return exp(x); }, values(1, {4})), "packages are strict");
}

TEST(PackageRefusals, DeclarationsThatDoNotFitTheExample) {
  const auto fn = [](const Tensor& x) { return exp(x); };
  const testing::TemporaryFolder folder;
  const auto refusal = [&](PackagedSize size) {
    return usage_error_of([&] { package(folder / "f", fn, for_this_processor("f", {size}), values(1, {4, 4})); });
  };
  EXPECT_HAS(refusal({.name = "n", .dims = {{1, 0}}, .least = 1, .most = 2}), "is a size of tensor 1");
  EXPECT_HAS(refusal({.name = "n", .dims = {{0, 2}}, .least = 1, .most = 2}), "dim 2");
  EXPECT_HAS(refusal({.name = "n", .dims = {{0, 0}, {0, -2}}, .least = 1, .most = 2}), "declared twice");
  EXPECT_HAS(refusal({.name = "n", .dims = {{0, 0}}, .least = 3, .most = 2}), "from 3 to 2");
  EXPECT_HAS(refusal({.name = "n", .dims = {}, .least = 1, .most = 2}), "the size of no dim");
  EXPECT_HAS(refusal({.name = "n", .dims = {{0, 0}}, .least = 1, .most = 5000}), "5000 combinations");
}

TEST(PackageRefusals, AFunctionThatDoesNotTakeAllDeclaredSizes) {
  const testing::TemporaryFolder folder;
  const Tensor held = values(1, {4, 4});
  const auto fn = [&](const Tensor& x) { return add(x, held); };
  EXPECT_HAS(usage_error_of([&] {
               package(folder / "f", fn,
                       for_this_processor("f", {{.name = "n", .dims = {{0, 0}}, .least = 3, .most = 4}}),
                       values(2, {4, 4}));
             }),
             "add");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// A process that was killed while it packaged leaves the file that was not proved yet.
TEST(PackageFiles, AnUnfinishedOneOfAKilledProcessIsReplaced) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x) { return exp(x); };
  package_test::write_file(folder / "f.unproved", std::string(100000, 'x'));
  package(folder / "f", fn, for_this_processor("f"), values(1, {4}));
  EXPECT_FALSE(std::filesystem::exists(folder / "f.unproved"));
  expect_same_bits(Package::open(folder / "f")->run({{values(2, {4})}})[0], fn(values(2, {4})));
}

TEST(PackageSizes, ThatAreApartAreNeverBothAboveTheirLeast) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x, const Tensor& y) {
    TUTTI_CHECK(x.extent(0) == 2 || x.extent(1) == 1, "{} is never asked for", x.extents());
    return add(x, y);
  };
  const PackageOptions options = for_this_processor(
      "f", {{.name = "columns", .dims = {{0, 1}, {1, 1}}, .least = 1, .most = 7, .step = 2},
            {.name = "deep", .dims = {{0, 2}, {1, 2}}, .least = 1, .most = 2},
            {.name = "rows", .dims = {{0, 0}, {1, 0}}, .least = 2, .most = 4, .apart_from = "columns"}});
  const PackageReport report = package(folder / "f", fn, options, values(1, {4, 7, 2}), values(2, {4, 7, 2}));
  EXPECT_EQ(report.combinations, 2 * (4 + 2));
  const auto opened = Package::open(folder / "f");
  const deploy::Manifest& m = opened->manifest();
  ASSERT_EQ(m.points(), 12);
  for (int64_t point = 0; point < m.points(); ++point) {
    const std::vector<int64_t> sizes = m.sizes_of(point);
    const Extents extents = m.extents_of(m.inputs[0], sizes);
    EXPECT_EQ(m.point_of({{extents, extents}}, {{DType::f32, DType::f32}}), point);
    const Tensor x = values(3, extents), y = values(4, extents);
    expect_same_bits(opened->run({{x, y}})[0], fn(x, y));
  }
  EXPECT_HAS(usage_error_of([&] { opened->run({{values(1, {3, 5, 1}), values(1, {3, 5, 1})}}); }),
             "f: 'columns' is 5 and 'rows' 3; only one of them may be above its least, 1 and 2");
  // A name that is none, one that comes behind, and one from which another size is apart already.
  for (const char* name : {"nothing", "rows", "columns"}) {
    PackageOptions wrong = options;
    wrong.dynamic[1].apart_from = name;
    EXPECT_HAS(usage_error_of([&] { package(folder / "g", fn, wrong, values(1, {4, 7, 2}), values(2, {4, 7, 2})); }),
               "name a size before it, which is apart from none, and from which no other one is");
  }
}

TEST(PackageArguments, AreCheckedAgainstWhatWasDeclared) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x, const Tensor& y) { return add(x, y); };
  package(folder / "f", fn,
          for_this_processor("f", {{.name = "batch", .dims = {{0, 0}, {1, 0}}, .least = 2, .most = 8, .step = 3}}),
          values(1, {5, 4}), values(2, {5, 4}));
  const auto opened = Package::open(folder / "f");
  const auto refusal = [&](std::vector<Tensor> arguments) { return usage_error_of([&] { opened->run(arguments); }); };
  EXPECT_HAS(refusal({values(1, {5, 4})}), "1 arguments are given, the package takes 2");
  EXPECT_HAS(refusal({values(1, {5, 4}), values(1, {5, 4}, DType::bf16)}), "argument 1 is bf16, the package takes f32");
  EXPECT_HAS(refusal({values(1, {5}), values(1, {5, 4})}), "argument 0 is [5], the package takes 2 dims");
  EXPECT_HAS(refusal({values(1, {5, 4}), values(1, {5, 3})}), "argument 1, dim 1 is 3, and must be 4");
  EXPECT_HAS(refusal({values(1, {9, 4}), values(1, {9, 4})}),
             "argument 0, dim 0 is 9, and 'batch' is from 2 to 8 in steps of 3");
  EXPECT_HAS(refusal({values(1, {4, 4}), values(1, {4, 4})}), "'batch' is from 2 to 8 in steps of 3");
  EXPECT_HAS(refusal({values(1, {5, 4}), values(1, {8, 4})}),
             "argument 1, dim 0 is 8, and argument 0, dim 0 is 5; both are 'batch'");
  expect_same_bits(opened->run({{values(1, {8, 4}), values(2, {8, 4})}})[0], fn(values(1, {8, 4}), values(2, {8, 4})));
}

TEST(PackageArguments, ErrorsOfOpsAreThoseOfTheFunction) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x, const Tensor& y) { return floordiv(x, y); };
  package(folder / "f", fn, for_this_processor("f"), Tensor::of<int64_t>({7, 8}), Tensor::of<int64_t>({2, 3}));
  const auto opened = Package::open(folder / "f");
  EXPECT_HAS(usage_error_of([&] { opened->run({{Tensor::of<int64_t>({7, 8}), Tensor::of<int64_t>({2, 0})}}); }),
             "ZeroDivisionError");
  expect_same_bits(opened->run({{Tensor::of<int64_t>({9, -8}), Tensor::of<int64_t>({2, 3})}})[0],
                   Tensor::of<int64_t>({4, -3}));
}

}  // namespace
}  // namespace tutti
