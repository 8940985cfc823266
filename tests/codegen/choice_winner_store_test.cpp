#include "tutti/codegen/choice/winner_store.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"
#include "tutti/codegen/choice/engine.h"
#include "tutti/core/hash.h"

namespace tutti::codegen::choice {
namespace {

using tutti::testing::read_whole_file;
using tutti::testing::TemporaryFolder;

Signature call_of(int64_t m) {
  Signature call{.op = "test", .operands = {}, .epilogue = {}};
  call.operands[0].sizes[0] = m;
  return call;
}

void overwrite(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST(WinnerStore, GivesAnotherProcessWhatThisOneMeasured) {
  const TemporaryFolder folder;
  WinnerStore(folder / "cache", "machine").write(call_of(1), "tile 8");
  const WinnerStore store(folder / "cache", "machine");
  EXPECT_EQ(store.read(call_of(1)), "tile 8");
  EXPECT_EQ(store.read(call_of(2)), std::nullopt);
}

TEST(WinnerStore, BelongsToOneMachineAndVersion) {
  const TemporaryFolder folder;
  WinnerStore(folder / "cache", "machine, code 1").write(call_of(1), "tile 8");
  EXPECT_EQ(WinnerStore(folder / "cache", "machine, code 2").read(call_of(1)), std::nullopt);
}

// The names of files are hashes.
TEST(WinnerStore, DoesNotTakeOneCallForAnotherOfTheSameFileName) {
  const CollidingHashesForTests colliding;
  const TemporaryFolder folder;
  WinnerStore store(folder / "cache", "machine");
  store.write(call_of(1), "tile 8");
  EXPECT_EQ(store.read(call_of(2)), std::nullopt);
  store.write(call_of(2), "tile 16");
  EXPECT_EQ(store.read(call_of(1)), std::nullopt);
  EXPECT_EQ(store.read(call_of(2)), "tile 16");
}

TEST(WinnerStore, IgnoresDamagedFilesAndWritesThemAnew) {
  const TemporaryFolder folder;
  WinnerStore store(folder / "cache", "machine");
  store.write(call_of(1), "tile 8");
  const std::filesystem::path path = store.path_of(call_of(1));
  const std::string whole = read_whole_file(path.string());
  for (size_t size = 0; size < whole.size(); ++size) {
    overwrite(path, whole.substr(0, size));
    EXPECT_EQ(store.read(call_of(1)), std::nullopt) << "cut to " << size;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    overwrite(path, damaged);
    EXPECT_EQ(store.read(call_of(1)), std::nullopt) << "byte " << i;
  }
  overwrite(path, whole + "more");
  EXPECT_EQ(store.read(call_of(1)), std::nullopt);
  store.write(call_of(1), "tile 8");
  EXPECT_EQ(read_whole_file(path.string()), whole);
}

TEST(WinnerStore, AFileOfAnotherCallUnderThisNameIsNotTaken) {
  const TemporaryFolder folder;
  WinnerStore store(folder / "cache", "machine");
  store.write(call_of(1), "tile 8");
  std::filesystem::rename(store.path_of(call_of(1)), store.path_of(call_of(2)));
  EXPECT_EQ(store.read(call_of(2)), std::nullopt);
}

TEST(WinnerStore, AFolderThatCannotBeWrittenCostsOneWarning) {
  // No permission stops root, so the folder is taken away instead.
  const TemporaryFolder folder;
  WinnerStore store(folder / "cache", "machine");
  std::filesystem::remove(folder / "cache");
  ::testing::internal::CaptureStderr();
  store.write(call_of(1), "tile 8");
  store.write(call_of(2), "tile 8");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(store.read(call_of(1)), std::nullopt);
  EXPECT_EQ(said.find("tutti: nothing more is kept in the cache " + folder / "cache"), 0u) << said;
  EXPECT_EQ(said.find("tutti:", 1), std::string::npos) << said;
}

TEST(WinnerStore, AFolderThatCannotBeMadeCostsOneWarning) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "");
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(WinnerStore(file + "/cache", "machine").is_usable());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("/cache is not used: Not a directory"), std::string::npos);
}

TEST(WinnerStore, WithoutAFolderKeepsNothingAndSaysNothing) {
  ::testing::internal::CaptureStderr();
  WinnerStore store("", "machine");
  store.write(call_of(1), "tile 8");
  EXPECT_EQ(store.read(call_of(1)), std::nullopt);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(WinnerStore, DeletesTheOldestBeyondItsLimit) {
  const TemporaryFolder folder;
  WinnerStore store(folder / "cache", "machine", 10);
  for (int64_t m = 0; m < 128; ++m) store.write(call_of(m), "tile 8");
  int64_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder / "cache"))
    files += file.path().extension() == ".choice";
  EXPECT_EQ(files, 10);
}

// An engine of three candidates, of which the last is the fastest.
int choose_with(WinnerStore& store, int64_t& measured) {
  ChoiceEngine<int> engine([](const BucketKey&) { return std::vector<int>{0, 1, 2}; },
                           {.predicates = {},
                            .classify = [](const int&, const Signature&) { return 0; },
                            .cost = [](const int& candidate, const Signature&) { return candidate; },
                            .name = [](const int& candidate) { return std::to_string(candidate); }},
                           {.mode = ChoiceMode::measure}, &store);
  const int chosen = engine.choose(call_of(1), [](const int& candidate) { return 10.0 - candidate; });
  measured = engine.statistics().measured;
  return chosen;
}

TEST(WinnerStore, AnEngineMeasuresOncePerMachine) {
  const TemporaryFolder folder;
  WinnerStore store(folder / "cache", "machine");
  int64_t measured = 0;
  EXPECT_EQ(choose_with(store, measured), 2);
  EXPECT_EQ(measured, 3);
  EXPECT_EQ(choose_with(store, measured), 2);
  EXPECT_EQ(measured, 0);
}

TEST(WinnerStore, AnEngineMeasuresAgainWhenTheWinnerIsNoCandidateAnyMore) {
  const TemporaryFolder folder;
  WinnerStore store(folder / "cache", "machine");
  store.write(call_of(1), "7");
  int64_t measured = 0;
  EXPECT_EQ(choose_with(store, measured), 2);
  EXPECT_EQ(measured, 3);
  EXPECT_EQ(store.read(call_of(1)), "2");
}

}  // namespace
}  // namespace tutti::codegen::choice
