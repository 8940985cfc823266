// What is said of a checkpoint of which one byte changed, and what becomes of checkpoints that earlier starts left.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/train/support/temp_folder.h"
#include "tests/train/support/tiny_model.h"
#include "tutti/core/error.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/ops/creation.h"
#include "tutti/train/checkpoint/checkpoint.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

void save(const fs::path& folder, int64_t step, int64_t keep = 0) {
  const TinyModel tiny(1, 1);
  const auto optimizer = optim::make_adamw(tiny.model.named_parameters());
  std::vector<Tensor> grads;
  for (const nn::NamedParameter& p : optimizer->parameters())
    grads.push_back(full(to_shape(p.parameter.sizes()), 0.25));
  optimizer->step(grads, 0.01);
  save_checkpoint(folder, tiny.model, *optimizer,
                  {.step = step, .items_seen = 0, .next_row = 0, .optimizer_steps = 1, .seed = 9}, keep);
}

std::string verdict_of(const fs::path& folder) {
  try {
    verify_checkpoint(folder);
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
  return "whole";
}

size_t header_nbytes(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return 8 + length;
}

// The tensors that the message lists as `what`.
std::set<std::string> listed(const std::string& message, const std::string& what) {
  std::set<std::string> names;
  const std::string mark = "\n  " + what + ": ";
  for (size_t at = message.find(mark); at != std::string::npos; at = message.find(mark, at + 1))
    names.insert(message.substr(at + mark.size(), message.find('\n', at + mark.size()) - at - mark.size()));
  return names;
}

// Every third byte of the headers and, of the data, one of each tensor: what differs is named, or nothing that was
// saved does.
TEST(DamagedCheckpoint, OfOneByteNamesWhatDiffers) {
  const TempFolder folder;
  save(folder.path(), 1);
  const Digests digests = verify_checkpoint(folder.path());
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const fs::path path = folder / "step-1" / name;
    const std::string whole = contents_of(path);
    const size_t header = header_nbytes(whole);
    std::vector<std::pair<size_t, std::string>> flips;  // and the tensor they belong to
    for (size_t at = 0; at < header; at += 3) flips.emplace_back(at, "");
    {
      const SafetensorsFile file(path.string());
      for (const io::SafetensorsEntry& entry : file.entries())
        flips.emplace_back(header + static_cast<size_t>(entry.begin + entry.end) / 2, entry.name);
    }
    for (const auto& [at, tensor] : flips) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      std::ofstream(path, std::ios::binary) << damaged;
      const std::string verdict = verdict_of(folder.path());
      if (verdict == "whole") {
        EXPECT_LT(at, header) << "the data changed, and nothing was said";
        continue;
      }
      const bool is_read = verdict.find("step-1 is damaged: of the " + std::to_string(digests.size()) +
                                        " tensors that were saved, ") != std::string::npos;
      EXPECT_TRUE(is_read || verdict.find(path.string()) != std::string::npos) << at << ": " << verdict;
      if (!is_read) continue;
      const auto changed = listed(verdict, "changed"), missing = listed(verdict, "missing"),
                 unknown = listed(verdict, "unknown");
      EXPECT_EQ(missing.size(), unknown.size()) << verdict;
      EXPECT_GE(changed.size() + missing.size(), 1u) << verdict;
      for (const std::string& one : missing) EXPECT_TRUE(digests.contains(one)) << verdict;
      EXPECT_TRUE(tensor.empty() || changed == std::set<std::string>{tensor}) << verdict;
    }
    std::ofstream(path, std::ios::binary) << whole;
    ASSERT_EQ(verdict_of(folder.path()), "whole");
  }
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST(OldCheckpoints, ThatLackFilesGoWithThoseOfTheirAge) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const TempFolder folder;
    for (const int64_t step : {1, 2, 3, 4, 5}) save(folder.path(), step);
    for (const char* step : {"step-2", "step-4"}) fs::remove(folder / step / name);
    save(folder.path(), 6, 2);
    // The newest two that are whole, and what lies between them, which its owner may make whole again.
    EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-5", "step-6"}));
    fs::remove(folder / "step-5" / name);
    prune_checkpoints(folder.path(), 2);
    EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-5", "step-6"}))
        << "one is whole, where two are kept";
    prune_checkpoints(folder.path(), 1);
    EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-6"}));
    for (const int64_t all : {0, -1}) prune_checkpoints(folder.path(), all);
    EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"step-6"}));
  }
}

}  // namespace
}  // namespace tutti::train
