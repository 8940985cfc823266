// What a user reads when a configuration is wrong.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support/message_of.h"
#include "tutti/core/error.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/config/data_degrees.h"
#include "tutti/train/config/faults.h"

namespace tutti::train {
namespace {

std::string complaint(const std::function<void(Config&)>& action) {
  Config config;
  try {
    action(config);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(no error)";
}

std::string toml_complaint(std::string_view text) {
  return complaint([&](Config& config) { read_toml(config, text, "a.toml"); });
}

std::string flag_complaint(std::string_view flag) {
  return complaint([&](Config& config) { apply_override(config, flag); });
}

TEST(ConfigMessages, MalformedTomlNamesFileLineAndColumn) {
  const std::string text = toml_complaint("[training]\nsteps = \n");
  EXPECT_EQ(text.rfind("a.toml:2:", 0), 0u) << text;
}

TEST(ConfigMessages, UnterminatedTextNamesItsLine) {
  const std::string text = toml_complaint("[run]\nname = \"abc\n");
  EXPECT_EQ(text.rfind("a.toml:2:", 0), 0u) << text;
}

TEST(ConfigMessages, AKeyGivenTwiceIsNamed) {
  const std::string text = toml_complaint("[training]\nsteps = 1\nsteps = 2\n");
  EXPECT_EQ(text.rfind("a.toml:3:", 0), 0u) << text;
  EXPECT_NE(text.find("steps"), std::string::npos) << text;
}

TEST(ConfigMessages, AnUnknownKeyNamesTheNearest) {
  EXPECT_EQ(toml_complaint("[training]\n\n  setps = 5\n").substr(0, 75),
            "a.toml:3:3: unknown key in [training] 'setps'; did you mean 'steps'? Known:");
}

TEST(ConfigMessages, AnUnknownSectionNamesTheNearest) {
  EXPECT_EQ(toml_complaint("[trainin]\nsteps = 5\n").substr(0, 64),
            "a.toml:2:1: unknown section 'trainin'; did you mean 'training'? ");
}

TEST(ConfigMessages, AnEmptyUnknownSectionIsNoticed) {
  EXPECT_NE(toml_complaint("[trainin]\n").find("did you mean 'training'?"), std::string::npos);
}

TEST(ConfigMessages, AWrongTypeSaysExpectedAndFound) {
  EXPECT_EQ(toml_complaint("[training]\nsteps = \"ten\"\n"),
            "a.toml:2:9: training.steps: expected a whole number, found \"ten\"");
  EXPECT_EQ(toml_complaint("[training]\nsteps = 1.5\n"),
            "a.toml:2:9: training.steps: expected a whole number, found 1.5");
  EXPECT_EQ(toml_complaint("[data]\npaths = \"x\"\n"),
            "a.toml:2:9: data.paths: expected a list of strings, found \"x\"");
  EXPECT_EQ(toml_complaint("[data]\npaths = [1]\n"),
            "a.toml:2:9: data.paths: expected a list of strings, found a list that holds something other than strings");
  EXPECT_EQ(toml_complaint("[run.name]\nx = 1\n"), "a.toml:1:1: run.name: expected a string, found a table");
}

TEST(ConfigMessages, AValueOutOfRangeSaysTheRange) {
  EXPECT_EQ(toml_complaint("[training]\nsteps = 0\n"), "a.toml:2:9: training.steps: expected 1 or more, found 0");
  EXPECT_EQ(toml_complaint("[data]\nvalidation_fraction = 0.75\n"),
            "a.toml:2:23: data.validation_fraction: expected 0 to 0.5, found 0.75");
  EXPECT_EQ(toml_complaint("[optimizer]\neps = 0\n"), "a.toml:2:7: optimizer.eps: expected more than 0, found 0");
  EXPECT_EQ(toml_complaint("[optimizer]\nlr = nan\n"), "a.toml:2:6: optimizer.lr: expected 0 or more, found nan");
  EXPECT_EQ(toml_complaint("[numerics]\nvirtual_shards = 6\n"),
            "a.toml:2:18: numerics.virtual_shards: expected a power of two, 1 to 4096, found 6");
}

TEST(ConfigMessages, AnUnknownChoiceNamesTheNearest) {
  EXPECT_EQ(toml_complaint("[optimizer]\nname = \"adam\"\n"),
            "a.toml:2:8: optimizer.name: expected one of: adamw, sgd, found 'adam'; did you mean 'adamw'?");
}

TEST(ConfigMessages, AnUnknownModelFamilyNamesThoseThatExist) {
  const std::string complaint = toml_complaint("[model]\nname = \"qwen33\"\n");
  EXPECT_TRUE(complaint.starts_with("a.toml:2:8: model.name: expected one of: ")) << complaint;
  EXPECT_TRUE(complaint.ends_with(", qwen3, dlrm, found 'qwen33'; did you mean 'qwen3'?")) << complaint;
}

TEST(ConfigMessages, WhatThisVersionCannotDoIsSaid) {
  EXPECT_EQ(toml_complaint("[parallelism]\ncontext_parallel_degree = 2\n"),
            "a.toml:2:27: parallelism.context_parallel_degree: 2 is not supported yet by this version; expected 1");
  EXPECT_EQ(toml_complaint("[parallelism]\ncontext_parallel_degree = -1\n"), "(no error)");
}

TEST(ConfigMessages, AFlagOrVariableOfARetiredKeyIsTold) {
  const std::string note =
      "runtime.symm_backend selects nothing: ranks share memory as runtime.transport says; leave it out";
  EXPECT_EQ(flag_complaint("--runtime.symm_backend=native"), "--runtime.symm_backend: " + note);
  EXPECT_EQ(complaint([](Config& config) {
              apply_environment(config, std::vector<std::string>{"TUTTI_RUNTIME_SYMM_BACKEND=native"});
            }),
            "TUTTI_RUNTIME_SYMM_BACKEND: " + note);
}

TEST(ConfigMessages, AValueOutsideOfSectionsIsNoticed) {
  EXPECT_EQ(toml_complaint("steps = 5\n"), "a.toml:1:1: 'steps' stands outside of any [section]");
}

TEST(ConfigMessages, FlagsAreCheckedLikeTheFile) {
  EXPECT_EQ(flag_complaint("--training.steps=ten"), "--training.steps: expected a whole number, found 'ten'");
  EXPECT_EQ(flag_complaint("--training.steps=0"), "--training.steps: expected 1 or more, found 0");
  EXPECT_EQ(flag_complaint("--metrics.report=yes"), "--metrics.report: expected true or false, found 'yes'");
  EXPECT_EQ(flag_complaint("--training.step=1").substr(0, 76),
            "--training.step: unknown key in [training] 'step'; did you mean 'steps'? Kno");
  EXPECT_EQ(flag_complaint("--steps=1"), "'--steps=1': expected --section.key=value");
  EXPECT_EQ(flag_complaint("--training.steps"), "'--training.steps': expected --section.key=value");
}

TEST(ConfigMessages, VariablesAreCheckedLikeTheFile) {
  const auto variable_complaint = [](const std::string& variable) {
    return complaint([&](Config& config) { apply_environment(config, std::vector<std::string>{variable}); });
  };
  EXPECT_EQ(variable_complaint("TUTTI_TRAINING_STEPS=x"), "TUTTI_TRAINING_STEPS: expected a whole number, found 'x'");
  EXPECT_EQ(variable_complaint("TUTTI_TRAINING_STEP=1").substr(0, 86),
            "unknown environment variable 'TUTTI_TRAINING_STEP'; did you mean 'TUTTI_TRAINING_STEPS");
}

TEST(ConfigMessages, AMissingFileIsNamed) {
  EXPECT_EQ(complaint([](Config&) { load_config("/no/such.toml"); }), "config file /no/such.toml does not exist");
  EXPECT_EQ(complaint([](Config&) { load_config("/"); }), "/ is a folder; expected a TOML file");
}

TEST(ConfigMessages, KeysThatDoNotFitTogetherAreNamed) {
  const auto invalid = [](const std::function<void(Config&)>& change) {
    return complaint([&](Config& config) {
      config.data.paths = {"x"};
      change(config);
      validate(config);
    });
  };
  EXPECT_EQ(invalid([](Config& c) { c.training.global_batch_tokens = 1000; }),
            "training.global_batch_tokens = 1000 is no multiple of data.sequence_length = 256; try 1024");
  EXPECT_EQ(invalid([](Config& c) { c.training.global_batch_tokens = 256 * 9; }),
            "training.global_batch_tokens / data.sequence_length = 9 sequences cannot be divided evenly over "
            "numerics.virtual_shards = 8; try training.global_batch_tokens = 4096");
  EXPECT_EQ(
      invalid([](Config& c) { c.activation_checkpoint.mode = "memory_budget"; }),
      "activation_checkpoint.mode is 'memory_budget' and training.compile is false; the budget is the compiler's: set "
      "training.compile = true, or mode = 'full'");
  EXPECT_EQ(invalid([](Config& c) { c.lr_scheduler.warmup_steps = 2000; }),
            "lr_scheduler.warmup_steps = 2000 is more than training.steps = 1000; lower the one or raise the other");
  EXPECT_EQ(invalid([](Config& c) { c.data.paths.clear(); }),
            "data.paths is empty; name at least one file or folder of text");
  EXPECT_EQ(invalid([](Config& c) { c.parallelism.data_parallel_replicate_degree = 16; }),
            "parallelism.data_parallel_replicate_degree = 16 is more than numerics.virtual_shards = 8; every rank "
            "needs at least one shard of the batch");
  EXPECT_EQ(invalid([](Config& c) {
              c.parallelism.data_parallel_replicate_degree = 4, c.parallelism.data_parallel_shard_degree = 4;
            }),
            "parallelism.data_parallel_replicate_degree x data_parallel_shard_degree = 4 x 4 is more than "
            "numerics.virtual_shards = 8; every rank needs at least one shard "
            "of the batch");
  EXPECT_EQ(invalid([](Config& c) { c.parallelism.tensor_parallel_degree = 2; }),
            "parallelism.tensor_parallel_degree = 2: qwen3 quickstart: tensor parallelism over 2 ranks would not have "
            "the bits of one rank; expected a power of two up to 1, for degrees are "
            "bounded by 3 key/value heads (1), the sum over 96 elements of the key heads, whose leaves have 128 (1)");
  EXPECT_EQ(invalid([](Config& c) {
              c.model.flavor = "tiny_moe", c.parallelism.expert_parallel_degree = 2;
              c.parallelism.data_parallel_schedule = "once_a_step";
            }),
            "parallelism.expert_parallel_degree = 2: ranks that divide experts or their tokens run neighbouring shards "
            "at once; set parallelism.data_parallel_schedule = every_round or auto, with the same numbers");
  EXPECT_EQ(invalid([](Config& c) {
              c.model.flavor = "tiny_moe", c.parallelism.expert_parallel_degree = 2;
              c.parallelism.data_parallel_overlap = "backward";
            }),
            "parallelism.expert_parallel_degree = 2: ranks that divide experts or their tokens exchange gradients "
            "after each round, and parallelism.data_parallel_overlap = backward needs once_a_step; set it to none, "
            "with the same numbers");
  EXPECT_EQ(invalid([](Config& c) { c.parallelism.expert_parallel_degree = 2; }),
            "parallelism.expert_parallel_degree = 2: the model qwen3 quickstart has no experts");
  EXPECT_EQ(invalid([](Config& c) {
              c.model.flavor = "tiny_moe", c.parallelism.expert_parallel_degree = 2;
              c.parallelism.expert_parallel_comm_backend = "gather_on_read", c.runtime.transport = "hier";
            }),
            "parallelism.expert_parallel_comm_backend = gather_on_read: rows are in memory that the ranks share, and "
            "with runtime.transport = 'hier' they share none; set runtime.transport = shm or "
            "threads, or the backend standard, with the same numbers");
  EXPECT_EQ(invalid([](Config& c) {
              c.model.flavor = "tiny_moe", c.parallelism.expert_parallel_degree = 2;
              c.parallelism.expert_parallel_comm_backend = "standard_exact", c.training.compile = true;
            }),
            "parallelism.expert_parallel_comm_backend = standard_exact: it reads on the host how many rows come, which "
            "a compiled step cannot do; set training.compile = false, or standard, "
            "direct_store or gather_on_read, with the same numbers");
}

TEST(ConfigMessages, AllThatIsWrongInAFileIsToldInTheOrderOfItsLines) {
  EXPECT_EQ(
      toml_complaint("[training]\nsteps = 0\n[optimizer]\nname = \"adam\"\nlr = \"fast\"\n[trainin]\na = 1\nb = 2\n"),
      "4 things are wrong with the configuration:\n"
      "  a.toml:2:9: training.steps: expected 1 or more, found 0\n"
      "  a.toml:4:8: optimizer.name: expected one of: adamw, sgd, found 'adam'; did you mean 'adamw'?\n"
      "  a.toml:5:6: optimizer.lr: expected a number, found \"fast\"\n"
      "  a.toml:7:1: unknown section 'trainin'; did you mean 'training'? Known: model, data, training, numerics, "
      "runtime, parallelism, optimizer, lr_scheduler, activation_checkpoint, validation, checkpoint, metrics, "
      "profiler, run, clicks, dlrm, tables");
}

TEST(ConfigMessages, WhatIsRightBesideAWrongKeyIsSet) {
  Config config;
  EXPECT_THROW(read_toml(config, "[training]\nsteps = 0\nseed = 5\n", "a.toml"), ConfigError);
  EXPECT_EQ(config.training.seed, 5);
  EXPECT_EQ(config.training.steps, Config{}.training.steps);
}

TEST(ConfigMessages, AllVariablesThatAreWrongAreTold) {
  EXPECT_EQ(complaint([](Config& config) {
              apply_environment(config, std::vector<std::string>{"TUTTI_TRAINING_STEPS=x", "TUTTI_OPTIMIZER_LR=y"});
            }),
            "2 things are wrong with the configuration:\n"
            "  TUTTI_TRAINING_STEPS: expected a whole number, found 'x'\n"
            "  TUTTI_OPTIMIZER_LR: expected a number, found 'y'");
}

TEST(ConfigMessages, AllRulesThatAreBrokenAreTold) {
  EXPECT_EQ(complaint([](Config& config) {
              config.lr_scheduler.warmup_steps = 2000, config.activation_checkpoint.mode = "memory_budget";
              validate(config);
            }),
            "3 things are wrong with the configuration:\n"
            "  data.paths is empty; name at least one file or folder of text\n"
            "  lr_scheduler.warmup_steps = 2000 is more than training.steps = 1000; lower the one or raise the other\n"
            "  activation_checkpoint.mode is 'memory_budget' and training.compile is false; the budget is the "
            "compiler's: set training.compile = true, or mode = 'full'");
}

TEST(ConfigMessages, ARuleAboutAKeyThatIsItselfWrongIsNotTold) {
  Faults faults, rules;
  faults.add("a.toml:2:9: training.steps: expected 1 or more, found 0");
  rules.add("lr_scheduler.warmup_steps = 2000 is more than training.steps = 1000");
  rules.add("training.steps_of_others is no key, and this is told");
  rules.add("data.paths is empty");
  rules.add("data.paths is empty");
  faults.add_rules(rules);
  EXPECT_EQ(faults.texts(),
            (std::vector<std::string>{"a.toml:2:9: training.steps: expected 1 or more, found 0",
                                      "training.steps_of_others is no key, and this is told", "data.paths is empty"}));
}

// Keys that other trainers have under other names.
TEST(ConfigMessages, KeysOfTorchTitanAreTranslated) {
  EXPECT_EQ(flag_complaint("--training.local_batch_size=8"),
            "--training.local_batch_size: training.local_batch_size is TorchTitan's; set training.global_batch_tokens "
            "= rows x data.sequence_length, the batch of all ranks");
  EXPECT_EQ(flag_complaint("--checkpoint.interval=8"),
            "--checkpoint.interval: checkpoint.interval is TorchTitan's; set checkpoint.every");
  EXPECT_EQ(flag_complaint("--profiling.enable_profiling=true"),
            "--profiling.enable_profiling: section [profiling] is TorchTitan's; set profiler.enable");
}

TEST(ConfigMessages, DegreesMustMultiplyToTheRanks) {
  const auto degrees = [](int64_t replicate, int64_t shard, int64_t ranks) {
    try {
      const DataDegrees d =
          data_degrees({.data_parallel_replicate_degree = replicate, .data_parallel_shard_degree = shard}, ranks);
      return fmt::format("{} x {}", d.replicate, d.shard);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(degrees(-1, 1, 4), "4 x 1");
  EXPECT_EQ(data_degrees({.tensor_parallel_degree = 2}, 6).replicate, 3);
  EXPECT_EQ(message_of([] { data_degrees({.tensor_parallel_degree = 4}, 6); }),
            "parallelism.tensor_parallel_degree = 4 does not divide 6 ranks; start a multiple of 4 ranks, or set "
            "another degree");
  EXPECT_EQ(data_degrees({.expert_parallel_degree = 2}, 6).expert, 2);
  EXPECT_EQ(data_degrees({.data_parallel_shard_degree = 4, .expert_parallel_degree = 2}, 4).expert_shard(), 2);
  EXPECT_EQ(message_of([] { data_degrees({.expert_parallel_degree = 4}, 6); }),
            "parallelism.expert_parallel_degree = 4 does not divide 6 ranks; expected one of 1, 2");
  EXPECT_EQ(degrees(1, -1, 6), "1 x 6");
  EXPECT_EQ(degrees(-1, 3, 6), "2 x 3");
  EXPECT_EQ(degrees(2, 2, 4), "2 x 2");
  EXPECT_EQ(degrees(-1, 4, 6),
            "parallelism.data_parallel_replicate_degree = -1 and data_parallel_shard_degree = 4 do not fit 6 ranks: "
            "expected one of 1, 2, 3, 6");
  EXPECT_EQ(degrees(2, 2, 1),
            "parallelism.data_parallel_replicate_degree = 2 and data_parallel_shard_degree = 2 do not fit 1 rank: "
            "their product is 4; set one of them to -1, or start 4 ranks");
  EXPECT_EQ(degrees(-1, -1, 2),
            "parallelism.data_parallel_replicate_degree and data_parallel_shard_degree are both -1; one of them can be "
            "the rest of the 2 ranks: give the other a number, "
            "such as --parallelism.data_parallel_replicate_degree=1");
}

}  // namespace
}  // namespace tutti::train
