#include "tutti/io/model_metadata.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace tutti {
namespace {

using Texts = std::vector<std::string>;

ModelMetadata sample() {
  ModelMetadata metadata("a.gguf");
  metadata.set("count", uint32_t{7});
  metadata.set("huge", ~uint64_t{0});
  metadata.set("rate", 0.5F);
  metadata.set("flag", true);
  metadata.set("name", "llama");
  metadata.set("heads", std::vector<int32_t>{4, 8});
  metadata.set("rates", std::vector<float>{0.5F, 2});
  metadata.set("flags", std::vector<bool>{true, false});
  metadata.set("tokens", Texts{"a", "b"});
  return metadata;
}

TEST(ModelMetadata, KeepsKeysInOrderWithTheirExactTypes) {
  const ModelMetadata metadata = sample();
  EXPECT_EQ(metadata.entries()[0].first, "count");
  EXPECT_EQ(metadata.entries()[8].first, "tokens");
  EXPECT_EQ(metadata.at("count").value().type(), MetadataType::u32);
  EXPECT_EQ(metadata.at("heads").value().type(), MetadataType::array);
  EXPECT_EQ(metadata.at("heads").value().element_type(), MetadataType::i32);
  EXPECT_EQ(metadata.at("tokens").value().size(), 2U);
  EXPECT_EQ(MetadataValue(int8_t{-1}).type(), MetadataType::i8);
  EXPECT_EQ(MetadataValue(uint8_t{1}).type(), MetadataType::u8);
  EXPECT_EQ(MetadataValue(int16_t{-1}).type(), MetadataType::i16);
  EXPECT_EQ(MetadataValue(uint16_t{1}).type(), MetadataType::u16);
  EXPECT_EQ(MetadataValue(int64_t{-1}).type(), MetadataType::i64);
  EXPECT_EQ(MetadataValue(0.5).type(), MetadataType::f64);
}

TEST(ModelMetadata, FieldsGiveTheirValues) {
  const ModelMetadata metadata = sample();
  EXPECT_EQ(metadata.at("count").whole(), 7);
  EXPECT_EQ(metadata.at("count").number(), 7.0);
  EXPECT_EQ(metadata.at("huge").number(), 18446744073709551616.0);
  EXPECT_EQ(metadata.at("rate").number(), 0.5);
  EXPECT_TRUE(metadata.at("flag").boolean());
  EXPECT_EQ(metadata.at("name").text(), "llama");
  EXPECT_EQ(metadata.at("heads").wholes(), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(metadata.at("heads").numbers(), (std::vector<double>{4, 8}));
  EXPECT_EQ(metadata.at("rates").numbers(), (std::vector<double>{0.5, 2}));
  EXPECT_EQ(metadata.at("flags").booleans(), (std::vector<bool>{true, false}));
  EXPECT_EQ(metadata.at("tokens").texts(), (Texts{"a", "b"}));
}

TEST(ModelMetadata, AKeyThatIsSetAgainKeepsItsPlace) {
  ModelMetadata metadata = sample();
  metadata.set("count", "seven");
  EXPECT_EQ(metadata.size(), 9U);
  EXPECT_EQ(metadata.entries()[0].second, MetadataValue("seven"));
  const ModelMetadata copy = metadata;
  metadata.set("count", uint8_t{1});
  EXPECT_EQ(copy.at("count").text(), "seven");
}

TEST(ModelMetadata, OtherTypesAreRefusedByFileAndKey) {
  const ModelMetadata metadata = sample();
  const auto refusal = [&](const char* key, auto read) { return message_of([&] { read(metadata.at(key)); }); };
  const auto whole = [](const MetadataField& f) { f.whole(0, 6); };
  EXPECT_EQ(refusal("count", whole), "'a.gguf': key 'count' is 7, expected 0 to 6");
  EXPECT_EQ(refusal("rate", whole), "'a.gguf': key 'rate' is f32 0.5, expected a whole number that int64 holds");
  EXPECT_EQ(refusal("huge", whole),
            "'a.gguf': key 'huge' is u64 18446744073709551615, expected a whole number that int64 holds");
  EXPECT_EQ(refusal("heads", whole), "'a.gguf': key 'heads' is an array of 2 i32, expected a whole number");
  const auto wholes = [](const MetadataField& f) { f.wholes(0, 6); };
  EXPECT_EQ(refusal("heads", wholes), "'a.gguf': key 'heads' is 8 in element 1, expected 0 to 6");
  EXPECT_EQ(refusal("count", wholes), "'a.gguf': key 'count' is u32 7, expected an array of whole numbers");
  EXPECT_EQ(refusal("tokens", wholes),
            "'a.gguf': key 'tokens' is an array of 2 text, expected a whole number that int64 holds in element 0");
  EXPECT_EQ(refusal("flag", [](const MetadataField& f) { f.number(); }),
            "'a.gguf': key 'flag' is bool true, expected a number");
  EXPECT_EQ(refusal("count", [](const MetadataField& f) { f.boolean(); }),
            "'a.gguf': key 'count' is u32 7, expected a bool");
  EXPECT_EQ(refusal("flag", [](const MetadataField& f) { f.text(); }),
            "'a.gguf': key 'flag' is bool true, expected a text");
  EXPECT_EQ(refusal("name", [](const MetadataField& f) { f.texts(); }),
            "'a.gguf': key 'name' is the text \"llama\", expected an array of texts");
  EXPECT_EQ(refusal("flags", [](const MetadataField& f) { f.numbers(); }),
            "'a.gguf': key 'flags' is an array of 2 bool, expected an array of numbers");
  EXPECT_EQ(refusal("heads", [](const MetadataField& f) { f.booleans(); }),
            "'a.gguf': key 'heads' is an array of 2 i32, expected an array of bools");
}

TEST(ModelMetadata, AKeyThatIsNotThereSuggestsTheNearest) {
  const ModelMetadata metadata = sample();
  EXPECT_FALSE(metadata.find("counts").has_value());
  EXPECT_EQ(message_of([&] { metadata.at("counts"); }),
            "'a.gguf' has no key 'counts' among its 9; did you mean 'count'?");
}

}  // namespace
}  // namespace tutti
