// Frequencies of published settings against a float64 formula and against the float32 of transformers
// (tests/models/families/write_rope_frequencies.py).
#include "tutti/models/rope_angles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/models/published_rope.h"
#include "tutti/runtime/json_document.h"

namespace tutti::models {
namespace {

struct RopeCase {
  std::string name, keys;
  int64_t head_dim;
  double attention_factor;
  std::vector<double> f32, f64;
};

std::vector<RopeCase> rope_cases() {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/models/families/rope_frequencies.txt");
  std::vector<RopeCase> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, second, third;
    words >> first >> second >> third;
    if (first == "case") {
      const std::string keys = line.substr(line.find('{'));
      cases.push_back(
          {.name = second, .keys = keys, .head_dim = JsonDocument(keys, {second}).top().find("head_dim")->whole()});
    } else if (first == "attention_factor") {
      cases.back().attention_factor = std::strtod(second.c_str(), nullptr);
    } else {
      cases.back().f32.push_back(std::strtod(second.c_str(), nullptr));
      cases.back().f64.push_back(std::strtod(third.c_str(), nullptr));
    }
  }
  return cases;
}

TEST(RopeAngles, OfPublishedSettingsAreThoseOfTransformers) {
  const tutti::testing::TemporaryFolder folder;
  const std::vector<RopeCase> cases = rope_cases();
  EXPECT_GE(cases.size(), 14u);
  for (const RopeCase& c : cases) {
    PublishedConfig file(folder.write(
        "config.json",
        fmt::format("{{\"max_position_embeddings\": {}, \"rope_parameters\": {}}}",
                    JsonDocument(c.keys, {c.name}).top().find("max_position_embeddings")->whole(), c.keys)));
    const RopeConfig rope = read_rope(10000, file, nullptr);
    file.check_supported();
    EXPECT_NEAR(rope_attention_factor(rope), c.attention_factor, 1e-12) << c.name;
    const std::vector<double> frequencies = rope_frequencies(rope, c.head_dim);
    ASSERT_EQ(frequencies.size(), c.f64.size()) << c.name;
    for (size_t i = 0; i < frequencies.size(); ++i) {
      EXPECT_NEAR(frequencies[i] / c.f64[i], 1, 1e-12) << c.name << " " << i;
      EXPECT_NEAR(frequencies[i] / c.f32[i], 1, 1e-6) << c.name << " " << i;
    }
  }
}

// The exponents are those of the whole head, of which the first pairs turn.
TEST(RopeAngles, OfProportionalHeadsAreZeroBeyondTheirPart) {
  const std::vector<double> frequencies =
      rope_frequencies({.type = RopeType::proportional, .theta = 1e6, .rotary_factor = 0.25}, 512);
  ASSERT_EQ(frequencies.size(), 256u);
  for (size_t i = 0; i < 256; ++i)
    EXPECT_NEAR(frequencies[i], i < 64 ? std::pow(1e6, -static_cast<double>(i) / 256) : 0, 1e-15) << i;
  const RopeConfig part{.type = RopeType::proportional, .theta = 1e4, .factor = 2, .rotary_factor = 0.5};
  EXPECT_EQ(rope_frequencies(part, 10), (std::vector<double>{0.5, std::pow(1e4, -0.2) / 2, 0, 0, 0}));
}

TEST(RopeAngles, RefuseNumbersThatMeanNothing) {
  EXPECT_EQ(message_of([] { rope_frequencies({.type = RopeType::proportional, .rotary_factor = 1.5}, 8); }),
            "rotary positions that turn 1.5 of the pairs of a head; expected a number from 0 to 1");
  EXPECT_NE(message_of([] { rope_frequencies({}, 7); }).find("heads of 7 elements; expected an even number"),
            std::string::npos);
  EXPECT_NE(message_of([] { rope_frequencies({.divisors = {1, 0}}, 4); }).find("the divisor 0 of pair 1"),
            std::string::npos);
  EXPECT_NE(message_of([] { rope_frequencies({.theta = 0}, 8); }).find("base 0 and factor 1"), std::string::npos);
  EXPECT_NE(message_of([] {
              rope_frequencies({.type = RopeType::yarn, .factor = 2}, 8);
            }).find("type yarn with 0 original positions"),
            std::string::npos);
}

TEST(RopeAngles, HaveNamesInFiles) {
  for (const RopeType type :
       {RopeType::plain, RopeType::linear, RopeType::llama3, RopeType::yarn, RopeType::proportional})
    EXPECT_EQ(rope_type_named(name_of(type)), type);
  EXPECT_EQ(rope_type_named("dynamic"), std::nullopt);
}

}  // namespace
}  // namespace tutti::models
