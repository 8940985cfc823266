// `tutti bench layouts`: the promise as a command, on a model that takes a second.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace {

TEST(BenchLayouts, AllHaveTheSameBitsAndControlsDiffer) {
  Workplace work;
  write_tiny_run(work);
  const Output output =
      work.tutti("bench layouts run.toml --all --steps 4 --json --keep runs-of-it --model.flavor=tiny");
  ASSERT_EQ(output.status, 0) << output.out << output.err;
  std::istringstream lines(output.out);
  int same = 0, controls = 0;
  std::map<std::string, int> same_by_base;
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    if (!last.contains("layout")) continue;
    EXPECT_EQ(last["as_promised"], true) << line;
    EXPECT_GT(last["product_flops"], 0) << line;
    EXPECT_GT(last["peak_bytes"], 0) << line;
    const bool has_peers = std::string(last["layout"]).ends_with("-ranks");
    EXPECT_GE(last["sent_bytes"], has_peers ? 1 : 0) << line;
    controls += last["control"] == true;
    const std::string verdict = last["verdict"], name = last["layout"];
    if (!verdict.starts_with("same bits")) continue;
    ++same;
    // bf16 and dropout have other bits, and a run on one rank of their own that theirs are compared with.
    const size_t dash = name.find('-');
    const bool is_other = name.starts_with("bf16-") || name.starts_with("dropout-");
    EXPECT_EQ(verdict, is_other ? "same bits as " + name.substr(0, dash) + "-one-rank" : "same bits") << line;
    ++same_by_base[is_other ? name.substr(0, dash) : "one-rank"];
    EXPECT_EQ(last["losses"], 4) << line;
    EXPECT_GT(last["tensors"], 0) << line;
  }
  EXPECT_GE(same, 24);
  EXPECT_GE(same_by_base["one-rank"], 24);
  EXPECT_GE(same_by_base["bf16"], 1);
  EXPECT_EQ(same_by_base["dropout"], 5);
  EXPECT_EQ(controls, 2);
  EXPECT_EQ(last["layouts"], same);
  EXPECT_EQ(last["losses"], 4 * same);
  EXPECT_EQ(last["controls"], 2);
  EXPECT_EQ(work.tutti("diff runs-of-it/one-rank runs-of-it/killed-then-two-ranks").status, 0);
  EXPECT_EQ(work.tutti("diff runs-of-it/one-rank runs-of-it/bf16-one-rank").status, 1);
  EXPECT_EQ(work.tutti("diff runs-of-it/one-rank runs-of-it/dropout-one-rank").status, 1);
  EXPECT_EQ(work.tutti("diff runs-of-it/one-rank runs-of-it/control-token-grain").status, 1);
}

// Rows are chosen by name, with the run that they are compared with.
TEST(BenchLayouts, RunsTheRowsThatAreNamed) {
  Workplace work;
  write_tiny_run(work);
  const Output output = work.tutti(
      "bench layouts run.toml --all --steps 2 --json --only bf16-two-ranks,control-token-grain --model.flavor=tiny");
  ASSERT_EQ(output.status, 0) << output.out << output.err;
  std::istringstream lines(output.out);
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row.contains("layout")) names.push_back(row["layout"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"one-rank", "bf16-one-rank", "bf16-two-ranks", "control-token-grain"}));
}

// The run that is under way ends with the command, and its folder goes.
TEST(BenchLayouts, ASignalLeavesNothingBehind) {
  Workplace work;
  write_tiny_run(work);
  std::filesystem::create_directory(work.folder() / "tmp");
  const int pid =
      work.start("bench layouts run.toml --steps 2000", fmt::format("TMPDIR='{}'", (work.folder() / "tmp").string()));
  const auto runs = [&] {
    for (const auto& folder : std::filesystem::directory_iterator(work.folder() / "tmp"))
      if (std::filesystem::exists(folder.path() / "one-rank/metrics.jsonl")) return true;
    return false;
  };
  for (int i = 0; i < 1000 && !runs(); ++i) usleep(20'000);
  ASSERT_TRUE(runs());
  kill(pid, SIGTERM);
  EXPECT_EQ(Workplace::wait(pid), 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::is_empty(work.folder() / "tmp"));
}

TEST(BenchLayouts, SaysWhatIsWrong) {
  Workplace work;
  write_tiny_run(work);
  std::filesystem::create_directory(work.folder() / "full");
  work.write("full/file", "");
  const std::pair<const char*, const char*> cases[] = {
      {"bench layouts", "config is required"},
      {"bench layouts gone.toml", "gone.toml"},
      {"bench layouts run.toml --steps 1", "--steps"},
      {"bench layouts run.toml --keep full", "full is not empty; the runs need a folder of their own"},
      {"bench layouts run.toml --step 4", "--step"},
      {"bench layouts run.toml --only eight-ranks",
       "bench layouts: 'eight-ranks' is no row, at least without --all; expected some of one-rank, two-threads"},
      {"bench layouts run.toml --training.sede=1", "training.sede"},
  };
  for (const auto& [command, message] : cases) {
    const Output output = work.tutti(command);
    EXPECT_EQ(output.status, 2) << command;
    EXPECT_NE(output.err.find(message), std::string::npos) << command << ": " << output.err;
  }
}

}  // namespace
}  // namespace tutti::test
