// Damaged descriptions of published models are read or refused by one of Tutti's errors.
#include <gtest/gtest.h>

#include "tests/io/support/sample_text.h"
#include "tests/models/support/family_cases.h"
#include "tests/support/fuzz_rounds.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/models/family.h"
#include "tutti/models/generation_defaults.h"
#include "tutti/models/published_config.h"
#include "tutti/models/published_model.h"

namespace tutti::models {
namespace {

using tutti::testing::FuzzRounds;
using tutti::testing::mutated;
using tutti::testing::read_whole_file;

constexpr uint32_t kSeed = 36;

// Whether read() accepts what it reads. An error of another kind than those of this library ends the test.
template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

// One value of a JSON object is another.
std::string with_another_value(const std::string& json, std::mt19937& random) {
  static constexpr const char* kValues[] = {"null",
                                            "true",
                                            "\"x\"",
                                            "[]",
                                            "{}",
                                            "0",
                                            "-1",
                                            "1",
                                            "1e308",
                                            "0.5",
                                            "9223372036854775807",
                                            "[1, 2]",
                                            "{\"rope_type\": \"yarn\"}",
                                            "1048576",
                                            "[\"full_attention\"]",
                                            "1e-320",
                                            "4294967296"};
  const size_t colon = json.empty() ? json.npos : json.find(": ", random() % json.size());
  const size_t end = json.find_first_of(",\n}", colon);
  if (colon == std::string::npos || end == std::string::npos) return json;
  return json.substr(0, colon + 2) + kValues[random() % std::size(kValues)] + json.substr(end);
}

TEST(PublishedFuzz, DescriptionsAreReadOrRefused) {
  std::vector<std::string> texts;
  for (const char* file : {"config.json", "config_old.json", "config_nested.json"}) {
    for (const std::string& name : family_cases(file))
      texts.push_back(read_whole_file((families_folder() / name / file).string()));
  }
  ASSERT_GT(texts.size(), 20U);
  std::mt19937 random(kSeed);
  int64_t refused = 0;
  FuzzRounds rounds(6000);
  while (rounds.go_on()) {
    const std::string& whole = texts[random() % texts.size()];
    std::string text = random() % 3 == 0 ? mutated(whole, random) : with_another_value(whole, random);
    if (random() % 3 == 0) text = with_another_value(text, random);
    refused += !accepts([&] {
      PublishedConfig config("config.json", text);
      const DecoderConfig decoder = read_published_config(config);
      ASSERT_GT(decoder.layers.size(), 0U);
      validate(decoder);
      parameter_count(decoder);
    });
  }
  EXPECT_GT(refused, rounds.made() / 4);
  EXPECT_LT(refused, rounds.made());
}

TEST(PublishedFuzz, GenerationDefaultsAreReadOrRefused) {
  const std::string whole =
      R"({"do_sample": true, "eos_token_id": [1, 2], "temperature": 0.6, "top_k": 20, "stop_strings": ["a"], )"
      R"("suppress_tokens": [5, 6], "top_p": 0.9, "min_p": 0, "repetition_penalty": 1.1, "max_new_tokens": 7})";
  std::mt19937 random(kSeed);
  int64_t refused = 0;
  FuzzRounds rounds(6000);
  while (rounds.go_on()) {
    const std::string text = random() % 2 == 0 ? mutated(whole, random) : with_another_value(whole, random);
    refused += !accepts([&] {
      for (const int32_t id : parse_generation_defaults(text, "generation_config.json").eos_token_ids) ASSERT_GE(id, 0);
    });
  }
  EXPECT_GT(refused, rounds.made() / 4);
  EXPECT_LT(refused, rounds.made());
}

TEST(PublishedFuzz, GgufModelsAreReadOrRefused) {
  const tutti::testing::TemporaryFolder folder;
  std::vector<std::string> files;
  for (const std::string& name : family_cases("model.gguf"))
    files.push_back(read_whole_file((families_folder() / name / "model.gguf").string()));
  ASSERT_GT(files.size(), 3U);
  std::mt19937 random(kSeed);
  int64_t refused = 0;
  FuzzRounds rounds(2000);
  while (rounds.go_on()) {
    std::string bytes = files[random() % files.size()];
    const size_t head = std::min<size_t>(bytes.size(), 6000);
    // Numbers of the header, whose places are unknown, become others.
    for (uint32_t edits = 1 + random() % 2; edits > 0; --edits) {
      static constexpr uint32_t kNumbers[] = {0,     1,        2,        3,   7,          8,         255,
                                              65536, 1U << 20, 1U << 31, ~0U, 0x7f800000, 0x3f000000};
      const uint32_t number = kNumbers[random() % std::size(kNumbers)];
      bytes.replace(random() % head, 4, reinterpret_cast<const char*>(&number), 4);
    }
    const std::string path = folder.write("damaged.gguf", bytes);
    refused += !accepts([&] {
      const PublishedModel model(path);
      parameter_count(model.config());
      for (const ModelTensor& entry : model.file().entries()) accepts([&] { model.file().tensor(entry.name); });
    });
  }
  EXPECT_GT(refused, rounds.made() / 4);
  EXPECT_LT(refused, rounds.made());
}

}  // namespace
}  // namespace tutti::models
