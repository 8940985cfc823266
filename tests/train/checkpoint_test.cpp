#include "tutti/train/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "tests/train/support/temp_folder.h"
#include "tests/train/support/tiny_model.h"
#include "tutti/core/error.h"
#include "tutti/ops/creation.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

// A model with an optimizer that has taken a step, so that its state is not zero.
struct Trained {
  explicit Trained(uint64_t seed = 1, int64_t layers = 1)
      : tiny(seed, layers), optimizer(optim::make_adamw(tiny.model.named_parameters())) {
    std::vector<Tensor> grads;
    for (const nn::NamedParameter& p : optimizer->parameters())
      grads.push_back(full(to_shape(p.parameter.sizes()), 0.25));
    optimizer->step(grads, 0.01);
  }
  std::vector<std::vector<float>> contents() const {
    std::vector<std::vector<float>> all;
    for (const nn::NamedParameter& p : tiny.model.named_parameters())
      all.emplace_back(p.parameter.master().data<float>(), p.parameter.master().data<float>() + p.parameter.numel());
    for (const optim::StateTensor& s : optimizer->state())
      all.emplace_back(s.tensor.data<float>(), s.tensor.data<float>() + s.tensor.numel());
    return all;
  }
  void save(const fs::path& folder, int64_t step, int64_t keep = 0) const {
    save_checkpoint(folder, tiny.model, *optimizer,
                    {.step = step, .items_seen = 100 * step, .next_row = 7 * step, .optimizer_steps = 1, .seed = 9},
                    keep);
  }
  TrainState load(const fs::path& step_folder) const { return load_checkpoint(step_folder, tiny.model, *optimizer); }
  TinyModel tiny;
  std::unique_ptr<optim::Optimizer> optimizer;
};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& path : list_checkpoints(folder)) names.push_back(path.filename().string());
  return names;
}

template <class Error, class Fn>
std::string message_of(const Fn& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Checkpoint, BringsBackModelOptimizerAndState) {
  const TempFolder folder;
  const Trained saved(1), loaded(2);
  ASSERT_NE(saved.contents(), loaded.contents());
  saved.save(folder.path(), 12);
  loaded.optimizer->set_steps_taken(50);
  const TrainState state = loaded.load(folder / "step-12");
  EXPECT_EQ(saved.contents(), loaded.contents());
  EXPECT_EQ(state.step, 12);
  EXPECT_EQ(state.items_seen, 1200);
  EXPECT_EQ(state.next_row, 84);
  EXPECT_EQ(state.seed, 9u);
  EXPECT_EQ(loaded.optimizer->steps_taken(), 1);
}

TEST(Checkpoint, EqualContentHasEqualDigests) {
  const TempFolder folder;
  Trained(1).save(folder.path(), 1);
  Trained(1).save(folder.path(), 2);
  Trained(3).save(folder.path(), 3);
  const auto hashes = [&](const char* step) {
    std::vector<std::string> list;
    for (const DigestedTensor& t : digest_checkpoint(folder / step)) list.push_back(t.digest);
    return list;
  };
  EXPECT_EQ(hashes("step-1"), hashes("step-2"));
  EXPECT_NE(hashes("step-1"), hashes("step-3"));
}

TEST(Checkpoint, OnlyTheParametersCanBeLoadedFromAFolderOrAFile) {
  const TempFolder folder;
  const Trained saved(1);
  saved.save(folder.path(), 1);
  for (const fs::path& path : {folder / "step-1", folder / "step-1" / "model.safetensors"}) {
    const TinyModel other(2);
    load_model(path, other.model);
    EXPECT_EQ(other.model.named_parameters()[0].parameter.master().data<float>()[0], saved.contents()[0][0]) << path;
  }
}

TEST(Checkpoint, OfAnotherModelIsRefusedAndNothingChanges) {
  const TempFolder folder;
  Trained(1, 1).save(folder.path(), 1);
  const Trained deeper(2, 2);
  const auto before = deeper.contents();
  const std::string message = message_of<UsageError>([&] { deeper.load(folder / "step-1"); });
  EXPECT_NE(message.find("is of another model"), std::string::npos) << message;
  EXPECT_NE(message.find("missing: model.layers.1."), std::string::npos) << message;
  EXPECT_EQ(deeper.contents(), before);
}

TEST(Checkpoint, OfALargerModelNamesWhatIsUnknown) {
  const TempFolder folder;
  Trained(1, 2).save(folder.path(), 1);
  const TinyModel small;
  const std::string message = message_of<UsageError>([&] { load_model(folder / "step-1", small.model); });
  EXPECT_NE(message.find("unexpected: model.layers.1."), std::string::npos) << message;
}

TEST(Checkpoint, ATruncatedTensorFileIsNamedAndNothingChanges) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const TempFolder folder;
    Trained(1).save(folder.path(), 1);
    const fs::path file = folder / "step-1" / name;
    fs::resize_file(file, fs::file_size(file) - 10);
    const Trained loaded(2);
    const auto before = loaded.contents();
    const std::string message = message_of<EnvironmentError>([&] { loaded.load(folder / "step-1"); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_EQ(loaded.contents(), before);
  }
}

TEST(Checkpoint, AFlippedBitIsNamedAndNothingChanges) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const TempFolder folder;
    Trained(1).save(folder.path(), 1);
    EXPECT_EQ(verify_checkpoint(folder.path()).size(), digest_checkpoint(folder.path()).size());
    std::fstream file(folder / "step-1" / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-3, std::ios::end);
    const char flipped = static_cast<char>(file.get() ^ 1);
    file.seekp(-3, std::ios::end);
    file.put(flipped);
    file.close();
    const Trained loaded(2);
    const auto before = loaded.contents();
    for (const std::string& message : {message_of<EnvironmentError>([&] { verify_checkpoint(folder.path()); }),
                                       message_of<EnvironmentError>([&] { loaded.load(folder / "step-1"); })})
      EXPECT_NE(message.find("step-1 is damaged"), std::string::npos) << message;
    EXPECT_EQ(loaded.contents(), before);
  }
}

TEST(Checkpoint, WithoutItsStateIsNotWhole) {
  const TempFolder folder;
  Trained(1).save(folder.path(), 1);
  fs::remove(folder / "step-1" / "state.json");
  const std::string message = message_of<EnvironmentError>([&] { verify_checkpoint(folder / "step-1"); });
  EXPECT_NE(message.find("state.json: cannot be read: No such file"), std::string::npos) << message;
}

TEST(Checkpoint, ADamagedStateFileIsNamed) {
  const TempFolder folder;
  Trained(1).save(folder.path(), 1);
  fs::resize_file(folder / "step-1" / "state.json", 20);
  const std::string message = message_of<UsageError>([&] { Trained(2).load(folder / "step-1"); });
  EXPECT_NE(message.find("state.json:3:4: byte 21: not JSON"), std::string::npos) << message;
}

// Every byte is covered: digits of the step, names of tensors, their hashes, white space, the digest itself.
TEST(Checkpoint, AnyByteOfTheStateThatChangesIsNoticed) {
  const TempFolder folder;
  Trained(1).save(folder.path(), 1);
  const fs::path file = folder / "step-1" / "state.json";
  const std::string whole = contents_of(file);
  const auto is_refused = [&](const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
    int refusals = 0;
    try {
      verify_checkpoint(folder.path());
    } catch (const Error&) {
      ++refusals;
    }
    try {
      Trained(2).load(folder / "step-1");
    } catch (const Error&) {
      ++refusals;
    }
    return refusals == 2;
  };
  EXPECT_FALSE(is_refused(whole));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] ^= i % 2 == 0 ? 1 : 0x20;
    ASSERT_TRUE(is_refused(changed)) << "byte " << i << " of " << whole.size() << ", "
                                     << whole.substr(i < 20 ? 0 : i - 20, 40);
  }
  for (const std::string& text : {std::string(), whole + "\n", whole.substr(0, whole.size() - 1), whole + whole})
    EXPECT_TRUE(is_refused(text));
}

TEST(Checkpoint, CarriesWhatTheNumbersDependOn) {
  const TempFolder folder;
  const TinyModel tiny;
  const auto optimizer = optim::make_adamw(tiny.model.named_parameters());
  const RunInputs inputs{
      .settings = {{"training.seed", "42"}},
      .tokenizer = {"path/with \"quotes\"", "bpe-300", std::nullopt, 299, 0xfedcba9876543210},
      .corpus = {3, 70, 0x8000000000000001, {{"data/a.txt", 12, 5}, {"data/b.txt", int64_t{1} << 40, 6}}},
      .changes = {{2, 16, "the file data/b.txt was added"}}};
  save_checkpoint(folder.path(), tiny.model, *optimizer, {.step = 4, .inputs = inputs}, 0);
  const RunInputs read = read_state(folder / "step-4").train.inputs;
  EXPECT_EQ(read.settings, inputs.settings);
  EXPECT_EQ(read.tokenizer.spec, inputs.tokenizer.spec);
  EXPECT_EQ(read.tokenizer.bos, std::nullopt);
  EXPECT_EQ(read.tokenizer.eos, 299);
  EXPECT_EQ(read.tokenizer.fingerprint, inputs.tokenizer.fingerprint);
  EXPECT_EQ(read.corpus.hash, inputs.corpus.hash);
  EXPECT_EQ(read.corpus.files, inputs.corpus.files);
  ASSERT_EQ(read.changes.size(), 1u);
  EXPECT_EQ(read.changes[0].what, "the file data/b.txt was added");
}

TEST(Checkpoint, OfAnotherStepIsNotTakenForThisOne) {
  const TempFolder folder;
  Trained(1).save(folder.path(), 3);
  fs::rename(folder / "step-3", folder / "step-30");
  for (const std::string& message : {message_of<EnvironmentError>([&] { verify_checkpoint(folder / "step-30"); }),
                                     message_of<EnvironmentError>([&] { Trained(2).load(folder / "step-30"); })})
    EXPECT_NE(message.find("is that of step 3, the folder is named for step 30"), std::string::npos) << message;
}

TEST(Checkpoint, KeepsTheLatestOnly) {
  const TempFolder folder;
  const Trained model;
  for (const int64_t step : {2, 9, 10, 100}) model.save(folder.path(), step, 2);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"step-10", "step-100"}));
}

TEST(Checkpoint, ListsByStepAndFindsTheNewest) {
  const TempFolder folder;
  const Trained model;
  EXPECT_EQ(newest_checkpoint(folder / "absent"), std::nullopt);
  for (const int64_t step : {10, 9, 100}) model.save(folder.path(), step);
  fs::create_directory(folder / "step-7x");
  fs::create_directory(folder / "step-200");
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"step-9", "step-10", "step-100"}));
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step-100");
}

TEST(Checkpoint, ThatLacksAFileIsPassedOverAndNamed) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const TempFolder folder;
    const Trained model;
    for (const int64_t step : {1, 2}) model.save(folder.path(), step);
    fs::remove(folder / "step-2" / name);
    EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step-1");
    const auto incomplete = incomplete_checkpoints(folder.path());
    ASSERT_EQ(incomplete.size(), 1u);
    EXPECT_EQ(incomplete[0].path, folder / "step-2");
    EXPECT_EQ(incomplete[0].missing, std::vector<std::string>{name});
    fs::remove_all(folder / "step-1");
    const std::string message = message_of<EnvironmentError>([&] { verify_checkpoint(folder.path()); });
    EXPECT_NE(message.find(std::string("is whole: step-2 lacks ") + name), std::string::npos) << message;
  }
}

TEST(Checkpoint, WhatAKilledWriterLeftIsRemovedAndNothingElse) {
  const TempFolder folder;
  Trained().save(folder.path(), 1);
  fs::create_directory(folder / ".tmp-step-2");
  std::ofstream(folder / ".tmp-step-2" / "model.safetensors") << "half";
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"step-1"}));
  EXPECT_EQ(remove_unfinished(folder.path()), std::vector<std::string>{".tmp-step-2"});
  EXPECT_FALSE(fs::exists(folder / ".tmp-step-2"));
  EXPECT_TRUE(fs::exists(folder / "step-1" / "state.json"));
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const TempFolder folder;
  Trained(1).save(folder.path(), 5);
  const Trained second(2), loaded(3);
  second.save(folder.path(), 5);
  loaded.load(folder / "step-5");
  EXPECT_EQ(loaded.contents(), second.contents());
}

TEST(Checkpoint, WhereNoFolderCanBeMadeIsAnErrorThatNamesTheStep) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "x";
  const std::string message = message_of<EnvironmentError>([&] { Trained().save(folder / "file", 3); });
  EXPECT_NE(message.find("checkpoint of step 3 was not saved"), std::string::npos) << message;
}

}  // namespace
}  // namespace tutti::train
