// What may change between two starts of a run, and what happens then: each row of the table in docs/resuming.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>

#include "tests/cli/support/tiny_run.h"
#include "tutti/core/hash.h"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

enum class Outcome {
  equal,    // continues, and every number is that of the run that was never stopped
  differs,  // continues with other numbers, and says so
  refused,  // ends with an error and leaves the run as it was
};

struct ResumeCase {
  const char* name;
  const char* changed;  // as the page says it
  Outcome outcome;
  std::string says = "";  // part of what the program writes; "" where it has nothing to say
  std::function<void(const Workplace&)> change = [](const Workplace&) {};
  std::string flags = "";
  std::string shell = "";
  const char* tokenizer = "bpe:300";  // that the run began with
  const char* run = "runs/run";       // where it lies after the change
};

void PrintTo(const ResumeCase& c, std::ostream* out) { *out << c.name; }

void append(const Workplace& w, const std::string& file, const std::string& text) {
  std::ofstream(w.folder() / file, std::ios::app) << text;
}

void replace(const Workplace& w, const std::string& file, const std::string& from, const std::string& to) {
  std::string text = w.read(file);
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << from << " is not in " << file;
  w.write(file, text.replace(place, from.size(), to));
}

// The same in a state.json, whose digest is that of the new text.
void replace_sealed(const Workplace& w, const std::string& file, const std::string& from, const std::string& to) {
  replace(w, file, from, to);
  const std::string seal = ",\n  \"digest\": \"";
  const std::string text = w.read(file), body = text.substr(0, text.rfind(seal));
  w.write(file, fmt::format("{}{}{:016x}\"\n}}\n", body, seal, hash64(body)));
}

void rename(const Workplace& w, const std::string& from, const std::string& to) {
  fs::rename(w.folder() / from, w.folder() / to);
}

auto remove(const std::string& name) {
  return [name](const Workplace& w) { fs::remove_all(w.folder() / name); };
}

// One bit of the byte at `place` from the end.
void flip(const Workplace& w, const std::string& file, size_t place) {
  std::string bytes = w.read(file);
  bytes[bytes.size() - place] ^= 1;
  w.write(file, bytes);
}

void reverse_lines(const Workplace& w, const std::string& file) {
  std::string lines;
  std::ifstream text(w.folder() / file);
  for (std::string line; std::getline(text, line);) lines = line + "\n" + lines;
  w.write(file, lines);
}

// A copy of step 3 in the place of step 6 that a copy or a deletion left without some files.
auto newest_lacks(const std::string& file) {
  return [file](const Workplace& w) {
    fs::copy(w.folder() / "runs/run/checkpoint/step-3", w.folder() / "runs/run/checkpoint/step-6");
    fs::remove(w.folder() / "runs/run/checkpoint/step-6" / file);
  };
}

const std::string kStep3 = "runs/run/checkpoint/step-3/";

std::vector<ResumeCase> resume_cases() {
  using enum Outcome;
  return {
      {"Nothing", "nothing", equal},
      // The machine and the way of computing.
      {"TwoRanks", "two ranks instead of one", equal, "", {}, "-n 2"},
      {"FourRanks", "four ranks instead of one", equal, "", {}, "-n 4"},
      {"OverTcp", "two ranks over TCP (`runtime.transport`)", equal, "", {}, "-n 2 --runtime.transport=gloo"},
      {"ThreeRanks", "three ranks instead of one", equal, "", {}, "-n 3"},
      {"NineRanks",
       "more ranks than virtual shards",
       refused,
       "9 data-parallel ranks cannot share 8 virtual shards",
       {},
       "-n 9"},
      {"Threads", "the number of threads", equal, "", {}, "", "TUTTI_THREADS=2"},
      {"InstructionSet", "the instruction set", equal, "", {}, "", "TUTTI_CPU=avx2"},
      {"Compiled", "`training.compile`", equal, "", {}, "--training.compile=true"},
      {"LossInChunks", "`training.loss_max_bytes`", equal, "", {}, "--training.loss_max_bytes=50000"},
      {"Recomputed", "`activation_checkpoint.mode`", equal, "", {}, "--activation_checkpoint.mode=full"},
      {"NoCache", "the cache folder", equal, "", {}, "", "TUTTI_CACHE_DIR=other-cache"},
      // Settings.
      {"FixedKey",
       "a key marked * in [config.md](config.md)",
       refused,
       "training.seed: 42 -> 7",
       {},
       "--training.seed=7"},
      {"LearningRate",
       "a key marked +, such as `optimizer.lr`",
       differs,
       "from step 4 on: optimizer.lr: 0.003 -> 0.001",
       {},
       "--optimizer.lr=1e-3"},
      {"MoreSteps", "`training.steps`", differs, "from step 4 on: training.steps: 6 -> 8", {}, "--training.steps=8"},
      {"SavesMoreOften",
       "`checkpoint.every`, `checkpoint.keep_latest`",
       equal,
       "",
       {},
       "--checkpoint.every=2 --checkpoint.keep_latest=1"},
      {"OtherFirstWeights",
       "`checkpoint.initial_load_path`",
       equal,
       "has no effect: the run continues from its own weights",
       {},
       "--checkpoint.initial_load_path=other.safetensors"},
      {"Fresh", "nothing, with `--fresh`: starts from the beginning", equal, "", {}, "--fresh"},
      {"FreshWithoutData", "the data is missing, with `--fresh`", refused, "data path 'data' does not exist",
       remove("data"), "--fresh"},
      {"WarmupLeftToTheRun",
       "`lr_scheduler.warmup_steps` is left to the run, which had a number",
       equal,
       "",
       {},
       "--lr_scheduler.warmup_steps=-1"},
      {"RetiredKey", "the file sets a key that selects nothing any more, such as `runtime.symm_backend`", equal,
       "runtime.symm_backend selects nothing: ranks share memory as runtime.transport says; leave it out",
       [](const Workplace& w) { append(w, "run.toml", "[runtime]\nsymm_backend = \"native\"\n"); }},
      // The text.
      {"DataMoved", "the data was moved to another folder", equal, "the file data/a.jsonl was moved to moved/a.jsonl",
       [](const Workplace& w) { rename(w, "data", "moved"); }, "--data moved"},
      {"FilesListed",
       "`--data` lists the files instead of naming their folder",
       equal,
       "",
       {},
       "--data data/a.jsonl data/b.jsonl data/c.txt"},
      {"FileRenamed", "a file was renamed, and the order of the files is the same", equal,
       "the file data/b.jsonl is called data/bb.jsonl now",
       [](const Workplace& w) { rename(w, "data/b.jsonl", "data/bb.jsonl"); }},
      {"FileTouched", "the modification time of a file", equal, "",
       [](const Workplace& w) {
         fs::last_write_time(w.folder() / "data/a.jsonl", fs::file_time_type::clock::now() + std::chrono::hours(1));
       }},
      {"BlankLine", "a blank line was added to a .jsonl file", equal, "the file data/a.jsonl changed: it had",
       [](const Workplace& w) { append(w, "data/a.jsonl", "\n"); }},
      {"FileCompressed", "a file was compressed", equal, "the file data/b.jsonl was removed",
       [](const Workplace& w) {
         ASSERT_EQ(std::system(("gzip '" + (w.folder() / "data/b.jsonl").string() + "'").c_str()), 0);
       }},
      {"FileAdded", "a file was added", refused, "the file data/d.txt was added (5 bytes, hash ",
       [](const Workplace& w) { w.write("data/d.txt", "more\n"); }},
      {"FileRemoved", "a file was removed", refused, "the file data/b.jsonl was removed (", remove("data/b.jsonl")},
      {"DocumentAdded", "a document was added to a file", refused, "the file data/b.jsonl changed: it had",
       [](const Workplace& w) { append(w, "data/b.jsonl", "{\"text\": \"more\"}\n"); }},
      {"ByteChanged", "one byte of the text was changed", refused,
       "the file data/c.txt changed: it had 61 bytes, hash ",
       [](const Workplace& w) { replace(w, "data/c.txt", "river", "rivet"); }},
      {"LinesReordered", "the order of lines in a .jsonl file", refused, "the file data/a.jsonl changed: it had",
       [](const Workplace& w) { reverse_lines(w, "data/a.jsonl"); }},
      {"FilesReordered",
       "the order of files",
       refused,
       "the files were reordered: at place 1 stood data/a.jsonl",
       {},
       "--data data/b.jsonl data/a.jsonl data/c.txt"},
      {"FileTwice", "a file is read twice", refused, "is read once more, at place 4", {}, "--data data data/c.txt"},
      {"FileMoved", "a file was renamed, and comes at another place", refused,
       "the file data/a.jsonl is called data/bb.jsonl now, and moved from place 1 to place 2",
       [](const Workplace& w) { rename(w, "data/a.jsonl", "data/bb.jsonl"); }},
      {"FilesSwapped", "the names of two files were swapped", refused,
       "the files data/a.jsonl and data/b.jsonl exchanged their names: ",
       [](const Workplace& w) {
         rename(w, "data/a.jsonl", "x");
         rename(w, "data/b.jsonl", "data/a.jsonl");
         rename(w, "x", "data/b.jsonl");
       }},
      {"OtherKind", "a .jsonl file was renamed to .txt", refused, "the file data/a.jsonl is called data/a.txt now",
       [](const Workplace& w) { rename(w, "data/a.jsonl", "data/a.txt"); }},
      {"DataGone", "the data is missing", refused, "data path 'data' does not exist", remove("data")},
      {"FileAddedOnPurpose", "a file was added, with `--data.changed=continue`", differs,
       "continuing all the same from step 3, row 24",
       [](const Workplace& w) {
         for (int i = 0; i < 50; ++i) w.write(fmt::format("data/d{}.txt", i), "more and more text\n");
       },
       "--data.changed=continue"},
      {"ReadyForChanges", "nothing, with `--data.changed=continue`", equal, "", {}, "--data.changed=continue"},
      // The tokenizer.
      {"AnotherSize",
       "`data.tokenizer` from bpe:300 to bpe:290",
       refused,
       "data.tokenizer: \"bpe:300\" -> \"bpe:290\"",
       {},
       "--data.tokenizer=bpe:290"},
      {"AnotherKind",
       "`data.tokenizer` from bpe:300 to byte",
       refused,
       "data.tokenizer: \"bpe:300\" -> \"byte\"",
       {},
       "--data.tokenizer=byte"},
      {"AnotherTokenizer",
       "`data.tokenizer` names a file with another tokenizer",
       refused,
       "the tokenizer tokenizer changed: it had 300 tokens, and has 292",
       {},
       "--data.tokenizer=tokenizer"},
      {"OwnFileNamed", "`data.tokenizer` names a copy of the run's own file", equal, "",
       [](const Workplace& w) { fs::copy_file(w.folder() / "runs/run/tokenizer.json", w.folder() / "copy.json"); },
       "--data.tokenizer=copy.json"},
      {"TokenizerMoved", "the tokenizer file was moved", equal, "",
       [](const Workplace& w) { rename(w, "tokenizer", "moved"); }, "--data.tokenizer=moved", "", "tokenizer"},
      {"TokenizerGone", "the tokenizer file is missing", equal,
       "the tokenizer tokenizer is gone; the run's own is used", remove("tokenizer"), "--data.tokenizer=tokenizer", "",
       "tokenizer"},
      {"MergesChanged", "the tokenizer file merges text differently", refused,
       "the tokenizer tokenizer changed: its tokens are the same, and it splits or merges text in another way",
       [](const Workplace& w) {
         replace(w, "tokenizer/tokenizer.json", R"("ignore_merges": false)", R"("ignore_merges": true)");
       },
       "--data.tokenizer=tokenizer", "", "tokenizer"},
      {"EosChanged", "EOS was changed in `tokenizer_config.json`", refused,
       "its EOS was token 291 '<|end|>', and is token 290 '<|begin|>'",
       [](const Workplace& w) { replace(w, "tokenizer/tokenizer_config.json", "<|end|>", "<|begin|>"); },
       "--data.tokenizer=tokenizer", "", "tokenizer"},
      {"MarkersGone", "`tokenizer_config.json` was removed", refused, "its BOS was token 290 '<|begin|>', and is none",
       remove("tokenizer/tokenizer_config.json"), "--data.tokenizer=tokenizer", "", "tokenizer"},
      {"EosChangedOnPurpose", "EOS was changed in `tokenizer_config.json`, with `--data.changed=continue`", equal,
       "the run keeps its own tokenizer",
       [](const Workplace& w) { replace(w, "tokenizer/tokenizer_config.json", "<|end|>", "<|begin|>"); },
       "--data.tokenizer=tokenizer --data.changed=continue", "", "tokenizer"},
      {"OwnTokenizerChanged", "`tokenizer.json` in the run folder was changed", refused,
       "runs/run/tokenizer.json is not what the run was trained with",
       [](const Workplace& w) {
         replace(w, "runs/run/tokenizer.json", R"("ignore_merges": false)", R"("ignore_merges": true)");
       }},
      {"OwnMarkersChanged", "`tokenizer_config.json` in the run folder was changed", refused,
       "EOS was token 299 and is none",
       [](const Workplace& w) { replace(w, "runs/run/tokenizer_config.json", "\"<|endoftext|>\"", "null"); }},
      {"OwnTokenizerGone", "`tokenizer.json` in the run folder was removed", refused,
       "runs/run/tokenizer.json is missing", remove("runs/run/tokenizer.json")},
      // The run folder.
      {"RunMoved", "the run folder was moved", equal, "",
       [](const Workplace& w) {
         fs::create_directory(w.folder() / "kept");
         rename(w, "runs/run", "kept/again");
       },
       "--run.dir=kept --run.name=again", "", "bpe:300", "kept/again"},
      {"ConfigGone", "`config.resolved.toml` was removed", equal, "", remove("runs/run/config.resolved.toml")},
      {"MetricsTorn", "the last line of `metrics.jsonl` is incomplete", equal, "",
       [](const Workplace& w) { append(w, "runs/run/metrics.jsonl", "{\"step\":7,\"lo"); }},
      {"KilledWhileSaving", "the run was killed while saving", equal, "removed runs/run/checkpoint/.tmp-step-6",
       [](const Workplace& w) {
         fs::copy(w.folder() / "runs/run/checkpoint/step-3", w.folder() / "runs/run/checkpoint/.tmp-step-6");
       }},
      {"StateMissing", "the newest checkpoint lacks `state.json`", equal,
       "skipped a checkpoint: runs/run/checkpoint/step-6 is incomplete: state.json missing",
       newest_lacks("state.json")},
      {"ModelMissing", "the newest checkpoint lacks `model.safetensors`", equal,
       "step-6 is incomplete: model.safetensors missing", newest_lacks("model.safetensors")},
      {"MomentsMissing", "the newest checkpoint lacks `optimizer.safetensors`", equal,
       "step-6 is incomplete: optimizer.safetensors missing", newest_lacks("optimizer.safetensors")},
      {"NoneWhole", "no checkpoint is complete", refused,
       "no checkpoint of the run runs/run is whole:\n  runs/run/checkpoint/step-3 is incomplete: state.json missing",
       remove(kStep3 + "state.json")},
      {"NoCheckpoint", "all checkpoints were removed", equal,
       "has steps in metrics.jsonl but no checkpoint; it starts from the beginning", remove("runs/run/checkpoint")},
      {"StateChanged", "one byte of `state.json` was changed", refused,
       "step-3/state.json is damaged: its bytes are not those that were saved",
       [](const Workplace& w) { replace(w, kStep3 + "state.json", "\"next_row\": 24", "\"next_row\": 25"); }},
      {"WeightFlipped", "one bit of `model.safetensors` was flipped", refused, "changed: model.norm.weight",
       [](const Workplace& w) { flip(w, kStep3 + "model.safetensors", 1); }},
      {"MomentFlipped", "one bit of `optimizer.safetensors` was flipped", refused, "step-3 is damaged",
       [](const Workplace& w) { flip(w, kStep3 + "optimizer.safetensors", 1); }},
      {"ModelCutShort", "`model.safetensors` was truncated", refused, "model.safetensors",
       [](const Workplace& w) { fs::resize_file(w.folder() / (kStep3 + "model.safetensors"), 5000); }},
      {"StepRenamed", "a step folder was renamed to another step", refused,
       "state.json is that of step 3, the folder is named for step 30",
       [](const Workplace& w) { rename(w, "runs/run/checkpoint/step-3", "runs/run/checkpoint/step-30"); }},
      {"OtherNumerics", "the program has another `numerics.version`", refused,
       "was computed by numerics.version 1, and this program has version 7",
       [](const Workplace& w) {
         replace_sealed(w, kStep3 + "state.json", "\"numerics_version\": 7", "\"numerics_version\": 1");
       }},
      {"OtherNumericsOnPurpose", "another `numerics.version`, with `--numerics.changed=continue`", equal,
       "numerics.version was 1 and is 7; continuing all the same",
       [](const Workplace& w) {
         replace_sealed(w, kStep3 + "state.json", "\"numerics_version\": 7", "\"numerics_version\": 1");
       },
       "--numerics.changed=continue"},
      {"OlderFormat", "the checkpoint has another format", refused, "state.json has format 3; this version reads 4",
       [](const Workplace& w) { replace(w, kStep3 + "state.json", "\"format\": 4", "\"format\": 3"); }},
  };
}

// A run that was stopped after step 3, and what it comes to when it is not stopped; made once per tokenizer.
struct HalfRun {
  Workplace work;
  std::string whole;
};
const HalfRun& half_run(const std::string& tokenizer) {
  static std::map<std::string, std::unique_ptr<HalfRun>> runs;
  std::unique_ptr<HalfRun>& run = runs[tokenizer];
  if (run == nullptr) {
    run = std::make_unique<HalfRun>();
    write_tiny_run(run->work);
    EXPECT_EQ(run->work.tutti("train run.toml --quiet --run.name=run --data.tokenizer=" + tokenizer).status, 0)
        << run->work.read("err.txt");
    run->whole = outcome_of(run->work);
    fs::remove_all(run->work.folder() / "runs/run/checkpoint/step-6");
  }
  return *run;
}

// All that must stay as it was when a start is refused.
std::map<std::string, std::string> contents_of(const fs::path& run) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    std::ifstream file(entry.path(), std::ios::binary);
    if (entry.is_regular_file() && entry.path().filename() != ".lock")
      files[entry.path().string()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

struct ResumeCases : testing::TestWithParam<ResumeCase> {};

TEST_P(ResumeCases, HaveTheOutcomeOfTheTable) {
  const ResumeCase& c = GetParam();
  const HalfRun& before = half_run(c.tokenizer);
  const Workplace work;
  fs::copy(before.work.folder(), work.folder(), fs::copy_options::recursive);
  if (c.change) c.change(work);
  const auto untouched = contents_of(work.folder() / c.run);
  const Output output = work.tutti("train run.toml --quiet --run.name=run " + c.flags, c.shell);
  EXPECT_NE(output.err.find(c.says), std::string::npos) << output.err;
  if (c.outcome == Outcome::refused) {
    EXPECT_NE(output.status, 0);
    EXPECT_TRUE(contents_of(work.folder() / c.run) == untouched) << "the run folder changed";
    return;
  }
  ASSERT_EQ(output.status, 0) << output.err;
  EXPECT_EQ(output.err.empty(), c.says.empty()) << output.err;
  const bool equal = outcome_of(work, c.run) == before.whole;
  EXPECT_EQ(equal, c.outcome == Outcome::equal) << outcome_of(work, c.run) << "\ninstead of\n" << before.whole;
}

INSTANTIATE_TEST_SUITE_P(, ResumeCases, testing::ValuesIn(resume_cases()),
                         [](const auto& info) { return info.param.name; });

std::string table() {
  const std::map<Outcome, const char*> words = {{Outcome::equal, "continues, equal bits"},
                                                {Outcome::differs, "continues, different numbers"},
                                                {Outcome::refused, "**refused**"}};
  std::string text = "| | changed between two starts | result | message |\n|---|---|---|---|\n";
  int row = 0;
  for (const ResumeCase& c : resume_cases()) {
    std::string says = c.says.empty() ? "" : fmt::format("`{}`", c.says);
    if (const size_t line = says.find("\n  "); line != std::string::npos) says.replace(line, 3, " ");
    text += fmt::format("| {} | {} | {} | {} |\n", ++row, c.changed, words.at(c.outcome), says);
  }
  return text;
}

// TUTTI_RENEW_DOCS=1 in the environment writes the table anew.
TEST(ResumeTable, IsThatOfThePage) {
  const std::string path = TUTTI_SOURCE_DIR "/docs/resuming.md";
  std::ifstream file(path);
  std::string page(std::istreambuf_iterator<char>(file), {});
  const size_t begin = page.find("| | changed between");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = page.find("\n\n", begin) + 1;
  const std::string shown = page.substr(begin, end - begin);
  if (std::getenv("TUTTI_RENEW_DOCS") != nullptr) std::ofstream(path) << page.replace(begin, end - begin, table());
  EXPECT_EQ(shown, table());
}

struct DataChanged : testing::Test {
  DataChanged() {
    fs::copy(half_run("bpe:300").work.folder(), work.folder(), fs::copy_options::recursive);
    work.write("data/d.txt", "more\n");
  }
  Output train(const std::string& flags) const { return work.tutti("train run.toml --quiet --run.name=run " + flags); }
  Workplace work;
};

// A change that the user let pass is the run's data from there on, and remembered.
TEST_F(DataChanged, IsAskedAboutOnce) {
  EXPECT_EQ(train("").status, 2);
  const Output passed = train("--data.changed=continue");
  EXPECT_EQ(passed.status, 0) << passed.err;
  EXPECT_NE(passed.err.find("continuing all the same from step 3"), std::string::npos) << passed.err;
  const Output later = train("--training.steps=8");
  EXPECT_EQ(later.status, 0) << later.err;
  EXPECT_EQ(later.err.find("data/d.txt"), std::string::npos) << later.err;
  const std::string state = work.read("runs/run/checkpoint/step-8/state.json");
  EXPECT_NE(state.find("the file data/d.txt was added"), std::string::npos) << state;
}

TEST(CheckpointVerify, NamesWhatItPassesOver) {
  const Workplace work;
  fs::copy(half_run("bpe:300").work.folder(), work.folder(), fs::copy_options::recursive);
  newest_lacks("model.safetensors")(work);
  const Output check = work.tutti("checkpoint verify runs/run");
  EXPECT_EQ(check.status, 0) << check.err;
  EXPECT_NE(check.err.find("passed over runs/run/checkpoint/step-6: model.safetensors missing"), std::string::npos)
      << check.err;
}

// Two hosts with different copies of the data: each rank would read rows of its own.
TEST_F(DataChanged, OfOneRankOnlyIsNoticedByAll) {
  fs::create_directories(work.folder() / "0");
  fs::create_directories(work.folder() / "1");
  fs::copy(work.folder() / "data", work.folder() / "0/data");
  fs::copy(work.folder() / "data", work.folder() / "1/data");
  replace(work, "1/data/c.txt", "river", "rivet");
  work.write("rank.sh",
             fmt::format(
                 "cd $RANK; exec {} train ../run.toml --quiet --data.tokenizer=byte --run.dir=../runs --run.name=two\n",
                 TUTTI_BINARY_DIR "/tutti"));
  const Output output = work.tutti("launch -n 2 -- bash rank.sh");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("the text of rank 1 is not that of rank 0"), std::string::npos) << output.err;
}

// bpe:N would learn another vocabulary from the changed text; the embeddings belong to the old one.
TEST_F(DataChanged, TheLearnedTokenizerStays) {
  const std::string own = work.read("runs/run/tokenizer.json");
  work.write("data/d.txt", "zzzz zzzz zzzz zzzz zzzz zzzz zzzz zzzz zzzz zzzz zzzz zzzz zzzz zzzz\n");
  ASSERT_EQ(train("--data.changed=continue").status, 0) << work.read("err.txt");
  EXPECT_EQ(work.read("runs/run/tokenizer.json"), own);
}

// A start that is killed between saving and deleting leaves one more than it may, and what other starts left is as old:
// any start that goes on removes it.
TEST(OldCheckpointsOfARun, AreRemovedByTheNextStartWhoeverLeftThem) {
  Workplace work;
  write_tiny_run(work);
  ASSERT_EQ(work.tutti("train run.toml --quiet --checkpoint.every=1").status, 0);
  const auto folder = work.folder() / "runs/run/checkpoint";
  std::filesystem::remove(folder / "step-2/state.json");
  std::filesystem::create_directory(folder / ".tmp-step-9");
  EXPECT_EQ(work.tutti("train run.toml --quiet --checkpoint.keep_latest=3").status, 0);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"step-4", "step-5", "step-6"}));
}

}  // namespace
}  // namespace tutti::test
