#include "tutti/nn/state_dict.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/model_file.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
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
  EXPECT_EQ(names, (std::vector<std::string>{"model.first.weight", "model.first.bias", "model.second.weight",
                                             "model.second.bias", "model.steps"}));
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
  StateDict state = {{"first.weight", Tensor::of<float>({1, 2, 3})},
                     {"first.bias", Tensor::of<float>({1, 2, 3, 4})},
                     {"third.weight", Tensor::of<float>({1})}};
  EXPECT_EQ(message_of([&] { net.load_state_dict(state); }),
            "the state dict does not fit the module, which is unchanged:\n  missing: second.weight\n  missing: "
            "second.bias\n  missing: steps\n  unexpected: "
            "third.weight\n  first.weight: the source holds [3] f32 cpu, the module needs [4, 3] of floats");
  EXPECT_NE(
      message_of([&] { net.load_state_dict(state, {.strict = false}); }).find("first.weight: the source holds [3]"),
      std::string::npos);
  EXPECT_EQ(values(net.first->weight), before);
  state[0].second = net.first->weight.master();
  const LoadReport report = net.load_state_dict(state, {.strict = false});
  EXPECT_EQ(report.missing.size(), 3u);
  EXPECT_EQ(report.unexpected, (std::vector<std::string>{"third.weight"}));
  EXPECT_EQ(values(net.first->bias), (std::vector<float>{1, 2, 3, 4}));
  state.push_back(state[1]);
  EXPECT_EQ(message_of([&] { net.load_state_dict(state); }), "the state dict holds 'first.bias' twice");
  EXPECT_EQ(message_of([&] { net.load_state_dict({{"steps", Tensor()}}); }),
            "the state dict holds an undefined tensor for 'steps'");
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
  EXPECT_NE(message_of([&] {
              pair.load_state_dict({{"count", Tensor::of<float>({1.5, 2.7})}}, {.strict = false});
            }).find("the module needs [2] of integers"),
            std::string::npos);
}

// A tied parameter has several names, and a source may use any of them, or several with equal values.
struct TiedNet final : Module {
  TiedNet() { register_alias("head.weight", first->weight); }
  Child<Linear> first{this, "first", 3, 4};
  Parameter again = register_parameter("again", first->weight);
  struct Table : Module {
    Table() { ignore_on_load(".angles"); }
  };
  Child<Table> table{this, "table"};
};

TEST(StateDict, ATiedParameterIsTakenUnderAnyOfItsNames) {
  const tutti::testing::TemporaryFolder folder;
  const std::string path = folder / "net.safetensors";
  const std::vector<std::string> names = {"again", "head.weight",
                                          "first.weight"};  // in the order in which the module has them
  TiedNet from;
  initialize(from);
  const Tensor weight = clone(from.again.master()), bias = from.first->bias.master();
  EXPECT_EQ(from.named_parameters()[0].name, names[0]);
  ASSERT_EQ(from.parameter_aliases().size(), 2u);
  Tensor other = clone(weight);
  other.data<float>()[0] += 1;
  for (size_t subset = 0; subset < 8; ++subset) {
    for (int differs = -1; differs < 3; ++differs) {
      StateDict state{{"first.bias", bias}};
      std::vector<std::string> held;
      for (size_t n = 0; n < 3; ++n) {
        if ((subset >> n & 1) == 0) continue;
        state.emplace_back(names[n], differs == static_cast<int>(n) ? other : clone(weight));
        held.push_back(names[n]);
      }
      const bool is_held = differs >= 0 && (subset >> differs & 1) != 0;
      for (const bool is_file : {false, true}) {
        TiedNet to;
        if (is_file) write_safetensors(path, state);
        const std::string message = message_of([&] { is_file ? load(to, path) : to.load_state_dict(state); });
        const std::string what =
            fmt::format("names {}, other values under {}, from a file: {}", subset, differs, is_file);
        EXPECT_EQ(to.again.is_materialized(), message == "no error") << what;
        const bool is_refused = is_held && held.size() > 1;
        const std::string expected = held.empty() ? "missing: again"
                                     : is_refused ? ": the source holds other values than for " + held[0] +
                                                        ", and the module has one tensor for both"
                                                  : "no error";
        EXPECT_NE(message.find(expected), std::string::npos) << what << message;
        if (message == "no error") {
          EXPECT_EQ(values(to.again.master()), values(is_held ? other : weight)) << what;
        }
      }
    }
  }
  // Equal after conversion: the same numbers in a narrow and a wide float.
  const Tensor narrow = cast(weight, DType::bf16);
  TiedNet to;
  EXPECT_TRUE(
      to.load_state_dict({{"again", narrow}, {"head.weight", cast(narrow, DType::f32)}, {"first.bias", bias}}).empty());
}

TEST(StateDict, WhatAModuleComputesItselfIsPassedOver) {
  TiedNet net;
  initialize(net);
  StateDict state = net.state_dict();
  state.emplace_back("table.0.angles", Tensor::of<float>({1}));
  EXPECT_TRUE(net.load_state_dict(state).empty());
  state.emplace_back("other.angles", Tensor::of<float>({1}));
  state.emplace_back("table.angles.weight", Tensor::of<float>({1}));
  EXPECT_EQ(net.load_state_dict(state, {.strict = false}).unexpected,
            (std::vector<std::string>{"other.angles", "table.angles.weight"}));
}

TEST(StateDict, FoldersAndIndexesAreLoaded) {
  const tutti::testing::TemporaryFolder folder;
  Net from;
  initialize(from);
  write_safetensors_shards(folder / "model.safetensors", from.state_dict(), {}, 3);
  for (const char* place : {"", "model.safetensors", "model.safetensors.index.json"}) {
    Net to;
    EXPECT_TRUE(load(to, folder / place).empty());
    EXPECT_EQ(values(to.second->weight), values(from.second->weight)) << place;
  }
  const tutti::testing::TemporaryFolder empty;
  Net net;
  EXPECT_EQ(message_of([&] { load(net, empty.path()); }),
            "the folder " + empty.path() +
                " holds no model; expected one of: model.safetensors, model.safetensors.index.json, one .gguf file");
  save(from, empty / "model.safetensors");
  EXPECT_TRUE(load(net, empty.path()).empty());
  Linear other(3, 4);
  const std::string message = message_of([&] { load(other, folder.path()); });
  EXPECT_NE(message.find(folder / "model.safetensors.index.json" + " does not fit the module"), std::string::npos)
      << message;
}

TEST(StateDict, GgufFilesAreLoadedAndTheirBlocksDecoded) {
  const tutti::testing::TemporaryFolder folder;
  Linear from(64, 3), to(64, 3);
  initialize(from);
  const std::vector<ModelTensor> entries = {{.name = "weight", .sizes = {3, 64}, .blocks = BlockFormat::q8_0},
                                            {.name = "bias", .sizes = {3}, .dtype = DType::f16}};
  const auto writer = create_model_file(folder / "model.gguf", "gguf", entries);
  for (const auto& [name, tensor] : from.state_dict()) writer->write(name, tensor);
  writer->commit();
  EXPECT_TRUE(load(to, folder.path()).empty());
  EXPECT_EQ(values(to.weight), values(ModelFile(folder / "model.gguf").tensor("weight")));
  for (int64_t i = 0; i < 3 * 64; ++i) EXPECT_NEAR(values(to.weight)[i], values(from.weight)[i], 1e-3);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(values(to.bias)[i], to_float(to_float16(values(from.bias)[i])));
}

TEST(StateDict, BlocksThatAreNotDecodedAreToldBeforeAnythingIsCopied) {
  const tutti::testing::TemporaryFolder folder;
  Linear from(32, 1), to(32, 1);
  initialize(from);
  initialize(to);
  const std::vector<float> before = values(to.bias);
  const auto writer = create_model_file(
      folder / "a.gguf", "gguf",
      {{.name = "bias", .sizes = {1}}, {.name = "weight", .sizes = {1, 32}, .blocks = BlockFormat::iq4_nl}});
  writer->write("bias", Tensor::of<float>({100}));
  writer->write_bytes("weight", std::vector<std::byte>(18));
  writer->commit();
  EXPECT_EQ(
      message_of([&] { load(to, folder / "a.gguf"); }),
      folder / "a.gguf" +
          " does not fit the module, which is unchanged:\n  weight: the source holds [1, 32] IQ4_NL, which is not "
          "decoded");
  EXPECT_EQ(values(to.bias), before);
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
