// Files whose layers hold the weights of all experts in two tensors.
#include "tutti/models/stacked_experts.h"

#include <gtest/gtest.h>

#include "tests/models/support/family_cases.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/models/decoder.h"
#include "tutti/models/published_model.h"
#include "tutti/nn/state_dict.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"

namespace tutti::models {
namespace {

using ::tutti::testing::TemporaryFolder;

// transformers 5 holds the experts of any mixture so, and writes them one by one for most families.
TEST(StackedExperts, AreReadOfAnyFamily) {
  const std::filesystem::path source = families_folder() / "qwen3_moe";
  const PublishedModel model(source);
  Decoder one(model.config(), kFamilyPositions), other(model.config(), kFamilyPositions);
  model.load(one);
  const TemporaryFolder work;
  std::vector<std::pair<std::string, Tensor>> tensors;
  Tensor gates, down;
  for (const auto& [name, tensor] : one.state_dict()) {
    const std::string layer = name.substr(0, name.rfind('.'));
    if (name.ends_with("expert_bias")) continue;
    if (!layer.ends_with(".experts")) tensors.emplace_back(name, tensor);
    else if (name.ends_with(".w1")) gates = tensor;
    else if (name.ends_with(".w2")) tensors.emplace_back(layer + ".down_proj", tensor);
    else tensors.emplace_back(layer + ".gate_up_proj", cat({gates, tensor}, 1));
  }
  write_safetensors(work / "model.safetensors", tensors, {{"format", "pt"}});
  std::filesystem::copy_file(source / "config.json", work / "config.json");
  PublishedModel(work.path()).load(other);
  const TokenBatch batch = batch_in(SafetensorsFile((source / "expected.safetensors").string()));
  EXPECT_EQ(difference(other.forward(batch), one.forward(batch)), 0);
}

TEST(StackedExperts, SayWhatIsWrongWithThem) {
  const TemporaryFolder work;
  const auto told = [&](const std::vector<std::pair<std::string, Tensor>>& tensors) {
    write_safetensors(work / "model.safetensors", tensors, {{"format", "pt"}});
    return message_of([&] { split_stacked_experts(ModelFile(work / "model.safetensors")); });
  };
  EXPECT_NE(told({{"a.experts.gate_up_proj", zeros({2, 3, 4})}})
                .find("a.experts.gate_up_proj is [2, 3, 4] f32; expected the gates and then the other halves of all "
                      "experts, [experts, 2 features, dim]"),
            std::string::npos);
  EXPECT_NE(told({{"a.experts.down_proj", zeros({2, 4, 3})}, {"a.experts.w2", zeros({2, 4, 3})}})
                .find("are one tensor, a.experts.w2, under two names"),
            std::string::npos);
  EXPECT_EQ(told({{"a.experts.gate_up_proj", zeros({2, 6, 4})}, {"b", zeros({1})}}), "no error");
}

}  // namespace
}  // namespace tutti::models
