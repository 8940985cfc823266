#include "tutti/nn/published_experts.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/safetensors.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/moe.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

struct Model : Module {
  Child<MoE> mlp{this, "mlp", MoEOptions{.dim = 4, .hidden_dim = 3, .router = {.num_experts = 12, .top_k = 2}}};
};

TEST(PublishedExperts, AreNamedOneByOne) {
  const auto place = expert_name_in("model.layers.0.mlp.experts.11.down_proj.weight");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->grouped, "model.layers.0.mlp.experts.w2");
  EXPECT_EQ(place->expert, 11);
  for (const char* other : {"model.layers.0.mlp.experts.w2", "model.layers.0.mlp.experts.1.down_proj.bias",
                            "model.layers.0.mlp.gate.weight", "mlp.experts.-1.up_proj.weight"})
    EXPECT_FALSE(expert_name_in(other)) << other;
  EXPECT_EQ(published_expert_name("model.layers.0.mlp.experts.w2", 11),
            "model.layers.0.mlp.experts.11.down_proj.weight");
  EXPECT_EQ(message_of([] { published_expert_name("model.layers.0.mlp.gate.weight", 11); }),
            "'model.layers.0.mlp.gate.weight' is no tensor of all experts; expected a name that ends with "
            ".experts.w1, .w2 or .w3");
}

TEST(PublishedExperts, ComeBackFromAFile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "published.safetensors";
  for (const float bias : {0.0f, 0.5f}) {
    Model from, to;
    initialize(from);
    from.mlp->gate->expert_bias.use().data<float>()[3] = bias;
    to.mlp->gate->expert_bias.use().data<float>()[2] = 7;
    save_published(from.state_dict(), path);
    const SafetensorsFile file(path);
    EXPECT_TRUE(file.contains("mlp.experts.11.up_proj.weight"));
    EXPECT_EQ(file.entry("mlp.experts.0.gate_proj.weight").shape, (Extents{3, 4}));
    EXPECT_EQ(file.contains("mlp.gate.expert_bias"), bias != 0) << "published models have none";
    EXPECT_TRUE(load(to, path).empty());
    const StateDict a = from.state_dict(), b = to.state_dict();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) expect_same_bits(a[i].second, b[i].second, a[i].first);
  }
}

// A list of gated layers has the names of published experts, and stays a list.
TEST(PublishedExperts, AListOfThatNameStaysAList) {
  struct Gated final : Module {
    Child<Linear> gate_proj{this, "gate_proj", 2, 3}, up_proj{this, "up_proj", 2, 3},
        down_proj{this, "down_proj", 3, 2};
  };
  struct Listed final : Module {
    Listed() {
      for (int i = 0; i < 2; ++i) experts->add();
    }
    Child<ModuleList<Gated>> experts{this, "experts"};
  };
  const testing::TemporaryFolder folder;
  const std::string path = folder / "listed.safetensors";
  Listed from, to;
  seed_all(1);
  initialize(from);
  save(from, path);
  EXPECT_TRUE(load(to, path).empty());
  const StateDict a = from.state_dict(), b = to.state_dict();
  for (size_t i = 0; i < a.size(); ++i) expect_same_bits(a[i].second, b[i].second, a[i].first);
}

TEST(PublishedExperts, ThatAreNotWholeAreRefused) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "published.safetensors";
  Model model;
  initialize(model);
  const StateDict whole = published(model.state_dict());
  const auto refusal = [&](const auto& change) {
    StateDict changed;
    for (const auto& [name, tensor] : whole) change(changed, name, tensor);
    write_safetensors(path, changed);
    return message_of([&] { load(model, path); });
  };
  const std::string gap = refusal([](StateDict& to, const std::string& name, const Tensor& t) {
    if (name != "mlp.experts.4.up_proj.weight") to.emplace_back(name, t);
  });
  EXPECT_NE(
      gap.find("mlp.experts.w3 has tensors of 11 experts, and the last is that of expert 11; expected all from 0"),
      std::string::npos)
      << gap;
  const std::string fewer = refusal([](StateDict& to, const std::string& name, const Tensor& t) {
    if (name != "mlp.experts.11.up_proj.weight") to.emplace_back(name, t);
  });
  EXPECT_NE(fewer.find("mlp.experts.w3: the source holds 11 tensors such as mlp.experts.0.up_proj.weight [3, 4] "
                       "f32, the module needs [12, 3, 4] of floats"),
            std::string::npos)
      << fewer;
  const std::string twice = refusal([](StateDict& to, const std::string& name, const Tensor& t) {
    to.emplace_back(name, t);
    if (name == "mlp.experts.4.up_proj.weight") to.emplace_back("mlp.experts.04.up_proj.weight", t);
  });
  EXPECT_NE(twice.find("are one tensor, that of expert 4, under two names"), std::string::npos) << twice;
  const std::string odd = refusal([](StateDict& to, const std::string& name, const Tensor& t) {
    to.emplace_back(name, name == "mlp.experts.4.up_proj.weight" ? Tensor::of<float>({1}) : t);
  });
  EXPECT_NE(odd.find("mlp.experts.4.up_proj.weight is [1] f32, mlp.experts.0.up_proj.weight is [3, 4] f32; "
                     "expected equal sizes and dtypes"),
            std::string::npos)
      << odd;
}

}  // namespace
}  // namespace tutti::nn
