#include "tutti/train/data/run_inputs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tutti/core/error.h"
#include "tutti/io/byte_tokenizer.h"
#include "tutti/train/config/config_fields.h"

namespace tutti::train {
namespace {

using Lines = std::vector<std::string>;

SettingChanges changes_of(void (*change)(Config&)) {
  Config now;
  change(now);
  return compare_settings(settings_of(Config{}), settings_of(now));
}

CorpusInput input_of(const std::vector<std::string>& documents) {
  return describe(tokenize(documents, ByteTokenizer()));
}

TEST(RunInputs, KeysThatDecideTheNumbersForbidToContinue) {
  const SettingChanges changes = changes_of([](Config& now) {
    now.model.flavor = "debugmodel";
    now.training.seed = 7;
  });
  EXPECT_EQ(changes.forbidden, (Lines{R"(model.flavor: "quickstart" -> "debugmodel")", "training.seed: 42 -> 7"}));
  EXPECT_EQ(changes.told, Lines{});
}

TEST(RunInputs, KeysThatActFromHereOnAreTold) {
  const SettingChanges changes = changes_of([](Config& now) {
    now.training.steps = 2000;
    now.optimizer.lr = 1;
  });
  EXPECT_EQ(changes.forbidden, Lines{});
  EXPECT_EQ(changes.told, (Lines{"training.steps: 1000 -> 2000", "optimizer.lr: 0.0008 -> 1.0"}));
}

TEST(RunInputs, AWarmupThatIsLeftToTheRunIsChosenOnceAndKept) {
  Config config;
  ASSERT_EQ(config.lr_scheduler.warmup_steps, -1);
  config.training.steps = 50;
  EXPECT_EQ(settled(config, {}).lr_scheduler.warmup_steps, 5);
  config.training.steps = 5000;
  EXPECT_EQ(settled(config, {}).lr_scheduler.warmup_steps, 200);
  EXPECT_EQ(settled(config, {{"lr_scheduler.warmup_steps", "7"}}).lr_scheduler.warmup_steps, 7);
  config.training.steps = 4;
  EXPECT_EQ(settled(config, {{"lr_scheduler.warmup_steps", "7"}}).lr_scheduler.warmup_steps, 0);  // a shorter run now
  config.lr_scheduler.warmup_steps = 3;
  EXPECT_EQ(settled(config, {{"lr_scheduler.warmup_steps", "2"}}).lr_scheduler.warmup_steps, 3);
}

TEST(RunInputs, ThreadsRanksAndPlacesMayChange) {
  const SettingChanges changes = changes_of([](Config& now) {
    now.runtime.threads = 2;
    now.parallelism.data_parallel_replicate_degree = 4;
    now.training.compile = true;
    now.data.paths = {"elsewhere"};
    now.run.dir = "elsewhere";
  });
  EXPECT_EQ(changes.forbidden, Lines{});
  EXPECT_EQ(changes.told, Lines{});
}

// A legal value of the key that is not its default; nothing where this version knows no other.
std::optional<FieldValue> another_value(const Field& field) {
  const FieldValue usual = default_of(field);
  if (field.rule.only) return std::nullopt;
  for (const std::string& choice : field.rule.choices) {
    if (FieldValue(choice) != usual) return choice;
  }
  for (const FieldValue& candidate :
       {FieldValue(true), FieldValue(false), FieldValue(int64_t{1}), FieldValue(int64_t{2}), FieldValue(0.5),
        FieldValue(0.25), FieldValue(std::string("debugmodel")), FieldValue(TextList{"text"}),
        FieldValue(NumberList{3, 4})}) {
    if (candidate.index() != usual.index() || candidate == usual || !field.rule.choices.empty()) continue;
    Config config;
    try {
      set_value(field, config, candidate);
      return candidate;
    } catch (const UsageError&) {
    }
  }
  return std::nullopt;
}

TEST(RunInputs, EveryKeyDoesWhatItsMarkSays) {
  int tried = 0;
  for (const Field& field : config_fields()) {
    const std::optional<FieldValue> value = another_value(field);
    if (!value) continue;
    ++tried;
    Config before;
    if (field.only_of == ModelKind::clicks) before.model.name = kDlrm;
    Config now = before;
    set_value(field, now, *value);
    const SettingChanges changes = compare_settings(settings_of(before), settings_of(now));
    const Lines line{fmt::format("{}: {} -> {}", field.name(), to_toml(default_of(field)), to_toml(*value))};
    EXPECT_EQ(changes.forbidden, field.resuming == Resuming::fixed ? line : Lines{}) << field.name();
    EXPECT_EQ(changes.told, field.resuming == Resuming::told ? line : Lines{}) << field.name();
  }
  EXPECT_GT(tried, 60);
}

TEST(RunInputs, KeysOfOtherModelsAreNotRecorded) {
  for (const char* model : {"qwen3", kDlrm}) {
    Config config;
    config.model.name = model;
    const Settings settings = settings_of(config);
    for (const Field& field : config_fields())
      EXPECT_EQ(settings.contains(field.name()), field.resuming != Resuming::free && is_of_model(field, config))
          << model << " " << field.name();
  }
}

TEST(RunInputs, AKeyThatAnOlderVersionDidNotKnowHadItsDefault) {
  Settings saved = settings_of(Config{});
  saved.erase("numerics.token_grain");
  Config now;
  EXPECT_EQ(compare_settings(saved, settings_of(now)).forbidden, Lines{});
  now.numerics.token_grain = 64;
  EXPECT_EQ(compare_settings(saved, settings_of(now)).forbidden, Lines{"numerics.token_grain: 128 -> 64"});
}

TEST(RunInputs, TheSameDocumentsAreNoChangeWhateverFilesTheyLieIn) {
  CorpusInput before = input_of({"one", "two"}), now = input_of({"one", "two"});
  before.files = {{"a.txt", 3, 1}, {"b.txt", 3, 2}};
  now.files = {{"all.jsonl", 30, 3}};
  EXPECT_EQ(corpus_change(before, now), "");
}

TEST(RunInputs, ReorderedDocumentsAreAChange) {
  CorpusInput before = input_of({"one", "two"}), now = input_of({"two", "one"});
  before.files = {{"a.jsonl", 30, 1}};
  now.files = {{"a.jsonl", 30, 2}};
  EXPECT_EQ(
      corpus_change(before, now),
      "the file a.jsonl changed: it had 30 bytes, hash 0000000000000001, and has 30 bytes, hash 0000000000000002");
}

TEST(RunInputs, DocumentsCutInAnotherWayAreAChangeOfTheVersion) {
  CorpusInput before = input_of({"one", "two"}), now = input_of({"onet", "wo"});
  before.files = now.files = {{"a.txt", 6, 1}};
  EXPECT_NE(corpus_change(before, now).find("the files are the same, but this version"), std::string::npos);
}

}  // namespace
}  // namespace tutti::train
