// The list of a decoder's parameters is that of the module.
#include "tutti/models/decoder_parameters.h"

#include <gtest/gtest.h>

#include "tests/models/support/family_cases.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"

namespace tutti::models {
namespace {

TEST(DecoderParameters, AreThoseOfTheModule) {
  for (const std::string& name : family_cases("config.json")) {
    const DecoderConfig config = read_published_config((families_folder() / name / "config.json").string());
    const Decoder model(config, 8);
    const std::vector<DecoderParameter> list = decoder_parameters(config);
    size_t i = 0;
    int64_t count = 0;
    for (const nn::NamedParameter& p : model.named_parameters()) {
      ASSERT_LT(i, list.size());
      EXPECT_EQ(list[i].name, p.name) << name;
      EXPECT_EQ(list[i].sizes, p.parameter.sizes()) << p.name;
      count += numel_of(list[i++].sizes);
    }
    EXPECT_EQ(i, list.size());
    EXPECT_EQ(count, parameter_count(config));
  }
}

}  // namespace
}  // namespace tutti::models
