// Layers whose weights are codes, divided over ranks: the bits of one rank, of which each holds its part only.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/coded_operand.h"
#include "tutti/nn/input_recorder.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/quantize.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/parallel/tensor_parallel.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

using nn::Quantization;

constexpr int64_t kWide = 296;  // more than a leaf of a contraction

struct Layers final : nn::Module {
  explicit Layers(std::optional<Quantization> kind = {}, DType dtype = DType::f32) {
    to(dtype);
    eval();
    if (!kind) return;
    const NoGradScope no_grad;
    seed_all(5);
    nn::initialize(*this);
    nn::InputRecorder inputs(*this);
    forward(facets::sample_tensor(2, {40, 64}));
    inputs.stop();
    nn::quantize_(*this, {.kind = *kind, .group = 8, .inputs = &inputs});
  }
  Tensor forward(const Tensor& x) const {
    const auto [left, right] = nn::multi_linear(x, gate, up);
    return beside(down(mul(left, right)));
  }
  nn::Child<nn::Linear> gate{this, "gate", 64, kWide}, up{this, "up", 64, kWide}, down{this, "down", kWide, 24},
      beside{this, "beside", 24, 8};
};

ParallelPlan plan() {
  const PrepareModuleInputOutput whole{.input = {.desired_input_layouts = {dist::replicate()}}, .output = {}};
  return {{"gate", ColwiseParallel{}}, {"up", ColwiseParallel{}}, {"down", RowwiseParallel{}}, {"beside", whole}};
}

Tensor replicated(const Tensor& t, const dist::Mesh& mesh) {
  return dist::distribute_tensor(t, mesh, {}, {.src_data_rank = -1});
}
int64_t held_bytes(const nn::Linear& layer) {
  const nn::WeightCodes codes = nn::coded_operand_of(layer)->codes();
  int64_t sum = 0;
  for (const nn::CodePart& part : nn::kCodeParts)
    if (const Tensor& value = codes.*part.tensor; value.defined()) sum += dist::to_local(value).nbytes();
  return sum;
}

struct Case {
  int ranks;
  bool compiles;
  DType dtype = DType::f32;
};
class CodedRanks : public ::testing::TestWithParam<Case> {};

TEST_P(CodedRanks, HaveTheBitsOfOneAndTheirPartsOfTheBytes) {
  const Case& c = GetParam();
  const tutti::testing::TemporaryFolder folder;
  for (const Quantization kind : nn::kQuantizations) {
    const NoGradScope no_grad;
    const Layers whole(kind, c.dtype);
    const std::string path = folder / fmt::format("{}.safetensors", name_of(kind));
    nn::save(whole, path);
    const auto x_of = [&](int64_t rows) { return facets::sample_tensor(7, {rows, 64}, c.dtype); };
    const int64_t all = nn::coded_operand_of(*whole.up)->nbytes();
    for (const bool is_loaded : {false, true}) {
      comm::run_ranks(c.ranks, [&](comm::ProcessGroup&) {
        const NoGradScope also_here;
        const dist::Mesh mesh = dist::init_device_mesh("cpu", {c.ranks});
        const auto divided =
            is_loaded ? std::make_unique<Layers>(std::nullopt, c.dtype) : std::make_unique<Layers>(kind, c.dtype);
        if (is_loaded) nn::load(*divided, path, {.freeze = true});
        parallelize_module(*divided, mesh, plan());
        std::function<Tensor(const Tensor&)> f = [&](const Tensor& x) { return nn::call(*divided, x); };
        if (c.compiles) f = compile(f, {.name = "divided"});
        for (const int64_t rows : {1, 5, 0, 3, 1})
          expect_same_bits(dist::full_tensor(f(replicated(x_of(rows), mesh))), whole.forward(x_of(rows)),
                           fmt::format("{}, {} rows", name_of(kind), rows));
        EXPECT_LE(held_bytes(*divided->up), all / c.ranks + all / kWide + 8) << name_of(kind);
        EXPECT_EQ(nn::coded_operand_of(*divided->up)->nbytes(), all);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, CodedRanks,
                         ::testing::Values(Case{1, false}, Case{2, false}, Case{3, false}, Case{4, true}, Case{2, true},
                                           Case{2, true, DType::bf16}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return fmt::format("Tp{}{}{}", info.param.ranks, info.param.compiles ? "Compiled" : "Eager",
                                              info.param.dtype == DType::f32 ? "" : "InBf16");
                         });

TEST(CodedRanks, AreDividedOnceAndTakeNoOtherCodesThen) {
  comm::run_ranks(2, [](comm::ProcessGroup&) {
    const NoGradScope no_grad;
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {2});
    Layers layers(Quantization::int8);
    const nn::StateDict before = layers.state_dict();
    parallelize_module(layers, mesh, plan());
    EXPECT_NE(message_of([&] { parallelize_module(layers, mesh, plan()); }).find("already"), std::string::npos);
    EXPECT_NE(message_of([&] { layers.load_state_dict(before); }).find("ranks do not divide it"), std::string::npos);
  });
}

// Weights of numbers that ranks divide take no codes: these are quantized, or loaded, first.
TEST(CodedRanks, DividedNumbersTakeNoCodes) {
  comm::run_ranks(2, [](comm::ProcessGroup&) {
    const NoGradScope no_grad;
    const dist::Mesh mesh = dist::init_device_mesh("cpu", {2});
    const Layers codes(Quantization::int8);
    Layers layers;
    parallelize_module(layers, mesh, {{"gate", ColwiseParallel{}}});
    EXPECT_NE(
        message_of([&] { layers.load_state_dict(codes.state_dict()); })
            .find("gate.weight: the source holds [296, 64] i8 cpu as codes (int8), and only linear layers compute "
                  "with codes"),
        std::string::npos);
    EXPECT_NE(message_of([&] {
                nn::quantize_(layers, {.filter = [](const auto&, const auto&) { return true; }});
              }).find("cannot be quantized"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace tutti::parallel
