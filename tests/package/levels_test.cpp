// Packages with all levels, run by the program in C on each that the processor has, and on an emulated processor
// without AVX-512: the same bits on all of them, and no kernel is missing.
#include <gtest/gtest.h>

#include "tests/package/support/c_program.h"
#include "tests/package/support/packaged_cases.h"
#include "tutti/autograd/backward.h"
#include "tutti/core/block_format.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/grouped_mm.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/int_mm.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/packed_linear.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/quantized_attention.h"
#include "tutti/ops/quantized_embedding.h"
#include "tutti/ops/quantized_grouped_mm.h"
#include "tutti/ops/quantized_linear.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scaled_linear.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/topk.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/weight_only_linear.h"

namespace tutti {
namespace {

using package_test::Block;
using package_test::pattern;
using package_test::values;

// fn(x), x [rows, ...], for every number of rows from 1 to 9. The program calls functions with state
// three times.
template <class Fn>
void expect_same_bits_on_all_levels(const std::string& name, const Fn& fn, const Extents& sizes, DType dtype,
                                    std::vector<PackagedState> state = {}) {
  const testing::TemporaryFolder folder;
  const bool has_state = !state.empty();
  PackageOptions options{.name = name,
                         .dynamic = {{.name = "rows", .dims = {{0, 0}}, .least = 1, .most = 9, .step = 4}},
                         .state = std::move(state),
                         .gradients = has_state};
  package(folder / name, fn, options, pattern(sizes, dtype));
  for (const int64_t rows : {1, 5, 9}) {
    Extents given = sizes;
    given[0] = rows;
    std::vector<Tensor> before;
    for (const PackagedState& s : options.state) before.push_back(clone(s.tensor));
    std::vector<Tensor> live;
    for (int call = 0; call < (has_state ? 3 : 1); ++call) live = {fn(pattern(given, dtype))};
    for (size_t i = 0; i < before.size(); ++i) copy_elements(options.state[i].tensor, before[i]);
    const auto expect_same = [&](const std::string& where, const std::string& before_program) {
      const package_test::Outcome outcome = package_test::run_command(fmt::format(
          "{}{}{} {} rows={}", package_test::kAlone, before_program, package_test::kProgram, folder / name, rows));
      EXPECT_EQ(outcome.status, 0) << outcome.text;
      EXPECT_NE(outcome.text.find(package_test::fnv(live[0])), std::string::npos)
          << name << " on " << where << ", " << rows << " rows:\n"
          << outcome.text;
    };
    for (const codegen::CpuTarget level : options.levels) {
      if (level <= codegen::cpu_target())
        expect_same(std::string(name_of(level)), fmt::format("TUTTI_CPU={} ", name_of(level)));
    }
    if (const std::string emulator = package_test::emulated(); !emulator.empty()) expect_same("Haswell", emulator);
  }
}

Tensor codes_of(uint64_t seed, const Extents& sizes, DType dtype) {
  return cast(mul(values(seed, sizes), dtype == DType::i8 ? 90.0 : 3.0), dtype);
}

// What the compiler has made for AVX2 says so to the loader, which ends a program before it runs.
TEST(PackageLevels, AProcessorBelowAllOfThemIsRefusedBeforeAnythingRuns) {
  const std::string emulator = package_test::emulated("Nehalem");
  if (emulator.empty()) GTEST_SKIP() << "qemu-user is not installed, or does not run what a sanitizer has built";
  const package_test::Outcome outcome = package_test::run_command(emulator + package_test::kProgram + " nothing");
  EXPECT_EQ(outcome.status, 127) << outcome.text;
  EXPECT_NE(outcome.text.find("CPU ISA level is lower than required"), std::string::npos) << outcome.text;
}

TEST(PackageLevels, QuantizedBlocksOfAllFormats) {
  for (const BlockFormat format : {BlockFormat::q4_0, BlockFormat::q4_1, BlockFormat::q5_0, BlockFormat::q5_1,
                                   BlockFormat::q8_0, BlockFormat::q4_k, BlockFormat::q5_k, BlockFormat::q6_k}) {
    const Tensor w = quantized::sample_blocks(1, format, 19, 256), v = quantized::sample_blocks(2, format, 1, 256);
    const Tensor ids = Tensor::of<int64_t>({3, 0, 18});
    const auto fn = [&](const Tensor& x) {
      const Tensor rows = sum(quantized_embedding(w, ids, format), {.dims = {0}});
      const Tensor y = tanh(quantized_linear(add(x, rows), w, format)), z = quantized_linear(x, v, format);
      return add(sum(y, {.dims = {1}, .keepdim = true}), z);
    };
    expect_same_bits_on_all_levels(std::string(name_of(format)), fn, {5, 256}, DType::f32);
  }
}

TEST(PackageLevels, CodesOf8And4Bits) {
  const Tensor scale = add(mul(values(1, {13}), values(1, {13})), 0.01);
  const ScaledWeight w8{codes_of(2, {13, 40}, DType::i8), scale, values(3, {13})},
      wf{codes_of(4, {13, 40}, DType::f8e4m3fn), scale, values(5, {13})};
  const CodedWeight w1{codes_of(6, {13, 40}, DType::i8), scale},
      w4{cast(mul(add(values(7, {13, 20}), 2.0), 60.0), DType::u8), add(mul(values(8, {13, 5}), 0.1), 0.5),
         values(9, {13, 5})};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto fn = [&](const Tensor& x) {
      const Tensor y = cast(scaled_linear(x, w8), DType::f32), z = cast(scaled_linear(x, wf), DType::f32),
                   u = cast(weight_only_linear(x, w1), DType::f32), v = cast(weight_only_linear(x, w4), DType::f32);
      return add(add(y, z), add(u, v));
    };
    expect_same_bits_on_all_levels("codes", fn, {5, 40}, dtype);
  }
}

TEST(PackageLevels, IntegersAndProductsOfOtherDtypes) {
  const Tensor w = codes_of(1, {37, 20}, DType::i8);
  expect_same_bits_on_all_levels("int_mm", [&](const Tensor& x) { return int_mm(x, w); }, {5, 37}, DType::i8);
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const Tensor v = values(2, {37, 50}, dtype), packed = pack_weight(values(3, {37, 50}, dtype));
    const Tensor u = values(4, {50, 3}, dtype);
    const auto product = [&](const Tensor& x) {
      const Tensor y = tanh(matmul(x, v));
      return add(matmul(y, u), sum(packed_linear(y, packed, 37), {.dims = {1}, .keepdim = true}));
    };
    expect_same_bits_on_all_levels("products", product, {5, 37}, dtype);
  }
}

TEST(PackageLevels, GroupedProductsSortingAndTopk) {
  const Tensor b = values(1, {3, 12, 10}), offsets = Tensor::of<int64_t>({0, 1, 1});
  const Tensor blocks = reshape(quantized::sample_blocks(2, BlockFormat::q4_1, 30, 32), {3, 10, 20});
  const auto fn = [&](const Tensor& x) {
    const Tensor y = grouped_mm(x, b, offsets), sorted = sort(y, 1, true).values;
    return add(sorted, sum(topk(x, 4).values, {.dims = {1}, .keepdim = true}));
  };
  expect_same_bits_on_all_levels("grouped", fn, {5, 12}, DType::f32);
  const auto quantized = [&](const Tensor& x) { return quantized_grouped_mm(x, blocks, offsets, BlockFormat::q4_1); };
  expect_same_bits_on_all_levels("experts", quantized, {5, 32}, DType::f32);
}

TEST(PackageLevels, ATrainingStepOfATransformerBlock) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Block block(dtype);
    const std::vector<Tensor> weights = {block.norm1, block.wq, block.wk, block.wv, block.wo, block.gate, block.down};
    for (const Tensor& w : weights) requires_grad_(w);
    std::vector<PackagedState> state;
    for (size_t i = 0; i < weights.size(); ++i) state.push_back({fmt::format("w{}", i), weights[i]});
    const auto step = [&](const Tensor& x) {
      const Tensor loss = sum(mul(block(x), block(x)));
      const Tensor outputs[] = {loss};
      const std::vector<Tensor> grads = grad(outputs, weights);
      const NoGradScope update;
      for (size_t i = 0; i < weights.size(); ++i) sub_(weights[i], mul(cast(grads[i], dtype), 1.0 / 1024));
      return detach(loss);
    };
    expect_same_bits_on_all_levels("step", step, {2, 5, 16}, dtype, state);
  }
}

}  // namespace
}  // namespace tutti
