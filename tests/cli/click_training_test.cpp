// `tutti train` with a click model: the same numbers on any ranks, from any files, killed or not; and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>

#include "tests/cli/support/program.h"
#include "tutti/io/generated_clicks.h"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = R"(
[model]
name = "dlrm"
[clicks]
table_rows = [4, 60, 2000]
global_batch_samples = 64
validation_rows = 700
[dlrm]
bottom = [9]
top = [12]
[tables]
dim = 6
[training]
steps = 12
[optimizer]
lr = 0.01
[validation]
every = 4
[checkpoint]
every = 4
keep_latest = -1
)";
constexpr int64_t kHeldOut = 5000;  // the first row of files that is held out

struct ClickRuns : testing::Test {
  ClickRuns() {
    work.write("generated.toml", std::string(kModel) + "[run]\nname = \"run\"\n");
    const GeneratedClicks clicks(criteo_columns({4, 60, 2000}));
    const auto at = [&](const char* name) { return (work.folder() / name).string(); };
    clicks.write_csv(at("a.csv"), 0, 301);  // so that files end in the middle of shards
    clicks.write_csv(at("b.csv"), 301, 200);
    clicks.write_npy(at("a"), 0, 301);
    clicks.write_npy(at("b"), 301, 200);
    clicks.write_csv(at("held.csv"), kHeldOut, 900);
    clicks.write_npy(at("held"), kHeldOut, 900);
    work.write("text.toml", std::string(kModel) + "[data]\npaths = [\"a.csv\", \"b.csv\"]\n[run]\nname = \"run\"\n");
  }
  static std::string of(const char* source) {
    return std::string(source) == "generated" ? "generated.toml --clicks.source=generated"
                                              : "text.toml --clicks.validation_paths=held.csv";
  }
  Output train(const std::string& config, const std::string& name, const std::string& more = "") {
    return work.tutti(fmt::format("train {} --quiet --run.name={} {}", config, name, more));
  }
  // Losses, norms, held-out metrics and all values of a run.
  std::string outcome(const std::string& name) {
    std::string text = work.digest(name);
    for (const char* key : {"loss_hex", "grad_norm_hex", "lr", "samples_seen"})
      for (const std::string& value : work.metric(name, key)) text += " " + value;
    for (const std::string& line : lines_of(work.read("runs/" + name + "/metrics.jsonl"))) {
      const size_t at = line.find("\"val_auc\"");
      if (at != std::string::npos) text += "\n" + line.substr(at);
    }
    return text;
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines.push_back(text.substr(begin, end - begin));
    return lines;
  }
  void expect_refused(const std::string& config, const std::string& more, const std::string& says, int status = 2) {
    const Output refused = train(config, "refused", more);
    EXPECT_EQ(refused.status, status) << more << refused.err;
    EXPECT_NE(refused.err.find(says), std::string::npos) << more << ": " << refused.err;
    EXPECT_FALSE(fs::exists(work.folder() / "runs/refused/metrics.jsonl")) << more;
  }
  Workplace work;
};

TEST_F(ClickRuns, NumbersAreEqualOnAnyRanksThreadsAndSchedule) {
  for (const char* source : {"generated", "files"}) {
    ASSERT_EQ(train(of(source), "one", "--fresh").status, 0) << work.read("err.txt");
    const std::string expected = outcome("one");
    EXPECT_NE(expected.find("\n\"val_auc\":"), std::string::npos) << expected;
    for (const char* flags :
         {"-n 2", "-n 3 --runtime.transport=threads", "-n 4", "-n 2 --runtime.transport=gloo --checkpoint.async=true",
          "-n 2 --parallelism.data_parallel_overlap=backward --numerics.mode=strict",
          "-n 2 --parallelism.data_parallel_schedule=every_round", "--runtime.threads=2",
          "-n 2 --tables.placements=table_wise", "-n 3 --tables.placements=row_wise --checkpoint.async=true",
          "-n 4 --tables.placements=data_parallel", "-n 4 --tables.placements=row_wise --tables.memory_mib=1"}) {
      ASSERT_EQ(train(of(source), "many", std::string("--fresh ") + flags).status, 0) << flags << work.read("err.txt");
      EXPECT_EQ(outcome("many"), expected) << source << " " << flags;
    }
  }
}

TEST_F(ClickRuns, ArraysAndTextHaveTheSameNumbers) {
  ASSERT_EQ(train(of("files"), "text").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("text.toml --data a --data b --clicks.validation_paths=held", "arrays", "-n 2").status, 0)
      << work.read("err.txt");
  EXPECT_EQ(outcome("arrays"), outcome("text"));
  // A pattern stands for its files in sorted order.
  ASSERT_EQ(train("text.toml --data [ab].csv --clicks.validation_paths=hel*.csv", "pattern").status, 0)
      << work.read("err.txt");
  EXPECT_EQ(outcome("pattern"), outcome("text"));
  // Columns have any names and order, and others are passed over.
  std::string renamed = work.read("a.csv");
  renamed.replace(renamed.find("cat_1"), 5, "shop");
  work.write("c.csv", renamed);
  const std::string names = " --clicks.category_columns=cat_0,shop,cat_2 --data c.csv --validation.every=0";
  ASSERT_EQ(train("text.toml", "named", names).status, 0) << work.read("err.txt");
  ASSERT_EQ(train("text.toml --data a --validation.every=0", "plain").status, 0) << work.read("err.txt");
  EXPECT_EQ(work.metric("named", "loss_hex"), work.metric("plain", "loss_hex"));
}

TEST_F(ClickRuns, ARunThatIsStoppedGoesOnWithTheSameNumbersOnOtherRanks) {
  for (const char* source : {"generated", "files"}) {
    ASSERT_EQ(train(of(source), "whole", "--fresh").status, 0) << work.read("err.txt");
    for (const char* async : {"false", "true"}) {
      const std::string common = std::string(" --checkpoint.async=") + async;
      ASSERT_EQ(train(of(source), "parts", "--fresh -n 2 --stop-at=5" + common).status, 0) << work.read("err.txt");
      ASSERT_EQ(train(of(source), "parts", "--stop-at=9" + common).status, 0) << work.read("err.txt");
      ASSERT_EQ(train(of(source), "parts", "-n 4 --tables.placements=row_wise" + common).status, 0)
          << work.read("err.txt");
      EXPECT_EQ(outcome("parts"), outcome("whole")) << source << " " << async;
    }
  }
}

TEST_F(ClickRuns, ARunThatIsKilledGoesOnWithTheSameNumbers) {
  const std::string longer = " --training.steps=60 --checkpoint.every=5 --validation.every=20";
  ASSERT_EQ(train(of("files"), "whole", longer).status, 0) << work.read("err.txt");
  int kills = 0;
  for (int waited_ms = 150; waited_ms < 20'000; waited_ms = waited_ms * 3 / 2) {
    const int pid = work.start("train " + of("files") + " --quiet --run.name=killed -n 2" + longer);
    usleep(static_cast<useconds_t>(waited_ms) * 1000);
    kill(pid, SIGKILL);
    if (Workplace::wait(pid) == 0) break;
    ++kills;
  }
  ASSERT_EQ(train(of("files"), "killed", longer).status, 0) << work.read("err.txt");
  EXPECT_GT(kills, 0);
  EXPECT_EQ(outcome("killed"), outcome("whole"));
}

TEST_F(ClickRuns, ARecordedRunIsRepeated) {
  ASSERT_EQ(train(of("files"), "run", "-n 2").status, 0) << work.read("err.txt");
  for (const char* flags : {"--from 0", "--from 4 --steps 4 -n 2"}) {
    const Output output = work.tutti(std::string("replay runs/run ") + flags);
    EXPECT_EQ(output.status, 0) << flags << output.out << output.err;
    EXPECT_NE(output.out.find("same bits"), std::string::npos) << output.out;
  }
}

TEST_F(ClickRuns, LogAndReportTellWhatWasMeasured) {
  const Output run = work.tutti("train " + of("generated") + " --run.name=run");
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* words : {"generated rows of 13 dense and 3 category columns\n",
                            "training 12739 parameters on 1 rank, 3 tables with 2064 rows of 6, stepped by row-wise "
                            "Adagrad and not clipped, "
                            "64 samples a step\n",
                            "the best possible AUC on the held-out rows is 0.", " samples/s  ", "  val AUC 0.",
                            ", calibration ", ", loss 0.", "peak memory of a step on rank 0: "})
    EXPECT_NE(run.err.find(words), std::string::npos) << words << "\n" << run.err;
  const std::string page = work.read("runs/run/report.html");
  for (const char* words :
       {"AUC; 0.", " below the best possible one", "best possible on these rows", "Calibration", "<span>Samples</span>",
        "samples per second", "nats per sample", "dlrm, trained with Tutti"})
    EXPECT_NE(page.find(words), std::string::npos) << words;
  for (const char* words : {"sequence_length", "tokens", "bits per byte"})
    EXPECT_EQ(page.find(words), std::string::npos) << words;
  const Output step = work.tutti("report runs/run");
  EXPECT_NE(step.out.find(" samples/s, peak memory "), std::string::npos) << step.out;
  const std::string resolved = work.read("runs/run/config.resolved.toml");
  EXPECT_NE(resolved.find("table_rows = [4, 60, 2000]\n"), std::string::npos) << resolved;
  EXPECT_EQ(resolved.find("tokenizer"), std::string::npos) << resolved;
  EXPECT_FALSE(fs::exists(work.folder() / "runs/run/sample.txt"));
}

TEST_F(ClickRuns, FirstWeightsAreThoseOfAnotherRun) {
  ASSERT_EQ(train(of("generated"), "first").status, 0) << work.read("err.txt");
  ASSERT_EQ(train(of("generated"), "second", "--checkpoint.initial_load_path=runs/first --training.seed=7").status, 0)
      << work.read("err.txt");
  EXPECT_LT(std::stod(work.metric("second", "loss")[0]), std::stod(work.metric("first", "loss")[0]));
}

TEST_F(ClickRuns, WrongDataAreNamedBeforeAnythingRuns) {
  const std::string validated = " --clicks.validation_paths=held.csv";
  fs::create_directory(work.folder() / "empty");
  work.write("empty.csv", "");
  expect_refused("text.toml", validated + " --data gone.csv", "data path 'gone.csv' does not exist");
  expect_refused("text.toml", validated + " --data empty", "cannot open 'empty/label.npy'", 1);
  expect_refused("text.toml", " --clicks.validation_paths=gone*.csv", "no file matches the data pattern 'gone*.csv'");
  expect_refused("text.toml", "", "validation.every = 4 needs held-out rows, but clicks.validation_paths is empty");
  expect_refused("text.toml", validated + " --clicks.label_column=clicked",
                 "clicks: a.csv has no column 'clicked'; its header is: label,");
  expect_refused("text.toml", validated + " --clicks.dense_columns=int_0,age", "has no column 'age'");
  expect_refused("text.toml", validated + " --clicks.table_rows=4,60,2000,7", "has no column 'cat_3'");
  expect_refused("text.toml", validated + " --data empty.csv", "clicks: empty.csv is empty; expected a header", 1);
}

TEST_F(ClickRuns, WrongValuesAreNamedWithTheirPlaceOnAnyRanks) {
  std::string rows = work.read("a.csv");
  for (const char* flags : {"", "-n 2"}) {
    const Output outside = train(of("files"), "outside", std::string("--fresh --clicks.table_rows=4,7,2000 ") + flags);
    EXPECT_EQ(outside.status, 1) << outside.err;
    EXPECT_NE(outside.err.find("column 'cat_1'"), std::string::npos) << outside.err;
    EXPECT_NE(outside.err.find("expected a whole number, 0 to 6"), std::string::npos) << outside.err;
  }
  // Held-out rows are checked, too.
  work.write("bad.csv", rows.substr(0, rows.find('\n') + 1) + "2" + rows.substr(rows.find('\n') + 2));
  const Output held = train("text.toml --clicks.validation_paths=bad.csv", "held", "-n 2");
  EXPECT_EQ(held.status, 1) << held.err;
  EXPECT_NE(held.err.find("bad.csv, line 2, column 'label'"), std::string::npos) << held.err;
}

TEST_F(ClickRuns, FilesThatHaveChangedAreNoticedWhenARunGoesOn) {
  ASSERT_EQ(train(of("files"), "run", "--stop-at=4").status, 0) << work.read("err.txt");
  fs::rename(work.folder() / "a.csv", work.folder() / "moved.csv");
  const std::string moved = "text.toml --clicks.validation_paths=held.csv --data moved.csv --data ";
  work.write("longer.csv", work.read("b.csv") + work.read("b.csv").substr(work.read("b.csv").find('\n') + 1));
  const Output refused = train(moved + "longer.csv", "run");
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_NE(refused.err.find("longer.csv has another size or header than b.csv had, file 2 of data.paths"),
            std::string::npos)
      << refused.err;
  const Output fewer = train("text.toml --clicks.validation_paths=held.csv --data moved.csv", "run");
  EXPECT_NE(fewer.err.find("data.paths names 1 file, and named 2"), std::string::npos) << fewer.err;
  const Output other = train(moved + "b.csv", "run", "--tables.dim=8");
  EXPECT_NE(other.err.find("tables.dim: 6 -> 8"), std::string::npos) << other.err;
  EXPECT_EQ(train(moved + "longer.csv", "run", "--data.changed=continue --stop-at=6").status, 0)
      << work.read("err.txt");
}

TEST_F(ClickRuns, CommandsForTextRefuseThem) {
  ASSERT_EQ(train(of("generated"), "run", "--stop-at=2").status, 0) << work.read("err.txt");
  for (const char* command : {"generate runs/run", "plan --files generated.toml --clicks.source=generated"}) {
    const Output refused = work.tutti(command);
    EXPECT_EQ(refused.status, 2) << command << refused.err;
    EXPECT_NE(refused.err.find("a click model"), std::string::npos) << command << refused.err;
  }
}

TEST_F(ClickRuns, EvalScoresTheNewestCheckpoint) {
  const auto number = [](const std::string& text, const std::string& key) {
    const size_t at = text.find("\"" + key + "\":");
    return at == std::string::npos ? std::nan("") : std::stod(text.substr(at + key.size() + 3));
  };
  for (const char* source : {"generated", "files"}) {
    ASSERT_EQ(train(of(source), "run", "--fresh -n 2").status, 0) << work.read("err.txt");
    std::string recorded = work.read("runs/run/metrics.jsonl");
    recorded.erase(0, recorded.rfind("\"val_auc\"") - 1);  // of the last step, which has a checkpoint
    const Output scored = work.tutti("eval runs/run --json");
    ASSERT_EQ(scored.status, 0) << scored.err;
    EXPECT_EQ(number(scored.out, "auc"), number(recorded, "val_auc")) << scored.out << recorded;
    EXPECT_EQ(number(scored.out, "calibration"), number(recorded, "val_calibration"));
    EXPECT_EQ(number(scored.out, "step"), 12);
    EXPECT_EQ(scored.out.find("best_auc") != std::string::npos, std::string(source) == "generated") << scored.out;
    const Output text = work.tutti("eval runs/run --data held --dtype float32");
    ASSERT_EQ(text.status, 0) << text.err;
    EXPECT_EQ(text.out.find("dlrm after step 12: 900 held-out rows\nAUC 0."), 0u) << text.out;
  }
  const auto refused = [&](const std::string& words, const char* says) {
    const Output output = work.tutti("eval " + words);
    EXPECT_EQ(output.status, 2) << words << output.err;
    EXPECT_NE(output.err.find(says), std::string::npos) << words << output.err;
  };
  for (const std::string flag : {"--dtype bfloat16", "--quantize int8", "--window 8", "--text-field body"})
    refused("runs/run " + flag, ("--" + flag.substr(2, flag.find(' ') - 2) + " is for language models").c_str());
  refused("runs/gone", "eval: runs/gone does not exist");
  refused("runs/run --data gone*.csv", "no file matches the data pattern 'gone*.csv'");
  ASSERT_EQ(train("text.toml", "other", "--validation.every=0").status, 0) << work.read("err.txt");
  refused("runs/other", "runs/other has no held-out rows: its clicks.validation_paths is empty");
  fs::remove_all(work.folder() / "runs/run/checkpoint");
  refused("runs/run", "runs/run holds no complete checkpoint");
}

TEST_F(ClickRuns, PlansTellMemoryAndBytes) {
  const Output plan = work.tutti("plan -n 2 " + of("generated"));
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_NE(plan.out.find("dp_replicate 2"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("sent"), std::string::npos) << plan.out;
  EXPECT_EQ(work.tutti("plan --all -n 2 " + of("generated")).status, 0);
  expect_refused(of("generated"), "--clicks.table_rows=900000000000,60,2000", "Use a smaller tables.dim than 6");
}

}  // namespace
}  // namespace tutti::test
