#include "tutti/runtime/cache_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/runtime/sealed_cache.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::read_whole_file;
using testing::TemporaryFolder;

bool put(const CacheFolder& folder, std::string_view name, std::string_view contents) {
  return folder.replace(name, {&contents, 1});
}

void make_older(const fs::path& file, int hours) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

TEST(CacheFolder, PutsPartsTogether) {
  const TemporaryFolder place;
  const CacheFolder folder(place / "cache");
  const std::string_view parts[] = {"one ", "", "two"};
  ASSERT_TRUE(folder.replace("file", parts));
  EXPECT_EQ(folder.open("file").read(100), "one two");
  EXPECT_EQ(folder.open("file").read(6), std::nullopt);
}

TEST(CacheFolder, WhoHasReadsOnWhenAFileIsReplaced) {
  const TemporaryFolder place;
  const CacheFolder folder(place / "cache");
  put(folder, "file", "old");
  const CacheFile old = folder.open("file");
  put(folder, "file", "newer");
  EXPECT_EQ(old.read(100), "old");
  EXPECT_EQ(folder.open("file").read(100), "newer");
}

// Moving the folder away and another one into its place is of no use to anybody.
TEST(CacheFolder, IsTheOneThatWasOpened) {
  const TemporaryFolder place;
  const CacheFolder folder(place / "cache");
  put(folder, "file", "ours");
  fs::rename(place / "cache", place / "moved");
  place.write("cache/file", "theirs");
  EXPECT_EQ(folder.open("file").read(100), "ours");
  put(folder, "more", "of ours");
  EXPECT_EQ(read_whole_file(place / "moved/more"), "of ours");
}

TEST(CacheFolder, EmptyKeepsNothing) {
  const CacheFolder folder("");
  EXPECT_FALSE(folder.is_usable());
  EXPECT_FALSE(put(folder, "file", "x"));
  EXPECT_FALSE(folder.open("file"));
  EXPECT_FALSE(folder.lock("lock", std::chrono::seconds(0)));
  EXPECT_EQ(folder.evict("file", {}), 0);
}

TEST(CacheFolder, ALockIsHeldByOne) {
  const TemporaryFolder place;
  const CacheFolder folder(place / "cache"), other(place / "cache");
  {
    const CacheLock lock = folder.lock("lock", std::chrono::seconds(0));
    EXPECT_TRUE(lock);
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(other.lock("lock", std::chrono::seconds(0)));
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("has been locked by another process for 0 s"),
              std::string::npos);
  }
  EXPECT_TRUE(other.lock("lock", std::chrono::seconds(0)));
}

TEST(CacheFolder, ALongWaitIsTold) {
  const TemporaryFolder place;
  const CacheFolder folder(place / "cache"), other(place / "cache");
  std::optional<CacheLock> lock = folder.lock("data", std::chrono::seconds(0));
  ::testing::internal::CaptureStderr();
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(3500));  // a busy machine may not look for a second
    lock.reset();
  });
  EXPECT_TRUE(other.lock("data", std::chrono::minutes(30)));
  holder.join();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(fmt::format("waiting for another process that has locked {}/data, at most 30 minutes",
                                  place / "cache")),
            std::string::npos)
      << said;
}

TEST(CacheFolder, EvictsTheOldestOfAKind) {
  const TemporaryFolder place;
  const CacheFolder folder(place / "cache");
  for (int i = 0; i < 6; ++i) {
    put(folder, fmt::format("{}.kind", i), std::string(100, 'x'));
    make_older(place / fmt::format("cache/{}.kind", i), 6 - i);
  }
  put(folder, "other", "x");
  make_older(place / "cache/other", 100);
  EXPECT_EQ(folder.evict(".kind", {.files = 6, .nbytes = 600}), 600);
  EXPECT_EQ(folder.evict(".kind", {.files = 5}), 500);
  EXPECT_FALSE(folder.open("0.kind"));
  EXPECT_EQ(folder.evict(".kind", {.nbytes = 400}), 300) << "an eighth of room is made";
  EXPECT_TRUE(folder.open("3.kind"));
  EXPECT_FALSE(folder.open("2.kind"));
  EXPECT_TRUE(folder.open("other"));
}

TEST(CacheFolder, ClearsAwayWhatAKilledProcessLeftADayAgo) {
  const TemporaryFolder place;
  const CacheFolder folder(place / "cache");
  const std::string left = place.write("cache/.a.kind.tmp-1-0", "x"),
                    being_written = place.write("cache/.b.kind.tmp-1-0", "x");
  make_older(left, 25);
  folder.evict(".kind", {});
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(being_written));
}

TEST(DefaultCacheFolder, IsTheFirstOfThreeVariables) {
  const std::string names[] = {"TUTTI_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::pair<std::string, std::string>> before;
  for (const std::string& name : names) {
    const char* value = std::getenv(name.c_str());
    if (value) before.emplace_back(name, value);
    setenv(name.c_str(), ("/" + name).c_str(), 1);
  }
  EXPECT_EQ(default_cache_folder(), "/TUTTI_CACHE_DIR");
  unsetenv("TUTTI_CACHE_DIR");
  EXPECT_EQ(default_cache_folder(), "/XDG_CACHE_HOME/tutti");
  setenv("XDG_CACHE_HOME", "", 1);
  EXPECT_EQ(default_cache_folder(), "/HOME/.cache/tutti");
  unsetenv("HOME");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(default_cache_folder(), "");
  EXPECT_EQ(default_cache_folder(), "");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("tutti: there is no cache"), 0u) << said;
  EXPECT_EQ(said.find("tutti:", 1), std::string::npos) << said;
  for (const std::string& name : names) unsetenv(name.c_str());
  for (const auto& [name, value] : before) setenv(name.c_str(), value.c_str(), 1);
}

TEST(SealedCache, GivesOnlyWhatItWasGivenForNameAndLabel) {
  const TemporaryFolder place;
  const SealedCache cache(place / "cache"), another_process(place / "cache");
  ASSERT_TRUE(cache.write("file", "kind 1", "contents"));
  EXPECT_EQ(another_process.read("file", "kind 1", 8), "contents");
  EXPECT_EQ(another_process.read("file", "kind 1", 7), std::nullopt);
  EXPECT_EQ(another_process.read("file", "kind 2", 100), std::nullopt);
  EXPECT_EQ(another_process.read("file", "kind 1c", 100), std::nullopt) << "label and contents are told apart";
  EXPECT_EQ(another_process.read("file", "kind ", 100), std::nullopt);
  EXPECT_EQ(another_process.read("other", "kind 1", 100), std::nullopt);
}

TEST(SealedCache, EmptyContentsAreContents) {
  const TemporaryFolder place;
  const SealedCache cache(place / "cache");
  const auto nbytes = cache.write("file", "", "");
  ASSERT_TRUE(nbytes);
  EXPECT_EQ(static_cast<uintmax_t>(*nbytes), fs::file_size(place / "cache/file"));
  EXPECT_EQ(cache.read("file", "", 0), "");
}

TEST(SealedCache, EveryFolderHasAKeyOfItsOwn) {
  const TemporaryFolder place;
  SealedCache(place / "a").write("file", "kind", "contents");
  SealedCache(place / "b").write("other", "kind", "contents");
  const std::string a = read_whole_file(place / "a/key"), b = read_whole_file(place / "b/key");
  EXPECT_EQ(a.size(), 32u);
  EXPECT_NE(a, b);
  fs::copy_file(place / "a/file", place / "b/file");
  EXPECT_EQ(SealedCache(place / "b").read("file", "kind", 100), std::nullopt);
}

}  // namespace
}  // namespace tutti
