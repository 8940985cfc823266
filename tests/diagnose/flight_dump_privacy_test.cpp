// Dumps of the flight recorder are for the eyes of their user, and stand where nobody else can have put something.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "tests/support/temporary_folder.h"
#include "tutti/diagnose/flight_dump.h"
#include "tutti/diagnose/flight_recorder.h"

namespace tutti::comm {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

mode_t mode_of(const fs::path& path) {
  struct stat info{};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

// Restores the variable when it goes.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* before = std::getenv(name);
    was_set_ = before != nullptr;
    if (was_set_) before_ = before;
    if (value.empty()) unsetenv(name);
    else setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (was_set_) setenv(name_, before_.c_str(), 1);
    else unsetenv(name_);
  }

 private:
  const char* const name_;
  bool was_set_ = false;
  std::string before_;
};

TEST(FlightDumpPrivacy, TheFolderAndTheFilesAreTheUsersAlone) {
  const TemporaryFolder folder;
  const Variable temporary("TMPDIR", folder.path()), none("TUTTI_FLIGHT_RECORDER_DUMP", "");
  const mode_t before = umask(0);
  for (int rank = 0; rank < 2; ++rank) {
    const fs::path dump = FlightRecorder({.rank = rank, .world_size = 2}).dump("test");
    EXPECT_EQ(dump, fs::path(folder.path()) / ("tutti-flight-" + std::to_string(geteuid())) /
                        (std::to_string(getppid()) + "-" + std::to_string(rank)));
    EXPECT_EQ(mode_of(dump), 0600u);
    EXPECT_EQ(mode_of(dump.parent_path()), 0700u);
    EXPECT_EQ(read_flight_dump_file(dump.string()).rank, rank);
  }
  umask(before);
}

// Whoever knows the name can be there first, with anything.
TEST(FlightDumpPrivacy, AFolderThatIsNotTheUsersAloneIsNotUsed) {
  const std::string name = "tutti-flight-" + std::to_string(geteuid());
  const std::pair<const char*, std::function<void(const fs::path&, const fs::path&)>> plants[] = {
      {"a folder that others may read",
       [](const fs::path& place, const fs::path&) {
         fs::create_directory(place), fs::permissions(place, fs::perms(0755));
       }},
      {"a folder that others may write to",
       [](const fs::path& place, const fs::path&) {
         fs::create_directory(place), fs::permissions(place, fs::perms(0777));
       }},
      {"a link to a folder",
       [](const fs::path& place, const fs::path& other) { fs::create_directory_symlink(other, place); }},
      {"a link to nowhere",
       [](const fs::path& place, const fs::path& other) { fs::create_directory_symlink(other / "nowhere", place); }},
      {"a file", [](const fs::path& place, const fs::path&) { std::ofstream(place) << "here"; }},
  };
  for (const auto& [what, plant] : plants) {
    const TemporaryFolder folder, other;
    const Variable temporary("TMPDIR", folder.path()), none("TUTTI_FLIGHT_RECORDER_DUMP", "");
    fs::permissions(other.path(), fs::perms(0700));
    plant(fs::path(folder.path()) / name, other.path());
    // The stand-in belongs to the process, so each plant is tried in one of its own.
    const auto dump_elsewhere = [&] {
      const fs::path dump = FlightRecorder({.rank = 0, .world_size = 1}).dump("test"),
                     second = FlightRecorder({.rank = 1, .world_size = 2}).dump("test");
      const bool is_elsewhere = dump.parent_path().filename().string().starts_with(name + "-") &&
                                dump.parent_path().parent_path() == folder.path();
      const bool is_private = (fs::status(dump.parent_path()).permissions() & fs::perms(0777)) == fs::perms(0700) &&
                              (fs::status(dump).permissions() & fs::perms(0777)) == fs::perms(0600);
      _exit(is_elsewhere && is_private && second.parent_path() == dump.parent_path() && fs::is_empty(other.path()) ? 0
                                                                                                                   : 1);
    };
    EXPECT_EXIT(dump_elsewhere(), ::testing::ExitedWithCode(0), "") << what;
    EXPECT_TRUE(!fs::is_directory(fs::symlink_status(fs::path(folder.path()) / name)) ||
                fs::is_empty(fs::path(folder.path()) / name))
        << what;
  }
}

TEST(FlightDumpPrivacy, ALinkInThePlaceOfTheFileIsReplacedAndNotFollowed) {
  const TemporaryFolder folder;
  const std::string victim = folder.write("victim", "dear");
  fs::create_symlink(victim, fs::path(folder.path()) / "dump_0");
  const Variable prefix("TUTTI_FLIGHT_RECORDER_DUMP", folder / "dump_");
  const mode_t before = umask(0);
  const fs::path dump = FlightRecorder({.rank = 0, .world_size = 1}).dump("test");
  umask(before);
  EXPECT_EQ(dump, fs::path(folder.path()) / "dump_0");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(dump)));
  EXPECT_EQ(mode_of(dump), 0600u);
  EXPECT_EQ(fs::file_size(victim), 4u);
}

}  // namespace
}  // namespace tutti::comm
