#include "tutti/train/checkpoint/reshard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <fstream>
#include <thread>

#include "tests/train/support/temp_folder.h"
#include "tests/train/support/tiny_model.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/unique_fd.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/step/shard_model.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

// A model, divided over the ranks or not, with an optimizer.
struct Trained {
  explicit Trained(uint64_t seed, comm::ProcessGroup* group = nullptr) : model(tiny_config(2), 64) {
    if (group != nullptr)
      shard_model(model, {.data_parallel_replicate_degree = 1, .data_parallel_shard_degree = -1}, group);
    seed_all(seed);
    nn::initialize(model);
    optimizer = optim::make_adamw(model.named_parameters());
    if (group != nullptr) return;
    std::vector<Tensor> grads;
    for (const nn::NamedParameter& p : optimizer->parameters())
      grads.push_back(full(to_shape(p.parameter.sizes()), 0.25));
    optimizer->step(grads, 0.01);
  }
  models::Decoder model;
  std::unique_ptr<optim::Optimizer> optimizer;
};

struct Reshard : testing::Test {
  Reshard() {
    save_checkpoint(folder / "run/checkpoint", trained.model, *trained.optimizer,
                    {.step = 12, .items_seen = 1200, .next_row = 84, .optimizer_steps = 1, .seed = 9}, 0);
  }
  fs::path step() const { return folder / "run/checkpoint/step-12"; }
  const TempFolder folder;
  const Trained trained{1};
};

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

template <class Error, class Fn>
std::string message_of(const Fn& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST_F(Reshard, KeepsTensorsDigestsAndStateInAnyNumberOfFiles) {
  const Digests digests = verify_checkpoint(step());
  for (const int64_t files : {2, 3, 7}) {
    const fs::path to = folder.path() / fmt::format("in-{}", files);
    const Resharded made = reshard_checkpoint(folder / "run", to, files);
    EXPECT_EQ(made.step, 12);
    EXPECT_EQ(made.model_files, static_cast<size_t>(files));
    EXPECT_EQ(made.digests, digests);
    EXPECT_EQ(verify_checkpoint(to), digests);
    EXPECT_EQ(contents_of(to / kStateFile), contents_of(step() / kStateFile));
    EXPECT_FALSE(fs::exists(to / kModelFile));
    const SafetensorsShards model(to / kModelFile);
    EXPECT_EQ(model.files(), static_cast<size_t>(files));
    EXPECT_EQ(model.metadata().at("format"), "pt");
    EXPECT_EQ(digest_checkpoint(to).size(), digests.size());
    // Again in one file: the bytes of the checkpoint.
    const fs::path back = folder.path() / fmt::format("back-from-{}", files);
    reshard_checkpoint(to, back, 1);
    for (const char* file : {kModelFile, kOptimizerFile, kStateFile})
      EXPECT_TRUE(contents_of(back / file) == contents_of(step() / file)) << file;
  }
}

// The index is that of published models: the names of all tensors with their files, and their bytes in all.
TEST_F(Reshard, WritesTheIndexOfPublishedModels) {
  reshard_checkpoint(step(), folder / "to", 2);
  const std::string index = contents_of(folder / "to/model.safetensors.index.json");
  EXPECT_NE(index.find("\"weight_map\": {"), std::string::npos) << index;
  EXPECT_NE(index.find("\"model.embed_tokens.weight\": \"model-00001-of-00002.safetensors\""), std::string::npos)
      << index;
  EXPECT_NE(index.find("\"model.norm.weight\": \"model-00002-of-00002.safetensors\""), std::string::npos) << index;
  EXPECT_NE(index.find(fmt::format("\"total_size\": {}", trained.model.parameter_count() * 4)), std::string::npos)
      << index;
}

TEST_F(Reshard, ALayoutThatDividesParametersLoadsItsRows) {
  fs::create_directories(folder / "other/checkpoint");
  reshard_checkpoint(step(), folder / "other/checkpoint/step-12", 3);
  EXPECT_EQ(list_checkpoints(folder / "other/checkpoint").size(), 1U);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    Trained other(2, &group);
    load_checkpoint(folder / "other/checkpoint/step-12", other.model, *other.optimizer, &group);
    save_checkpoint(folder / "third", other.model, *other.optimizer,
                    {.step = 12, .items_seen = 1200, .next_row = 84, .optimizer_steps = 1, .seed = 9}, 0, &group);
  });
  for (const char* file : {kModelFile, kOptimizerFile})
    EXPECT_TRUE(contents_of(folder / "third/step-12" / file) == contents_of(step() / file)) << file;
  Trained weights(3);
  load_model(folder / "other", weights.model);
  EXPECT_EQ(tensor_digest(weights.model.named_parameters()[0].parameter.master()),
            tensor_digest(trained.model.named_parameters()[0].parameter.master()));
}

TEST_F(Reshard, RefusesWhatIsThereAndWhatItCannotWrite) {
  fs::create_directory(folder / "there");
  const auto refused = [&](const fs::path& from, const fs::path& to, int64_t files) {
    return message_of<UsageError>([&] { reshard_checkpoint(from, to, files); });
  };
  EXPECT_NE(refused(step(), folder / "there", 2).find("there exists; give the name of a new folder"),
            std::string::npos);
  EXPECT_NE(refused(step(), folder / "none/to", 2).find("none does not exist; make the folder in which to is to be"),
            std::string::npos);
  EXPECT_NE(refused(step(), folder / "step-13", 2).find("is named for step 13"), std::string::npos);
  EXPECT_NE(refused(folder / "there", folder / "to", 2).find("holds no checkpoint"), std::string::npos);
  EXPECT_NE(refused(folder / "missing", folder / "to", 2).find("missing does not exist"), std::string::npos);
  const size_t tensors = trained.model.named_parameters().size();
  EXPECT_NE(
      refused(step(), folder / "to", static_cast<int64_t>(tensors) + 1).find(fmt::format("expected 1 to {}", tensors)),
      std::string::npos);
  EXPECT_NE(refused(step(), folder / "to", 0).find("reshard: 0 files"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder / "to"));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

TEST_F(Reshard, OfSeveralAtOnceOneWrites) {
  const Digests digests = verify_checkpoint(step());
  for (int again = 0; again < 5; ++again) {
    const fs::path to = folder.path() / fmt::format("to-{}", again);
    std::barrier start(4);
    std::atomic<int> written = 0;
    std::vector<std::string> messages(4);
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < messages.size(); ++t) {
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        messages[t] = message_of<UsageError>([&] { reshard_checkpoint(step(), to, 2), ++written; });
      });
    }
    threads.clear();
    EXPECT_EQ(written, 1);
    for (const std::string& message : messages) {
      const bool is_clear =
          message == "nothing was thrown" ||
          message.find("exists; give the name of a new folder") != std::string::npos ||
          message.find("another process is writing " + to.string() + " at this moment, in ") != std::string::npos;
      EXPECT_TRUE(is_clear) << message;
    }
    EXPECT_EQ(verify_checkpoint(to), digests);
    fs::remove_all(to);
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"run"});
  }
}

TEST_F(Reshard, WaitsForNobodyAndTakesOverFromTheDead) {
  const fs::path unfinished = folder / ".tmp-to";
  fs::create_directory(unfinished);
  write_text(unfinished / "left", "by a killed process");
  {
    const UniqueFd other(open(unfinished.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
    EXPECT_EQ(
        message_of<UsageError>([&] { reshard_checkpoint(step(), folder / "to", 2); }),
        fmt::format(
            "another process is writing {} at this moment, in {}; wait for it, or give the name of another folder",
            (folder / "to").string(), unfinished.string()));
    EXPECT_EQ(names_in(unfinished), std::vector<std::string>{"left"}) << "the other one's folder is touched";
  }
  reshard_checkpoint(step(), folder / "to", 2);
  EXPECT_FALSE(fs::exists(folder / "to/left"));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"run", "to"}));
}

TEST_F(Reshard, ADamagedCheckpointIsNamedAndNothingIsLeft) {
  std::string bytes = contents_of(step() / kModelFile);
  bytes[bytes.size() - 5] ^= 1;
  write_text(step() / kModelFile, bytes);
  const std::string message = message_of<EnvironmentError>([&] { reshard_checkpoint(step(), folder / "to", 2); });
  EXPECT_NE(message.find("changed: model."), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(folder / "to"));
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(kUnfinished)) << entry.path();
}

TEST_F(Reshard, FilesThatDoNotBelongTogetherAreNamed) {
  reshard_checkpoint(step(), folder / "to", 2);
  const fs::path index = folder / "to/model.safetensors.index.json";
  const std::string text = contents_of(index);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    write_text(index, other);
    return message_of<Error>([&] { SafetensorsShards(folder / "to" / kModelFile); });
  };
  EXPECT_NE(with("model.norm.weight\": \"model-00002", "model.norm.weight\": \"model-00001")
                .find("which does not hold it; put back the files that were written together"),
            std::string::npos);
  EXPECT_NE(with("\"model.norm.weight\": \"model-00002", "\"model.norm.weight\": \"../model-00002")
                .find("expected the name of a file in the folder of the index"),
            std::string::npos);
  EXPECT_NE(with("weight_map", "weights").find("weight_map"), std::string::npos);
  write_text(index, text);
  fs::remove(folder / "to/model-00002-of-00002.safetensors");
  EXPECT_NE(message_of<Error>([&] { verify_checkpoint(folder / "to"); }).find("model-00002-of-00002.safetensors"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::train
