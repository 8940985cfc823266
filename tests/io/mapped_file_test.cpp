#include "tutti/io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

using testing::TemporaryFolder;

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  TemporaryFolder folder;
  const MappedFile file(folder.write("file", "some bytes"));
  EXPECT_EQ(file.text(), "some bytes");
  EXPECT_EQ(file.nbytes(), 10u);
}

TEST(MappedFile, MapsAnEmptyFile) {
  TemporaryFolder folder;
  const MappedFile file(folder.write("file", ""));
  EXPECT_EQ(file.nbytes(), 0u);
  EXPECT_TRUE(file.bytes().empty());
}

TEST(MappedFile, KeepsTheOldContentsWhenTheFileIsReplaced) {
  TemporaryFolder folder;
  const MappedFile file(folder.write("file", "old"));
  folder.write("newer", "new contents");
  std::filesystem::rename(folder / "newer", folder / "file");
  EXPECT_EQ(file.text(), "old");
}

TEST(MappedFile, NamesAMissingFile) {
  TemporaryFolder folder;
  try {
    MappedFile file(folder / "absent");
    FAIL() << "a missing file was mapped";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("absent"), std::string::npos) << error.what();
  }
}

TEST(MappedFile, NamesAFileThatMayNotBeRead) {
  TemporaryFolder folder;
  const std::string path = folder.write("secret", "text");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  // The superuser may read everything: become somebody else for the call.
  const bool superuser = geteuid() == 0;
  if (superuser) {
    std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
    ASSERT_EQ(seteuid(65534), 0);
  }
  std::string message = "it was mapped";
  try {
    MappedFile file(path);
  } catch (const EnvironmentError& error) {
    message = error.what();
  }
  if (superuser) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_NE(message.find("secret': Permission denied"), std::string::npos) << message;
}

TEST(MappedFile, RefusesAPipeWithoutWaitingForAWriter) {
  TemporaryFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  try {
    MappedFile file(path);
    FAIL() << "a pipe was mapped";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("not a regular file"), std::string::npos) << error.what();
  }
}

TEST(MappedFile, RefusesAFolder) {
  TemporaryFolder folder;
  EXPECT_THROW(MappedFile file(folder.path()), UsageError);
}

}  // namespace
}  // namespace tutti
