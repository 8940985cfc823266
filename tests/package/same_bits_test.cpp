// What a package gives is what the function gives, bit for bit.
#include <gtest/gtest.h>

#include "tests/package/support/packaged_cases.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rope.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using deploy::Package;
using package_test::Block;
using package_test::for_this_processor;
using package_test::Mlp;
using package_test::values;

// Packages `fn` for arguments like `args` and compares a call with them.
template <class Fn, class... Args>
void expect_same_bits_packaged(const std::string& name, const Fn& fn, const Args&... args) {
  const testing::TemporaryFolder folder;
  package(folder / name, fn, for_this_processor(name), args...);
  const std::vector<Tensor> results = Package::open(folder / name)->run({{args...}});
  const std::vector<Tensor> expected = fn(args...);
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i)
    expect_same_bits(results[i], expected[i], fmt::format("{}, result {}", name, i));
}

TEST(Package, AnMlpRunsWithBatchesThatWereNeverTracedByTheFunctionsUser) {
  const testing::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Mlp mlp(dtype);
    const PackageReport report = package(
        folder / "mlp", mlp, for_this_processor("mlp", {{.name = "batch", .dims = {{0, 0}}, .least = 1, .most = 9}}),
        values(4, {4, 16}, dtype));
    EXPECT_EQ(report.combinations, 9);
    const auto opened = Package::open(folder / "mlp");
    for (int64_t batch = 1; batch <= 9; ++batch) {
      const Tensor x = values(5, {batch, 16}, dtype);
      expect_same_bits(opened->run({{x}})[0], mlp(x), fmt::format("batch {} of {}", batch, name_of(dtype)));
    }
  }
}

TEST(Package, ATransformerBlockRunsWithAnyBatchAndLength) {
  const testing::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Block block(dtype);
    const PackagedSize batch{.name = "batch", .dims = {{0, 0}}, .least = 1, .most = 3},
        tokens{.name = "tokens", .dims = {{0, -2}}, .least = 1, .most = 33, .step = 4};
    const PackageReport report =
        package(folder / "block", block, for_this_processor("block", {batch, tokens}), values(4, {2, 5, 16}, dtype));
    EXPECT_EQ(report.combinations, 27);
    const auto opened = Package::open(folder / "block");
    for (const int64_t b : {1, 2, 3}) {
      for (const int64_t t : {1, 5, 17, 33}) {
        const Tensor x = values(7, {b, t, 16}, dtype);
        expect_same_bits(opened->run({{x}})[0], block(x), fmt::format("[{}, {}, 16] of {}", b, t, name_of(dtype)));
      }
    }
  }
}

TEST(Package, ACompiledFunctionIsPackagedAsTheFunctionIs) {
  const testing::TemporaryFolder folder;
  const Mlp mlp;
  const auto compiled = compile(mlp);
  const Tensor x = values(5, {3, 16});
  package(folder / "f", compiled, for_this_processor("f"), x);
  expect_same_bits(Package::open(folder / "f")->run({{x}})[0], compiled(x));
}

TEST(Package, ResultsMayBeViewsArgumentsAndConstants) {
  const Tensor held = values(1, {3, 4});
  const auto fn = [&](const Tensor& x, const Tensor& y) {
    const Tensor z = add(x, y);
    return std::vector<Tensor>{transpose(z, 0, 1), slice(z, 0, 1, 3), y, held, slice(x, 1, 1, 2), z};
  };
  expect_same_bits_packaged("views", fn, values(2, {3, 4}), values(3, {3, 4}));
}

TEST(Package, ReductionsScansIndicesAndSorting) {
  const Tensor table = values(1, {11, 6});
  const auto fn = [&](const Tensor& ids, const Tensor& x) {
    const Tensor rows = embedding(table, ids);
    return std::vector<Tensor>{
        mean(rows, {.dims = {1}}),         softmax(x, 0),        cumsum(x, 1),          sum(x), sort(x, 1).values,
        gather(x, 1, slice(ids, 1, 0, 2)), cat({x, tanh(x)}, 0), amax(x, {.dims = {0}})};
  };
  expect_same_bits_packaged("indices", fn, Tensor::of<int64_t>({1, 0, 3, 2, 3, 1}, {2, 3}), values(2, {2, 5}));
}

TEST(Package, RotaryPositionsOfAnyNumberOfTokens) {
  const testing::TemporaryFolder folder;
  const RopeTable table = rope_table(64, 8, 10000.0);
  const auto fn = [&](const Tensor& x) {
    const SymInt tokens = x.size(0);
    return rope(x, slice(table.cos, 0, 0, tokens), slice(table.sin, 0, 0, tokens));
  };
  package(folder / "f", fn, for_this_processor("f", {{.name = "tokens", .dims = {{0, 0}}, .least = 0, .most = 64}}),
          values(1, {5, 2, 8}));
  const auto opened = Package::open(folder / "f");
  for (const int64_t tokens : {0, 1, 13, 64}) {
    const Tensor x = values(2, {tokens, 2, 8});
    expect_same_bits(opened->run({{x}})[0], fn(x), fmt::format("{} tokens", tokens));
  }
}

TEST(Package, WhatTheFunctionWritesOfItsOwnMayBeWritten) {
  const auto fn = [](const Tensor& x) {
    const Tensor y = exp(x);
    add_(slice(y, 0, 0, 2), x[2]);
    mul_(y, y);
    return std::vector<Tensor>{matmul(y, transpose(y, 0, 1)), y};
  };
  expect_same_bits_packaged("writes", fn, values(1, {5, 7}));
}

TEST(Package, EmptyArgumentsAndArgumentsWithoutDims) {
  const auto fn = [](const Tensor& x, const Tensor& s) {
    return std::vector<Tensor>{mul(x, s), sum(x, {.dims = {0}}), matmul(transpose(x, 0, 1), x)};
  };
  expect_same_bits_packaged("empty", fn, Tensor::empty({0, 4}), Tensor::scalar(2.5f));
  expect_same_bits_packaged("one", fn, values(1, {1, 4}), Tensor::scalar(2.5f));
}

TEST(Package, EqualConstantsAreKeptOnce) {
  const testing::TemporaryFolder folder;
  const Tensor a = values(1, {64, 64}), b = values(1, {64, 64}), c = values(2, {64, 64});
  const auto fn = [&](const Tensor& x) { return add(add(matmul(x, a), matmul(x, b)), matmul(x, c)); };
  const PackageReport report = package(folder / "f", fn, for_this_processor("f"), values(3, {2, 64}));
  EXPECT_EQ(report.constant_nbytes_before, 3 * 64 * 64 * 4);
  EXPECT_EQ(report.constant_nbytes, 2 * 64 * 64 * 4);
  const Tensor x = values(4, {2, 64});
  expect_same_bits(Package::open(folder / "f")->run({{x}})[0], fn(x));
}

TEST(Package, WeightsThatRequireGradAreConstantsToo) {
  const testing::TemporaryFolder folder;
  const Mlp mlp;
  requires_grad_(mlp.w);
  package(folder / "f", mlp, for_this_processor("f"), values(4, {4, 16}));
  const Tensor x = values(5, {4, 16}), result = deploy::Package::open(folder / "f")->run({{x}})[0];
  EXPECT_FALSE(requires_grad(result));
  expect_same_bits(result, detach(mlp(x)));
}

TEST(Package, NoPageIsEverWritableAndExecutable) {
  const testing::TemporaryFolder folder;
  const Mlp mlp;
  package(folder / "f", mlp, for_this_processor("f"), values(4, {4, 16}));
  const auto opened = Package::open(folder / "f");
  opened->run({{values(5, {4, 16})}});
  const std::string maps = package_test::read_file("/proc/self/maps");
  EXPECT_NE(maps.find("r-xp"), std::string::npos);
  EXPECT_EQ(maps.find("rwx"), std::string::npos) << maps;
}

TEST(Package, ArgumentsMayLieAnyhow) {
  const testing::TemporaryFolder folder;
  const Mlp mlp;
  package(folder / "f", mlp, for_this_processor("f"), values(4, {4, 16}));
  const Tensor across = transpose(values(5, {16, 4}), 0, 1), inside = slice(values(6, {9, 16}), 0, 3, 7);
  const auto opened = Package::open(folder / "f");
  expect_same_bits(opened->run({{across}})[0], mlp(across));
  expect_same_bits(opened->run({{inside}})[0], mlp(inside));
}

TEST(Package, SizesThatEnterConstantsOfTheKernelsAreKeptPerSize) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x) { return mul(sum(x, {.dims = {0}}), 1.0 / static_cast<double>(x.extent(0))); };
  package(folder / "f", fn, for_this_processor("f", {{.name = "n", .dims = {{0, 0}}, .least = 1, .most = 40}}),
          values(1, {3, 5}));
  const auto opened = Package::open(folder / "f");
  for (const int64_t n : {1, 3, 7, 40}) {
    const Tensor x = values(2, {n, 5});
    expect_same_bits(opened->run({{x}})[0], fn(x), fmt::format("{} rows", n));
  }
}

}  // namespace
}  // namespace tutti
