#include "tutti/nn/state_dict.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/safetensors.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/cast.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

struct Net final : Module {
  Child<Linear> first{this, "first", 3, 4}, second{this, "second", 4, 2};
  Buffer steps = register_buffer("steps", Tensor::of<float>({0}));
  Buffer table = register_buffer("table", [] { return Tensor::of<float>({1, 2}); });
};

std::vector<float> values(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

TEST(StateDict, HoldsParametersAndPersistentBuffersByName) {
  Net net;
  initialize(net);
  std::vector<std::string> names;
  for (const auto& [name, value] : net.state_dict("model.")) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"model.first.weight", "model.first.bias", "model.second.weight", "model.second.bias", "model.steps"}));
}

TEST(StateDict, LoadsIntoAModuleWithoutMemory) {
  Net from, to;
  initialize(from);
  from.steps.use().data<float>()[0] = 7;
  EXPECT_TRUE(to.load_state_dict(from.state_dict()).empty());
  EXPECT_EQ(values(to.first->weight), values(from.first->weight));
  EXPECT_EQ(to.steps.use().item(), 7.0);
}

// Everything that is wrong is told at once, and nothing is copied.
TEST(StateDict, ReportsEveryNameThatDoesNotFit) {
  Net net;
  initialize(net);
  const std::vector<float> before = values(net.first->weight);
  StateDict state = {{"first.weight", Tensor::of<float>({1, 2, 3})}, {"first.bias", Tensor::of<float>({1, 2, 3, 4})}, {"third.weight", Tensor::of<float>({1})}};
  EXPECT_EQ(message_of([&] { net.load_state_dict(state); }),
            "the state dict does not fit the module, which is unchanged:\n  missing: second.weight\n  missing: second.bias\n  missing: steps\n  unexpected: "
            "third.weight\n  first.weight: the source holds [3] f32 cpu, the module needs [4, 3] of floats");
  EXPECT_NE(message_of([&] { net.load_state_dict(state, {.strict = false}); }).find("first.weight: the source holds [3]"), std::string::npos);
  EXPECT_EQ(values(net.first->weight), before);
  state[0].second = net.first->weight.master();
  const LoadReport report = net.load_state_dict(state, {.strict = false});
  EXPECT_EQ(report.missing.size(), 3u);
  EXPECT_EQ(report.unexpected, (std::vector<std::string>{"third.weight"}));
  EXPECT_EQ(values(net.first->bias), (std::vector<float>{1, 2, 3, 4}));
  state.push_back(state[1]);
  EXPECT_EQ(message_of([&] { net.load_state_dict(state); }), "the state dict holds 'first.bias' twice");
  EXPECT_EQ(message_of([&] { net.load_state_dict({{"steps", Tensor()}}); }), "the state dict holds an undefined tensor for 'steps'");
}

TEST(StateDict, MayExchangeTwoParametersOfTheModuleItLoadsInto) {
  struct Pair final : Module {
    Parameter p = register_parameter("p", {1}, Init::zeros()), q = register_parameter("q", {1}, Init::ones());
    Buffer count = register_buffer("count", Tensor::of<int64_t>({1, 2}));
  } pair;
  initialize(pair);
  pair.load_state_dict({{"p", pair.q.master()}, {"q", pair.p.master()}}, {.strict = false});
  EXPECT_EQ(pair.p.master().item(), 1.0);
  EXPECT_EQ(pair.q.master().item(), 0.0);
  EXPECT_NE(message_of([&] { pair.load_state_dict({{"count", Tensor::of<float>({1.5, 2.7})}}, {.strict = false}); }).find("the module needs [2] of integers"), std::string::npos);
}

TEST(StateDict, SafetensorsAreWrittenAndLoadedAgainInAnyFloat) {
  const tutti::testing::TemporaryFolder folder;
  const std::string path = folder / "net.safetensors";
  Net from, to;
  initialize(from);
  save(from, path);
  load(to, path);
  EXPECT_EQ(values(to.second->weight), values(from.second->weight));
  // Published weights are often bf16; masters are f32.
  StateDict narrow = from.state_dict();
  for (auto& [name, value] : narrow) value = cast(value, DType::bf16);
  write_safetensors(path, narrow);
  load(to, path);
  EXPECT_EQ(values(to.second->weight), values(cast(cast(from.second->weight.master(), DType::bf16), DType::f32)));
}

TEST(StateDict, AFileThatDoesNotFitIsNamed) {
  const tutti::testing::TemporaryFolder folder;
  const std::string path = folder / "net.safetensors";
  Linear other(3, 4);
  initialize(other);
  save(other, path);
  Net net;
  const std::string message = message_of([&] { load(net, path); });
  EXPECT_NE(message.find(path + " does not fit the module, which is unchanged:"), std::string::npos) << message;
  EXPECT_FALSE(net.first->weight.is_materialized());
  EXPECT_THROW(load(net, path + ".missing"), EnvironmentError);
}

}  // namespace
}  // namespace tutti::nn
