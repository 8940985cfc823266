#include "tutti/train/config/config_toml.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tutti/core/error.h"
#include "tutti/models/family.h"
#include "tutti/train/config/config_fields.h"
#include "tutti/train/config/retired_keys.h"

namespace tutti::train {
namespace {

Config read(std::string_view text) {
  Config config;
  read_toml(config, text, "a.toml");
  return config;
}

bool equal(const Config& a, const Config& b) { return to_toml(a) == to_toml(b); }

TEST(ConfigToml, ReadsEveryTypeOfValue) {
  const Config config = read(R"(
[data]
paths = ["a.txt", "b"]
validation_fraction = 0.25
[training]
steps = 7
[metrics]
tensorboard = false
[run]
name = "first"
)");
  EXPECT_EQ(config.data.paths, (std::vector<std::string>{"a.txt", "b"}));
  EXPECT_EQ(config.data.validation_fraction, 0.25);
  EXPECT_EQ(config.training.steps, 7);
  EXPECT_FALSE(config.metrics.tensorboard);
  EXPECT_EQ(config.run.name, "first");
}

TEST(ConfigToml, KeepsDefaultsOfAbsentKeys) { EXPECT_TRUE(equal(read(""), Config{})); }

TEST(ConfigToml, TakesAWholeNumberForANumber) { EXPECT_EQ(read("[optimizer]\nlr = 1").optimizer.lr, 1.0); }

TEST(ConfigToml, WritesWhatItReadsBack) {
  Config config;
  config.data.paths = {"with \"quotes\"", "back\\slash", "tab\tline\nbell\x07", "ümlaut"};
  config.optimizer.lr = 0.1 + 0.2;
  config.optimizer.eps = 1e-8;
  config.training.max_norm = 3;
  config.run.name = "x";
  const Config again = read(to_toml(config));
  EXPECT_EQ(again.data.paths, config.data.paths);
  EXPECT_EQ(again.optimizer.lr, config.optimizer.lr);
  EXPECT_TRUE(equal(again, config));
}

TEST(ConfigToml, WritesEveryKeyOfTheModelAndNoOther) {
  for (const char* model : {"qwen3", kDlrm}) {
    Config config;
    config.model.name = model;
    const std::string text = to_toml(config);
    for (const Field& field : config_fields()) {
      const std::string section = text.substr(std::min(text.find("[" + field.section + "]"), text.size()));
      const bool is_there = section.substr(0, section.find("\n[")).find("\n" + field.key + " = ") != std::string::npos;
      EXPECT_EQ(is_there, is_of_model(field, config)) << model << " " << field.name();
    }
    // What somebody has set is written all the same, so that the file has the same faults.
    config.model.flavor = "debugmodel";
    config.tables.dim = 3;
    EXPECT_TRUE(equal(read(to_toml(config)), config));
  }
}

TEST(ConfigToml, PassesOverRetiredKeysWithANote) {
  Config config;
  std::vector<std::string> notes;
  read_toml(config, "[runtime]\nthreads = 3\nsymm_backend = \"native\"\n", "old.toml", &notes);
  EXPECT_EQ(config.runtime.threads, 3);
  EXPECT_EQ(notes,
            (std::vector<std::string>{"old.toml:3:1: runtime.symm_backend selects nothing: ranks share memory as "
                                      "runtime.transport says; leave it out"}));
  EXPECT_NO_THROW(read("[runtime]\nsymm_backend = 5\n"));  // whatever it was set to
}

TEST(ConfigFields, TheFamiliesOfModelsAreThoseOfTheirRegistry) {
  std::vector<std::string> names = models::family_names();
  names.emplace_back(kDlrm);
  EXPECT_EQ(find_field("model", "name").rule.choices, names);
}

TEST(ConfigFields, ARetiredKeyIsNoKey) {
  for (const RetiredKey& retired : retired_keys()) {
    EXPECT_NO_THROW(find_section(retired.section)) << retired.section;
    for (const Field& field : config_fields())
      EXPECT_FALSE(field.section == retired.section && field.key == retired.key) << field.name();
  }
}

TEST(ConfigToml, FlagsSetEveryTypeOfValue) {
  Config config;
  apply_override(config, "--training.steps=12");
  apply_override(config, "--optimizer.lr=3e-4");
  apply_override(config, "--run.name=a=b");
  apply_override(config, "--metrics.report=false");
  apply_override(config, "--data.paths=one,two");
  EXPECT_EQ(config.training.steps, 12);
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(config.run.name, "a=b");
  EXPECT_FALSE(config.metrics.report);
  EXPECT_EQ(config.data.paths, (std::vector<std::string>{"one", "two"}));
}

TEST(ConfigToml, AListFlagMayBeWrittenAsInToml) {
  Config config;
  apply_override(config, R"(--data.paths=["one, with comma", "two"])");
  EXPECT_EQ(config.data.paths, (std::vector<std::string>{"one, with comma", "two"}));
}

TEST(ConfigToml, EnvironmentVariablesSetKeys) {
  Config config;
  apply_environment(config, std::vector<std::string>{"PATH=/bin", "TUTTI_TRAINING_STEPS=5", "TUTTI_CACHE_DIR=/tmp/x",
                                                     "TUTTI_LR_SCHEDULER_DECAY_TYPE=cosine"});
  EXPECT_EQ(config.training.steps, 5);
  EXPECT_EQ(config.lr_scheduler.decay_type, "cosine");
}

TEST(ConfigFields, EachSectionIsAFileOfItsFolderAndNothingElseListsIt) {
  std::set<std::string> files, sections;
  for (const auto& file : std::filesystem::directory_iterator(TUTTI_SOURCE_DIR "/tutti/train/config/sections"))
    files.insert(file.path().stem().string());
  for (const Section& section : config_sections()) sections.insert(section.name);
  EXPECT_EQ(sections, files);
}

TEST(ConfigFields, DefaultsObeyTheirOwnRules) {
  Config config;
  for (const Field& field : config_fields())
    EXPECT_NO_THROW(set_value(field, config, default_of(field))) << field.name();
}

TEST(ConfigFields, StandInExistingSectionsOnceEach) {
  std::vector<std::string> names;
  for (const Field& field : config_fields()) {
    EXPECT_NO_THROW(find_section(field.section));
    EXPECT_EQ(std::count(names.begin(), names.end(), field.name()), 0) << field.name();
    names.push_back(field.name());
  }
}

}  // namespace
}  // namespace tutti::train
