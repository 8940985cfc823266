#include "tutti/runtime/atomic_file.h"

#include <gtest/gtest.h>
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

using testing::FileSizeLimit;
using testing::read_whole_file;
using testing::TemporaryFolder;

TEST(AtomicFile, WritesTheWholeContents) {
  TemporaryFolder folder;
  const std::string contents("a\0b\xff", 4);
  write_file_atomically(folder / "file", contents);
  EXPECT_EQ(read_whole_file(folder / "file"), contents);
  EXPECT_EQ(folder.entry_count(), 1);
}

TEST(AtomicFile, ReplacesAnOlderFile) {
  TemporaryFolder folder;
  folder.write("file", "old and longer");
  write_file_atomically(folder / "file", "new");
  EXPECT_EQ(read_whole_file(folder / "file"), "new");
}

TEST(AtomicFile, LeavesTheOldFileWhenItIsNotCommitted) {
  TemporaryFolder folder;
  folder.write("file", "old");
  {
    AtomicFile file(folder / "file");
    file.write("half of the new");
  }
  EXPECT_EQ(read_whole_file(folder / "file"), "old");
  EXPECT_EQ(folder.entry_count(), 1);
}

TEST(AtomicFile, LeavesTheOldFileAndNoTemporaryWhenTheDiskIsFull) {
  TemporaryFolder folder;
  folder.write("file", "old");
  std::string message;
  {
    const FileSizeLimit limit(4096);
    try {
      write_file_atomically(folder / "file", std::string(10000, 'x'));
    } catch (const EnvironmentError& error) {
      message = error.what();
    }
  }
  EXPECT_NE(message.find(folder / "file"), std::string::npos) << message;
  EXPECT_NE(message.find("errno"), std::string::npos) << message;
  EXPECT_EQ(read_whole_file(folder / "file"), "old");
  EXPECT_EQ(folder.entry_count(), 1);
}

TEST(AtomicFile, NamesThePathWhenTheFolderIsMissing) {
  TemporaryFolder folder;
  try {
    AtomicFile file(folder / "missing/file");
    FAIL() << "a file in a missing folder was opened";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("missing/file"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
  }
}

TEST(AtomicFile, RefusesToReplaceAFolderAndRemovesTheTemporary) {
  TemporaryFolder folder;
  folder.write("target/inside", "x");
  EXPECT_THROW(write_file_atomically(folder / "target", "y"), EnvironmentError);
  EXPECT_EQ(folder.entry_count(), 1);
}

TEST(AtomicFile, RefusesAPathWithoutAName) {
  EXPECT_THROW(AtomicFile(""), UsageError);
  EXPECT_THROW(AtomicFile("folder/"), UsageError);
}

TEST(AtomicFile, RefusesWritesAfterCommit) {
  TemporaryFolder folder;
  AtomicFile file(folder / "file");
  file.commit();
  EXPECT_THROW(file.write("late"), UsageError);
  EXPECT_THROW(file.commit(), UsageError);
}

}  // namespace
}  // namespace tutti
