#include "tutti/io/mapped_file.h"

#include <gtest/gtest.h>

#include "tests/io/support/temporary_folder.h"
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

TEST(MappedFile, RefusesAFolder) {
  TemporaryFolder folder;
  EXPECT_THROW(MappedFile file(folder.path()), EnvironmentError);
}

}  // namespace
}  // namespace tutti
