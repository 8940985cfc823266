// `tutti diff`: the first step, tensor and element where two runs part, and an exit status that `git bisect run`
// understands.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/support/tiny_run.h"
#include "tutti/io/safetensors.h"

namespace tutti::test {
namespace {

struct Diff : testing::Test {
  Diff() { write_tiny_run(work); }

  void train(const std::string& name, const std::string& flags = "") {
    const Output run = work.tutti(fmt::format("train run.toml --quiet --run.name={} {}", name, flags));
    ASSERT_EQ(run.status, 0) << run.err;
  }
  // One element of a tensor in a file of the run becomes `value`.
  void plant(const std::string& file, const std::string& tensor, int64_t element, float value) {
    const std::string path = (work.folder() / file).string();
    std::vector<std::pair<std::string, Tensor>> tensors;
    {
      const SafetensorsFile stored(path);
      for (const auto& entry : stored.entries()) {
        const Tensor old = stored.tensor(entry.name);
        Tensor copy = Tensor::empty(old.extents(), old.dtype());
        copy_elements(copy, old);
        if (entry.name == tensor) copy.data<float>()[element] = value;
        tensors.emplace_back(entry.name, copy);
      }
    }
    write_safetensors(path, tensors);
  }

  Workplace work;
};

TEST_F(Diff, OtherLayoutsHaveTheSameBits) {
  train("one");
  train("two", "-n 2");
  const Output text = work.tutti("diff runs/one runs/two");
  EXPECT_EQ(text.status, 0) << text.out << text.err;
  EXPECT_NE(text.out.find("numbers of steps 1 to 6: same bits\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("checkpoints of steps 3, 6: "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("(does not change the numbers)\n"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("may change"), std::string::npos) << text.out;
  for (const char* paths :
       {"runs/one/metrics.jsonl runs/two/metrics.jsonl", "runs/one/checkpoint/step-3 runs/two/checkpoint/step-3",
        "runs/one/checkpoint/step-3 runs/two", "runs/one/checkpoint runs/two/checkpoint",
        "runs/one/checkpoint/step-6/model.safetensors runs/two"}) {
    EXPECT_EQ(work.tutti(std::string("diff ") + paths).status, 0) << paths;
  }
}

TEST_F(Diff, NamesTheFirstStepAndTheSettings) {
  train("one");
  train("two", "--training.seed=43 --training.steps=5");
  const Output text = work.tutti("diff runs/one runs/two");
  EXPECT_EQ(text.status, 1) << text.err;
  EXPECT_NE(text.out.find("setting training.seed: 42 | 43 (may change the numbers)\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("only in the first: step 6\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("numbers of steps 1 to 5: first difference at step 1: loss 0x1."), std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("different: loss from step 1 on; "), std::string::npos) << text.out;
  const auto json = nlohmann::json::parse(work.tutti("diff --json runs/one runs/two").out);
  EXPECT_EQ(json["same_bits"], false);
  EXPECT_EQ(json["number"]["step"], 1);
  EXPECT_EQ(json["number"]["a"], work.metric("one", "loss_hex")[0]);
  EXPECT_EQ(json["number"]["b"], work.metric("two", "loss_hex")[0]);
  EXPECT_GT(json["number"]["ulps"], 0);
}

TEST_F(Diff, ListsTheCheckpointsThatOnlyOneRunHas) {
  train("one");
  train("two", "--checkpoint.every=2");
  const Output text = work.tutti("diff runs/one runs/two");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("checkpoints only in the first: step 3\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("checkpoints only in the second: steps 2, 4\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("checkpoints of step 6: "), std::string::npos) << text.out;
  const auto json = nlohmann::json::parse(work.tutti("diff --json runs/two runs/one").out);
  EXPECT_EQ(json["checkpoints_only_in_a"], (std::vector<int>{2, 4}));
  EXPECT_EQ(json["checkpoints_only_in_b"], std::vector<int>{3});
  // A file of metrics or weights has no checkpoints to miss.
  EXPECT_EQ(work.tutti("diff runs/one runs/two/metrics.jsonl").out.find("checkpoints only"), std::string::npos);
}

// Another version of the program may have settings of kinds that this one does not know.
TEST_F(Diff, ComparesSettingsThatNoKeyHereCanHold) {
  train("one");
  std::filesystem::copy(work.folder() / "runs/one", work.folder() / "runs/two",
                        std::filesystem::copy_options::recursive);
  const std::string config = work.read("runs/one/config.resolved.toml");
  work.write("runs/one/config.resolved.toml",
             config + "\n[later]\nbetas = [0.9, 0.95]\nsame = [1, 2]\nday = 2020-01-02\n");
  work.write("runs/two/config.resolved.toml",
             config + "\n[later]\nbetas = [0.9, 0.99]\nsame = [1, 2]\nday = 2020-01-03\n");
  const Output text = work.tutti("diff runs/one runs/two");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("setting later.betas: [0.9, 0.95] | [0.9, 0.99] (may change the numbers)\n"),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("setting later.day: 2020-01-02 | 2020-01-03 (may change the numbers)\n"), std::string::npos)
      << text.out;
  EXPECT_EQ(text.out.find("later.same"), std::string::npos) << text.out;
}

TEST_F(Diff, NamesTheTensorAndTheElement) {
  train("one");
  for (const char* name : {"one", "two"})
    std::filesystem::copy_file(work.folder() / "runs/one/checkpoint/step-6/model.safetensors",
                               work.folder() / (std::string(name) + ".safetensors"));
  plant("two.safetensors", "model.norm.weight", 5, 7.5f);
  plant("two.safetensors", "model.layers.0.input_layernorm.weight", 0, 1e3f);
  const Output text = work.tutti("diff one.safetensors two.safetensors");
  EXPECT_EQ(text.status, 1) << text.err;
  // The tensor that is farthest from the other's comes first.
  EXPECT_NE(
      text.out.find("2 tensors differ, the farthest apart first\n  model.layers.0.input_layernorm.weight f32: 1 of "),
      std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("\n  model.norm.weight f32: 1 of "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("first [5]: 0x1."), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("| 0x1.ep+2, "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\ndifferent: model.layers.0.input_layernorm.weight at step 0\n"), std::string::npos)
      << text.out;
}

// A checkpoint that is not what was saved, or lacks a part, says nothing about the run.
TEST_F(Diff, ADamagedOrIncompleteCheckpointIsNoAnswer) {
  train("one");
  for (const char* name : {"damaged", "partial"})
    std::filesystem::copy(work.folder() / "runs/one", work.folder() / "runs" / name,
                          std::filesystem::copy_options::recursive);
  plant("runs/damaged/checkpoint/step-6/model.safetensors", "model.norm.weight", 5, 7.5f);
  const Output damaged = work.tutti("diff runs/one runs/damaged");
  EXPECT_EQ(damaged.status, 125) << damaged.out;
  EXPECT_NE(damaged.err.find("runs/damaged/checkpoint/step-6 is damaged"), std::string::npos) << damaged.err;
  EXPECT_NE(damaged.err.find("changed: model.norm.weight"), std::string::npos) << damaged.err;
  EXPECT_EQ(work.tutti("diff runs/one/checkpoint/step-3 runs/damaged").status, 0);
  std::filesystem::remove(work.folder() / "runs/partial/checkpoint/step-6/optimizer.safetensors");
  const Output partial = work.tutti("diff runs/one/checkpoint/step-6 runs/partial/checkpoint/step-6");
  EXPECT_EQ(partial.status, 125) << partial.out;
  EXPECT_NE(partial.err.find("runs/partial/checkpoint/step-6 lacks optimizer.safetensors"), std::string::npos)
      << partial.err;
}

TEST_F(Diff, NeighbouringNormsAreOneUlpApart) {
  train("one");
  const std::string norm = work.metric("one", "grad_norm_hex")[2];
  const std::string next = fmt::format("{:a}", std::nextafter(std::stof(norm), 1e30f));
  std::string metrics = work.read("runs/one/metrics.jsonl");
  metrics.replace(metrics.find(norm), norm.size(), next);
  work.write("next.jsonl", metrics);
  const Output text = work.tutti("diff runs/one/metrics.jsonl next.jsonl");
  EXPECT_EQ(text.status, 1) << text.err;
  EXPECT_NE(text.out.find("first difference at step 3: grad_norm "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(", 1 ULPs apart\n"), std::string::npos) << text.out;
}

TEST_F(Diff, MetricsOfAVersionThatDidNotMeasureMemoryAreCompared) {
  train("one");
  std::string metrics = work.read("runs/one/metrics.jsonl");
  for (size_t begin; (begin = metrics.find(",\"memory_peak_bytes\"")) != std::string::npos;)
    metrics.erase(begin, metrics.find_first_of(",}", begin + 1) - begin);
  work.write("old.jsonl", metrics);
  const Output text = work.tutti("diff old.jsonl runs/one");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("numbers of steps 1 to 6: same bits\n"), std::string::npos) << text.out;
}

TEST_F(Diff, OtherTensorsAreADifference) {
  const Tensor wide = Tensor::of<float>({1, 2}), narrow = Tensor::of<float>({1});
  write_safetensors((work.folder() / "a.safetensors").string(), {{{"w", wide}, {"x", narrow}}});
  write_safetensors((work.folder() / "b.safetensors").string(), {{{"w", narrow}, {"y", narrow}}});
  const Output text = work.tutti("diff a.safetensors b.safetensors");
  EXPECT_EQ(text.status, 1) << text.err;
  for (const char* part :
       {"  w: [2] f32 cpu | [1] f32 cpu\n", "  x: missing in b.safetensors\n", "  y: missing in a.safetensors\n"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " is not in " << text.out;
}

// Whatever is no answer has a status that is neither "good" nor "bad" for git bisect run.
TEST_F(Diff, EverythingElseIs125) {
  train("one");
  std::filesystem::create_directory(work.folder() / "empty");
  work.write("torn.jsonl", "{\"step\":\n");
  work.write("broken.safetensors", "no");
  work.write("text.txt", "text");
  const std::pair<const char*, const char*> cases[] = {
      {"diff runs/one", "b is required"},
      {"diff runs/one runs/one --jsn", "--jsn"},
      {"diff runs/one gone",
       "gone does not exist; expected a run folder, a checkpoint, a .safetensors file or a metrics.jsonl"},
      {"diff runs/one empty", "empty holds neither metrics.jsonl nor checkpoints"},
      {"diff runs/one text.txt", "text.txt is neither a .safetensors file nor a metrics.jsonl"},
      {"diff runs/one torn.jsonl", "torn.jsonl"},
      {"diff runs/one broken.safetensors", "broken.safetensors"},
      {"diff runs/one/metrics.jsonl runs/one/checkpoint/step-6", "have nothing in common to compare"},
  };
  for (const auto& [command, message] : cases) {
    const Output output = work.tutti(command);
    EXPECT_EQ(output.status, 125) << command;
    EXPECT_NE(output.err.find(message), std::string::npos) << command << ": " << output.err;
    EXPECT_EQ(output.out, "") << command;
  }
  EXPECT_EQ(work.tutti("diff --help").status, 0);
}

}  // namespace
}  // namespace tutti::test
