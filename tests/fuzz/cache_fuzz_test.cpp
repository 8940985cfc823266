// Every cache against every folder and file that somebody else, an accident or a full disk can leave: what it gives is
// what it gives without a cache, at the cost of one warning, and it never waits.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "tests/fuzz/support/every_cache.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"

namespace tutti::testing {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kSomebodyElse = 65534;

// What fn() says on stderr. Through a pipe: a file would be subject to the limits of these tests.
template <class Fn>
std::string said_by(Fn fn) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  fn();
  fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  char text[8192];
  const ssize_t got = read(ends[0], text, sizeof text);
  close(ends[0]);
  return {text, got > 0 ? static_cast<size_t>(got) : 0};
}

class EveryCache : public ::testing::TestWithParam<size_t> {
 protected:
  // A cache that waits for a pipe would wait for ever.
  void SetUp() override { alarm(240); }
  void TearDown() override { alarm(0); }

  const AnyCache& cache() const { return every_cache()[GetParam()]; }
  fs::path file() const { return cache().file_in(folder); }
  int64_t files_in_folder() const { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); }

  // Asks with something else to make than what is kept: equal to what is made says that nothing of the folder was used.
  // `warnings` is how many are to come.
  void expect_unused(const fs::path& path, int warnings, const std::string& what) {
    const std::string made = cache().made("other");
    const std::string said = said_by([&] {
      EXPECT_EQ(cache().get(path, "other"), made) << what;
      EXPECT_EQ(cache().get(path, "other"), made) << what;
    });
    int lines = 0;
    for (size_t at = said.find("tutti: "); at != std::string::npos; at = said.find("tutti: ", at + 1)) ++lines;
    EXPECT_EQ(lines, warnings) << what << ": " << said;
    EXPECT_TRUE(warnings == 0 || said.find(path.string()) != std::string::npos) << what << ": " << said;
  }

  // The same, and the file is made anew: the next one finds it.
  void expect_made_anew(const std::string& what) {
    expect_unused(folder, 0, what);
    EXPECT_EQ(cache().get(folder, "third"), cache().made("other")) << what;
  }

  void fill() {
    fs::remove_all(folder);
    ASSERT_EQ(cache().get(folder, "good"), cache().made("good"));
    ASSERT_FALSE(file().empty());
  }

  TemporaryFolder place;
  const fs::path folder = place / "parent/cache";
};

// Left out where this process can neither give files to other users nor become one; tests/CMakeLists.txt finds that
// out.
class EveryCacheAndOtherUsers : public EveryCache {};

TEST_P(EveryCache, KeepsWhatItHasMade) {
  ASSERT_NE(cache().made("good"), cache().made("other"));
  fill();
  EXPECT_EQ(cache().get(folder, "other"), cache().made("good"));
}

TEST_P(EveryCache, IsForThisUserAloneWhoeverMakesItFirst) {
  const mode_t before = umask(0);
  fill();
  umask(before);
  struct stat info;
  for (const fs::path& made : {folder.parent_path(), folder}) {
    ASSERT_EQ(stat(made.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u) << made;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u) << entry.path();
  }
}

TEST_P(EveryCacheAndOtherUsers, AMemberOfTheGroupLeavesNothingAndReadsNothing) {
  fill();
  // A member of the folder's group tries to leave a file and to read the key.
  chmod(place.path().c_str(), 0755);
  const pid_t pid = fork();
  if (pid == 0) {
    const gid_t group = getegid();
    if (setgroups(1, &group) != 0 || setgid(group) != 0 || setuid(kSomebodyElse) != 0) _exit(2);
    const int left = open((folder / "forged.kernel").c_str(), O_WRONLY | O_CREAT, 0600);
    const int read = open((folder / "key").c_str(), O_RDONLY);
    _exit(left < 0 && read < 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

TEST_P(EveryCache, DoesNotUseAFolderThatOthersMayWriteTo) {
  for (const mode_t mode : {0770u, 0707u, 0777u, 01777u, 0720u, 0702u}) {
    fill();
    const TemporaryFolder other;  // a place of its own, for a warning of its own
    const fs::path copy = other / "cache";
    fs::copy(folder, copy);
    ASSERT_EQ(chmod(copy.c_str(), mode), 0);
    const auto files = std::distance(fs::directory_iterator(copy), fs::directory_iterator());
    expect_unused(copy, 1, fmt::format("mode {:o}", mode));
    EXPECT_EQ(std::distance(fs::directory_iterator(copy), fs::directory_iterator()), files);
  }
}

TEST_P(EveryCacheAndOtherUsers, DoesNotUseAFolderOfSomebodyElse) {
  fill();
  ASSERT_EQ(chown(folder.c_str(), kSomebodyElse, kSomebodyElse), 0);
  const int64_t files = files_in_folder();
  expect_unused(folder, 1, "other owner");
  EXPECT_EQ(files_in_folder(), files);
}

TEST_P(EveryCacheAndOtherUsers, DoesNotUseAFileOfSomebodyElse) {
  fill();
  ASSERT_EQ(chown(file().c_str(), kSomebodyElse, kSomebodyElse), 0);
  expect_made_anew("other owner");
}

TEST_P(EveryCache, DoesNotUseAFileThatOthersMayWriteTo) {
  for (const mode_t mode : {0620u, 0602u, 0666u}) {
    fill();
    ASSERT_EQ(chmod(file().c_str(), mode), 0);
    expect_made_anew(fmt::format("mode {:o}", mode));
  }
}

TEST_P(EveryCache, DoesNotFollowALink) {
  fill();
  const fs::path target = place / "elsewhere";
  fs::rename(file(), target);
  for (const fs::path& to : {target, fs::path("/dev/zero"), fs::path(place / "nowhere")}) {
    const fs::path name = cache().file_in(folder);
    if (!name.empty()) fs::remove(name);
    fill();
    const fs::path link = file();
    fs::remove(link);
    fs::create_symlink(to, link);
    expect_made_anew("link to " + to.string());
  }
}

TEST_P(EveryCache, DoesNotWaitForAPipe) {
  for (const char* name : {"", "key", "lock.key", "lock.01", "data.lock"}) {
    fill();
    const fs::path pipe = *name ? folder / name : file();
    fs::remove(pipe);
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    if (*name) fs::remove(file());
    expect_made_anew(fmt::format("pipe {}", pipe.filename().string()));
  }
}

TEST_P(EveryCache, AFolderInPlaceOfAFileCostsOneWarning) {
  fill();
  const fs::path path = file();
  fs::remove(path);
  fs::create_directories(path / "inside");
  expect_unused(folder, 1, "folder");
}

TEST_P(EveryCache, AFileCutShortAnywhereIsMadeAnew) {
  fill();
  const std::string whole = read_whole_file(file().string());
  const size_t step = std::max<size_t>(1, whole.size() / 200);
  for (size_t size = 0; size < whole.size(); size += size < 100 ? 1 : step) {
    fill();
    fs::resize_file(file(), size);
    expect_made_anew(fmt::format("cut to {} of {}", size, whole.size()));
  }
  fill();
  std::ofstream(file(), std::ios::app) << "more";
  expect_made_anew("longer");
}

TEST_P(EveryCache, ADamagedFileIsMadeAnew) {
  fill();
  const size_t size = fs::file_size(file());
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    fill();
    std::string bytes = read_whole_file(file().string());
    const size_t at = seed < 64 ? seed % size : random() % size;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << bytes;
    expect_made_anew(fmt::format("seed {}, byte {} of {}", seed, at, size));
  }
}

// Sizes that no memory holds cost nothing: they are looked at first.
TEST_P(EveryCache, AnEndlessFileIsMadeAnew) {
  fill();
  fs::resize_file(file(), uintmax_t{1} << 42);
  expect_made_anew("4 TiB");
}

TEST_P(EveryCache, AFileUnderAnotherKeyIsMadeAnew) {
  if (!cache().is_sealed) return;  // its file is checked to the last value instead
  fill();
  std::ofstream(folder / "key", std::ios::binary | std::ios::trunc) << std::string(32, 'k');
  expect_made_anew("another key");
  fill();
  fs::remove(folder / "key");
  expect_made_anew("no key");
  for (const size_t size : {0u, 31u, 33u}) {
    fill();
    fs::resize_file(folder / "key", size);
    expect_made_anew(fmt::format("a key of {} bytes", size));
  }
  fill();
  ASSERT_EQ(chmod((folder / "key").c_str(), 0644), 0);
  expect_made_anew("a key that others can read");
}

TEST_P(EveryCache, AFullDiskCostsOneWarningAndNothingThatIsThere) {
  const auto with_room = [&](rlim_t room, auto fn) {
    cache().made("other");  // its data is written now
    const FileSizeLimit limit(room);
    fn();
  };
  for (const rlim_t room :
       {0u, 16u, 40u, 60u}) {  // for nothing, for a part of the key, for the key and a part of the file
    const TemporaryFolder other;
    with_room(room, [&] { expect_unused(other / "cache", 1, fmt::format("room for {} bytes", room)); });
    for (const auto& entry : fs::directory_iterator(other / "cache"))
      EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
  }
  fill();
  const std::string good = cache().made("good");
  with_room(0, [&] { EXPECT_EQ(cache().get(folder, "other"), good); });
}

TEST_P(EveryCache, AFolderThatCannotBeMadeOrWrittenCostsOneWarning) {
  const std::string plain = place.write("plain", "a file");
  ASSERT_EQ(mkfifo((place / "pipe").c_str(), 0600), 0);
  // /proc/self is ours and read-only for everybody, root included.
  std::string ours = "/proc/self";
  for (size_t i = 0; i < GetParam(); ++i) ours += "/.";
  for (const fs::path& path : {fs::path(plain), fs::path(plain + "/cache"), fs::path(place / "pipe"), fs::path(ours),
                               fs::path(ours + "/cache")}) {
    expect_unused(path, 1, path.string());
  }
  EXPECT_EQ(read_whole_file(plain), "a file");
}

TEST_P(EveryCache, AFolderThatGoesAwayCostsNothing) {
  fill();
  fs::remove_all(folder);
  expect_made_anew("removed");
}

std::string name_of(const ::testing::TestParamInfo<size_t>& info) { return every_cache()[info.param].name; }
INSTANTIATE_TEST_SUITE_P(Of, EveryCache, ::testing::Range<size_t>(0, every_cache().size()), name_of);
INSTANTIATE_TEST_SUITE_P(Of, EveryCacheAndOtherUsers, ::testing::Range<size_t>(0, every_cache().size()), name_of);

}  // namespace
}  // namespace tutti::testing
