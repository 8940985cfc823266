#include "tutti/io/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

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

// Pages of the process in [begin, begin + nbytes).
int64_t resident_pages(const std::byte* begin, size_t nbytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<uint64_t> entries(nbytes / page);
  const int pages = open("/proc/self/pagemap", O_RDONLY);
  const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(begin) / page * sizeof(uint64_t));
  const ssize_t got = pread(pages, entries.data(), entries.size() * sizeof(uint64_t), at);
  close(pages);
  if (got != static_cast<ssize_t>(entries.size() * sizeof(uint64_t))) return -1;
  return std::count_if(entries.begin(), entries.end(), [](uint64_t entry) { return (entry >> 63) != 0; });
}

TEST(MappedFile, ForgetsPagesThatAreReadAgain) {
  TemporaryFolder folder;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const MappedFile file(folder.write("file", std::string(8 * page, 'x')));
  const auto sum = [&] {
    int64_t total = 0;
    for (const std::byte b : file.bytes()) total += std::to_integer<int64_t>(b);
    return total;
  };
  const int64_t expected = sum();
  if (resident_pages(file.bytes().data(), 8 * page) < 0) GTEST_SKIP() << "left out: /proc/self/pagemap cannot be read";
  ASSERT_EQ(resident_pages(file.bytes().data(), 8 * page), 8);
  forget_pages(file.bytes().subspan(1, 4 * page));  // three whole pages
  EXPECT_EQ(resident_pages(file.bytes().data(), 8 * page), 5);
  EXPECT_EQ(sum(), expected);
  for (const size_t nbytes : {size_t{0}, size_t{1}, page - 1}) forget_pages(file.bytes().subspan(1, nbytes));
  forget_pages({});
  EXPECT_EQ(resident_pages(file.bytes().data(), 8 * page), 8) << "no whole page lies in so few bytes";
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
