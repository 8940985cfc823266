#include "tutti/train/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "tests/train/support/temp_folder.h"
#include "tutti/core/error.h"

namespace tutti::train {
namespace {

std::string complaint(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(RunFolder, IsMadeWithItsParents) {
  const TempFolder folder;
  const RunFolder run(folder / "a/b", "first");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/first"));
  EXPECT_EQ(run.metrics(), folder / "a/b/first/metrics.jsonl");
}

TEST(RunFolder, BelongsToOneRunAtATime) {
  const TempFolder folder;
  const RunFolder run(folder.path(), "first");
  const std::string text = complaint([&] { RunFolder second(folder.path(), "first"); });
  EXPECT_NE(text.find("another run (pid " + std::to_string(getpid()) + ") is using"), std::string::npos) << text;
  EXPECT_EQ(complaint([&] { RunFolder second(folder.path(), "second"); }), "(no error)");
}

TEST(RunFolder, IsFreeAgainAfterTheRun) {
  const TempFolder folder;
  {
    const RunFolder run(folder.path(), "first");
  }
  EXPECT_EQ(complaint([&] { RunFolder second(folder.path(), "first"); }), "(no error)");
}

TEST(RunFolder, KeepsWhatIsThereWithoutFresh) {
  const TempFolder folder;
  {
    std::ofstream(RunFolder(folder.path(), "first").metrics()) << "old";
  }
  const RunFolder run(folder.path(), "first");
  EXPECT_EQ(contents_of(run.metrics()), "old");
  EXPECT_FALSE(run.moved_to().has_value());
}

TEST(RunFolder, LosesTheTemporariesOfAKilledRunAndNothingElse) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "first/checkpoint/.tmp-step-2");
  for (const char* name : {"first/.metrics.jsonl.tmp-4711-0", "first/notes.tmp-1", "first/.hidden"})
    std::ofstream(folder / name) << "x";
  const RunFolder run(folder.path(), "first");
  EXPECT_FALSE(std::filesystem::exists(folder / "first/.metrics.jsonl.tmp-4711-0"));
  for (const char* name : {"first/notes.tmp-1", "first/.hidden", "first/checkpoint/.tmp-step-2"})
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
}

TEST(RunFolder, FreshMovesTheOldRunToTheFirstFreeName) {
  const TempFolder folder;
  for (const char* text : {"one", "two", "three"}) {
    const RunFolder run(folder.path(), "first", {.fresh = true});
    EXPECT_FALSE(std::filesystem::exists(run.metrics()));
    std::ofstream(run.metrics()) << text;
  }
  EXPECT_EQ(contents_of(folder / "first.old-1/metrics.jsonl"), "one");
  EXPECT_EQ(contents_of(folder / "first.old-2/metrics.jsonl"), "two");
  EXPECT_EQ(contents_of(folder / "first/metrics.jsonl"), "three");
}

TEST(RunFolder, FreshStillLocksTheNewFolder) {
  const TempFolder folder;
  {
    std::ofstream(RunFolder(folder.path(), "first").metrics()) << "old";
  }
  const RunFolder run(folder.path(), "first", {.fresh = true});
  EXPECT_EQ(run.moved_to(), folder / "first.old-1");
  EXPECT_NE(complaint([&] { RunFolder second(folder.path(), "first", {.fresh = true}); }), "(no error)");
}

TEST(RunFolder, RefusesNamesThatLeadElsewhere) {
  const TempFolder folder;
  for (const char* name : {"", ".", "..", "a/b"}) {
    EXPECT_THROW(RunFolder(folder.path(), name), UsageError) << name;
  }
}

TEST(RunFolder, NamesTheFolderItCannotMake) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "x";
  const std::string text = complaint([&] { RunFolder run(folder / "file", "first"); });
  EXPECT_NE(text.find("cannot make the run folder " + (folder / "file/first").string()), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::train
