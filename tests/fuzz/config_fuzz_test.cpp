// Damaged configuration files end in a UsageError that names a place, never in anything else.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tutti/core/error.h"
#include "tutti/train/config/config_toml.h"

namespace tutti::train {
namespace {

std::string damaged(std::string text, std::mt19937& random) {
  const std::string alphabet = "[]{}=\"'#\\\n\t ,.-+_0123456789eEinfatrue\xc3\xff\x01";
  for (int edits = 1 + static_cast<int>(random() % 4); edits > 0 && !text.empty(); --edits) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text.erase(at, 1 + random() % 8);
        break;
      case 1:
        text.insert(at, 1, alphabet[random() % alphabet.size()]);
        break;
      case 2:
        text[at] = alphabet[random() % alphabet.size()];
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), random() % 30));
    }
  }
  return text;
}

TEST(ConfigFuzz, DamagedFilesAreUnderstoodOrRefused) {
  const std::string good = to_toml(Config{});
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const std::string text = damaged(good, random);
    try {
      Config config;
      read_toml(config, text, "a.toml");
      EXPECT_NO_THROW(to_toml(config)) << "seed " << seed;
    } catch (const UsageError& error) {
      std::string said = error.what();
      if (said.find("things are wrong") < said.find('\n')) said.erase(0, said.find('\n') + 1);  // a line each follows
      EXPECT_EQ(said.find_first_not_of(' '), said.find("a.toml:")) << "seed " << seed << ": " << error.what();
    }
  }
}

TEST(ConfigFuzz, DeepNestingIsRefused) {
  const auto repeated = [](std::string_view part) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += part;
    return text;
  };
  for (const std::string& text :
       {"[model]\nname = " + repeated("["), "[model]\nname = " + repeated("{a="), "[" + repeated("a.") + "a]\n",
        "[[" + repeated("a.") + "a]]\n", "[model]\n" + repeated("a.") + "a = 1\n",
        "[model]\nname = {" + repeated("\"=\".") + "a = 1}\n"}) {
    Config config;
    try {
      read_toml(config, text, "a.toml");
      FAIL() << text.substr(0, 30);
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("a.toml:", 0), 0u) << error.what();
    }
  }
  Config config;
  EXPECT_THROW(apply_override(config, "--data.paths=[" + repeated("[") + "]"), UsageError);
  EXPECT_THROW(apply_override(config, "--data.paths=[{" + repeated("a.") + "a = 1}]"), UsageError);
}

TEST(ConfigFuzz, DamagedFlagsAreUnderstoodOrRefused) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    Config config;
    const std::string flag =
        damaged(seed % 2 ? "--data.paths=[\"a\", \"b\"]" : "--training.global_batch_tokens=4096", random);
    try {
      apply_override(config, flag);
    } catch (const UsageError&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace tutti::train
