// What a user reads when the configuration of a click model has a key that such models do not have.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tutti/train/config/config_fields.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/config/faults.h"

namespace tutti::train {
namespace {

Config clicks() {
  Config config;
  read_toml(config, "[model]\nname = \"dlrm\"\n[clicks]\nsource = \"generated\"\ntable_rows = [10, 20]\n", "a.toml");
  return config;
}

// The only fault of a configuration.
std::string fault_of(const Config& config) {
  const Faults faults = faults_of(config);
  EXPECT_LE(faults.texts().size(), 1u);
  std::string all;
  for (const std::string& text : faults.texts()) all += text;
  return all;
}

std::string fault_with(std::string_view flag) {
  Config config = clicks();
  apply_override(config, flag);
  return fault_of(config);
}

TEST(ClickConfigMessages, AConfigurationOfFourKeysIsWhole) { EXPECT_EQ(fault_of(clicks()), ""); }

TEST(ClickConfigMessages, WhatClickModelsCannotDoIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"--parallelism.tensor_parallel_degree=2",
       "parallelism.tensor_parallel_degree = 2: the ranks of a click model share the batch only; set it to 1"},
      {"--parallelism.expert_parallel_degree=2",
       "parallelism.expert_parallel_degree = 2: the ranks of a click model share the batch only; set it to 1"},
      {"--parallelism.data_parallel_shard_degree=2",
       "parallelism.data_parallel_shard_degree = 2: the ranks of a click model share the batch only; set it to 1"},
      {"--parallelism.data_parallel_shard_degree=-1",
       "parallelism.data_parallel_shard_degree = -1: the ranks of a click model share the batch only; set it to 1"},
      {"--training.compile=true",
       "training.compile is true: the lookups of sparse tables are not compiled; leave it out"},
      {"--training.mixed_precision_param=bfloat16",
       "training.mixed_precision_param is 'bfloat16': click models compute in float32; leave it out"},
      {"--training.survive_rank_loss=true",
       "training.survive_rank_loss is true: the tables of a click model do not lie in memory that outlives a rank; "
       "leave it out, and start with --max-restarts=N: then all ranks go on from the last checkpoint"},
      {"--activation_checkpoint.mode=full",
       "activation_checkpoint.mode = \"full\" is for language models, and model.name is 'dlrm'; leave it out"},
      {"--validation.sample_tokens=20",
       "validation.sample_tokens = 20 is for language models, and model.name is 'dlrm'; leave it out"},
      {"--model.path=weights",
       "model.path = \"weights\" is for language models, and model.name is 'dlrm'; leave it out"},
  };
  for (const auto& [flag, expected] : cases) EXPECT_EQ(fault_with(flag), expected) << flag;
}

// Whatever key it is, and the other way round.
TEST(ClickConfigMessages, KeysOfOtherModelsAreRefused) {
  size_t of_language = 0, of_clicks = 0;
  for (const Field& field : config_fields()) {
    if (!field.only_of) continue;
    const bool is_of_language = *field.only_of == ModelKind::language;
    ++(is_of_language ? of_language : of_clicks);
    Config config = is_of_language ? clicks() : Config{.data = {.paths = {"a.txt"}}};
    for (const char* value : {"full", "3", "0.25", "false", "true", "always", "optim", "read", "generated",
                              "direct_store", "memory_budget", "text2"}) {
      if (value_of(field, config) != default_of(field)) break;
      try {
        apply_override(config, "--" + field.name() + "=" + value);
      } catch (const UsageError&) {  // of another type
      }
    }
    ASSERT_NE(value_of(field, config), default_of(field)) << field.name();
    const std::vector<std::string> texts = faults_of(config).texts();
    EXPECT_TRUE(std::ranges::any_of(texts, [&](const std::string& text) {
      return text.starts_with(field.name() + " = ") &&
             text.find(is_of_language ? " is for language models, and model.name is 'dlrm'"
                                      : " is for click models, and model.name is 'qwen3'") != std::string::npos;
    })) << field.name();
  }
  EXPECT_GE(of_language, 18u);
  EXPECT_GE(of_clicks, 15u);
}

TEST(ClickConfigMessages, RowsAndColumnsMustFit) {
  EXPECT_EQ(fault_with("--clicks.global_batch_samples=1001"),
            "clicks.global_batch_samples = 1001 cannot be divided evenly over numerics.virtual_shards = 8; try 1008");
  EXPECT_EQ(fault_with("--clicks.table_rows=[]"),
            "clicks.table_rows is empty; name the rows of the table of each category column, such as [1000, 50]");
  EXPECT_EQ(fault_with("--clicks.category_columns=a,b,c"),
            "clicks.category_columns names 3 columns, and clicks.table_rows has 2 tables; each column has one");
  EXPECT_EQ(fault_with("--clicks.delimiter=ab"), "clicks.delimiter is \"ab\"; expected one character");
  EXPECT_EQ(fault_with("--data.paths=a.csv"),
            "clicks.source is 'generated', and data.paths or clicks.validation_paths names files, which nobody reads; "
            "leave them out");
  Config files = clicks();
  files.clicks.source = "files";
  files.validation.every = 0;
  EXPECT_EQ(fault_of(files),
            "data.paths is empty; name at least one file or folder of rows, or set clicks.source = "
            "\"generated\"");
  files.data.paths = {"a.csv"};
  EXPECT_EQ(fault_of(files), "");
  files.validation.every = 5;
  EXPECT_EQ(fault_of(files),
            "validation.every = 5 needs held-out rows, but clicks.validation_paths is empty; name files, or set "
            "validation.every = 0");
}

TEST(ClickConfigMessages, ListsOfNumbersSayWhatTheyTake) {
  const auto complaint = [](const std::string& value) -> std::string {
    Config config;
    try {
      read_toml(config, "[clicks]\ntable_rows = " + value + "\n", "a.toml");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint("[4, \"a\"]"),
            "a.toml:2:14: clicks.table_rows: expected a list of whole numbers, found a list that holds something other "
            "than whole numbers");
  EXPECT_EQ(complaint("[4, 1.5]").substr(0, 50), complaint("[4, \"a\"]").substr(0, 50));
  EXPECT_EQ(complaint("[4, 0]"), "a.toml:2:14: clicks.table_rows: expected 1 or more, found 0");
  EXPECT_EQ(complaint("7"), "a.toml:2:14: clicks.table_rows: expected a list of whole numbers, found 7");
  EXPECT_EQ(complaint("[4, 99999999999]"), "");
  EXPECT_NE(fault_with("--clicks.table_rows=").find("is empty"), std::string::npos);
  Config config = clicks();
  apply_override(config, "--dlrm.top=7,5");
  EXPECT_EQ(config.dlrm.top, (NumberList{7, 5}));
  apply_override(config, "--dlrm.top=[3]");
  EXPECT_EQ(config.dlrm.top, NumberList{3});
  EXPECT_THROW(apply_override(config, "--dlrm.top=7,x"), UsageError);
}

TEST(ClickConfigMessages, AnUnknownKeyNamesTheNearest) {
  Config config;
  try {
    apply_override(config, "--clicks.tabel_rows=3");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'table_rows'?"), std::string::npos) << error.what();
  }
}

// Without keys of other models, and back again.
TEST(ClickConfigMessages, AConfigurationIsWrittenWithItsOwnKeys) {
  const Config config = clicks();
  const std::string text = to_toml(config);
  EXPECT_NE(text.find("[clicks]\nsource = \"generated\"\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("sequence_length"), std::string::npos) << text;
  EXPECT_EQ(text.find("[activation_checkpoint]"), std::string::npos) << text;
  Config again;
  read_toml(again, text, "b.toml");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(to_toml(Config{}).find("[clicks]"), std::string::npos);
}

}  // namespace
}  // namespace tutti::train
