// Layers whose weights stay quantized, divided over ranks: the bits of one rank, of which each holds its part only.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/block_format.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/linear_operand.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/quantized_linear.h"
#include "tutti/parallel/distribute_module.h"
#include "tutti/parallel/tensor_parallel.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kVocabulary = 37, kDim = 256;

// A table, two layers, and the table again as the head.
struct Layers final : nn::Module {
  explicit Layers(BlockFormat format, int64_t hidden, DType dtype = DType::f32)
      : up(this, "up", kDim, hidden, nn::LinearOptions{.bias = false}), down(this, "down", hidden, kDim) {
    if (dtype != DType::f32) to(dtype);
    uint64_t seed = 3;
    for (const nn::Parameter& p : {embed->weight, up->weight, down->weight})
      p.freeze(quantized::sample_blocks(++seed, format, p.sizes()[0], p.sizes()[1]), format);
    down->bias.freeze(facets::sample_tensor(9, {kDim}));
  }
  Tensor forward(const Tensor& ids) const {
    const Tensor hidden = up(embed(ids));
    return nn::DenseOperand(embed->weight).product(down(mul(hidden, hidden)), DType::f32);
  }
  nn::Child<nn::Embedding> embed{this, "embed", kVocabulary, kDim};
  nn::Child<nn::Linear> up, down;
};

ParallelPlan plan() { return {{"embed", RowwiseParallel{}}, {"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}}; }

Tensor ids_of(int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 11) % kVocabulary;
  return Tensor::of(ids);
}
Tensor replicated(const Tensor& t, const dist::Mesh& mesh) {
  return dist::distribute_tensor(t, mesh, {}, {.src_data_rank = -1});
}
int64_t held_bytes(const nn::Module& module) {
  int64_t sum = 0;
  for (const nn::NamedParameter& p : module.named_parameters()) {
    const Tensor held = p.parameter.holds_blocks() ? p.parameter.blocks() : p.parameter.master();
    sum += (dist::is_dtensor(held) ? dist::to_local(held) : held).nbytes();
  }
  return sum;
}

struct Case {
  int ranks;
  bool compiles;
  DType dtype;
};
class QuantizedRanks : public testing::TestWithParam<Case> {};

// Rows of 16 to 36 blocks: some numbers of ranks cut them at borders of the tree, others between, or inside a block.
TEST_P(QuantizedRanks, HaveTheBitsOfOneAndTheirPartsOfTheBytes) {
  const Case& c = GetParam();
  for (const BlockFormat format : quantized::block_formats()) {
    for (const int64_t blocks : {16, 17, 36}) {
      const NoGradScope no_grad;
      const int64_t hidden = blocks * row_of(format).elements;
      const Layers whole(format, hidden, c.dtype);
      std::vector<int64_t> bytes(static_cast<size_t>(c.ranks));
      comm::run_ranks(c.ranks, [&](comm::ProcessGroup& group) {
        const NoGradScope also_here;
        const dist::Mesh mesh = dist::init_device_mesh("cpu", {c.ranks});
        Layers divided(format, hidden, c.dtype);
        parallelize_module(divided, mesh, plan());
        std::function<Tensor(const Tensor&)> f = [&](const Tensor& ids) { return nn::call(divided, ids); };
        if (c.compiles) f = compile(f, {.name = "divided"});
        for (const int64_t rows : {1, 5, 0, 3, 1})
          expect_same_bits(dist::full_tensor(f(replicated(ids_of(rows), mesh))), whole.forward(ids_of(rows)),
                           fmt::format("{} {} blocks, {} rows", name_of(format), blocks, rows));
        bytes[static_cast<size_t>(group.rank())] = held_bytes(divided);
      });
      // Every rank has the bias; the others are divided, but for a row of the table.
      const int64_t bias = kDim * 4, shared = held_bytes(whole) - bias, row = whole.embed->weight.blocks().extents()[1];
      EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}), shared + c.ranks * bias);
      for (const int64_t held : bytes)
        EXPECT_LE(held, shared / c.ranks + bias + row + whole.up->weight.blocks().extents()[1] +
                            whole.down->weight.blocks().extents()[1])
            << name_of(format) << " " << blocks;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, QuantizedRanks,
                         testing::Values(Case{1, false, DType::f32}, Case{2, false, DType::f32},
                                         Case{3, false, DType::f32}, Case{4, false, DType::f32},
                                         Case{2, true, DType::f32}, Case{4, true, DType::f32},
                                         Case{2, false, DType::bf16}, Case{4, true, DType::bf16}),
                         [](const testing::TestParamInfo<Case>& info) {
                           return fmt::format("Tp{}{}{}", info.param.ranks, info.param.compiles ? "Compiled" : "Eager",
                                              info.param.dtype == DType::f32 ? "" : "InBf16");
                         });

// Blocks of a row are cut where the tree of the product has borders and every rank gets as many, else rows are.
TEST(QuantizedRanks, CutRowsOnBordersOfTheTreeOnly) {
  struct Row {
    int64_t blocks;
    int ranks, dim;
  };
  for (const auto& [blocks, ranks, dim] :
       {Row{8, 2, 0}, Row{16, 2, 1}, Row{17, 2, 0}, Row{18, 2, 1}, Row{18, 4, 0}, Row{36, 4, 1}, Row{36, 3, 0}}) {
    comm::run_ranks(ranks, [&, blocks = blocks, ranks = ranks, dim = dim](comm::ProcessGroup&) {
      Layers layers(BlockFormat::q5_0, blocks * 32);
      parallelize_module(layers, dist::init_device_mesh("cpu", {ranks}), plan());
      EXPECT_EQ(dist::placements_of(layers.down->weight.blocks())[0], dist::shard(dim)) << blocks << " over " << ranks;
      EXPECT_EQ(dist::placements_of(layers.up->weight.blocks())[0], dist::shard(0));
    });
  }
}

// The parts are where the whole is: nothing is copied out of the pages of a file.
TEST(QuantizedRanks, ReadTheirPartsInTheMemoryOfTheWhole) {
  const Tensor blocks = quantized::sample_blocks(3, BlockFormat::q8_0, kDim, 512),
               bias = facets::sample_tensor(4, {kDim});
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    nn::Linear down(512, kDim);
    down.weight.freeze(blocks, BlockFormat::q8_0);
    down.bias.freeze(bias);
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {2});
    parallelize_module(down, mesh, RowwiseParallel{});
    const Tensor part = dist::to_local(down.weight.blocks());
    EXPECT_EQ(part.extents(), (Extents{kDim, 8 * 34}));
    EXPECT_EQ(part.raw_data(), static_cast<std::byte*>(blocks.raw_data()) + group.rank() * 8 * 34);
    EXPECT_EQ(dist::to_local(down.bias.master()).raw_data(), bias.raw_data());
    EXPECT_TRUE(down.weight.is_frozen() && down.bias.is_frozen());
    EXPECT_EQ(message_of([&] { down.weight.freeze(blocks, BlockFormat::q8_0); }),
              "parameter 'weight' is divided over ranks, and [256, 544] u8 cpu is whole; freeze the parameters of the "
              "model first, and divide it then");
    EXPECT_EQ(
        message_of([&] { down.bias.assign(bias); }),
        "parameter 'bias' is frozen to parts of values that are not its own; build the model anew to load others");
  });
}

// As any distributed tensors: without a plan, in any placements, the dispatcher finds a way with the same bits.
TEST(QuantizedRanks, HaveTheseBitsInAnyPlacements) {
  const Tensor x = facets::sample_tensor(1, {5, 576}), blocks = quantized::sample_blocks(2, BlockFormat::q4_1, 11, 576);
  const Tensor expected = quantized_linear(x, blocks, BlockFormat::q4_1);
  const std::vector<Placement> placements = {dist::replicate(), dist::shard(0), dist::shard(1)};
  for (const int ranks : {2, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup&) {
      const dist::Mesh mesh = dist::init_device_mesh("cpu", {ranks});
      for (const Placement& of_x : placements)
        for (const Placement& of_w : placements) {
          const auto placed = [&](const Tensor& t, const Placement& p) {
            return dist::distribute_tensor(t, mesh, {p}, {.src_data_rank = -1});
          };
          expect_same_bits(
              dist::full_tensor(quantized_linear(placed(x, of_x), placed(blocks, of_w), BlockFormat::q4_1)), expected,
              to_string(of_x) + " " + to_string(of_w));
        }
    });
  }
}

}  // namespace
}  // namespace tutti::parallel
