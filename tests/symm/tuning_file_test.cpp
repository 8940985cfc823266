// The table of algorithms that TUTTI_SYMM_TUNING names.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "tests/job/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/symm/tuning.h"

namespace tutti::comm::symm {
namespace {

// What a rank that starts with this setting chooses for an all_reduce of a kilobyte, or its error.
std::string choice_with(const std::string& path) {
  setenv("TUTTI_SYMM_TUNING", path.c_str(), 1);
  RankContext context({.threads = 1});
  const RankContext::Scope scope(context);
  std::string result;
  try {
    result = tuning_table().choose("all_reduce", 2, 1024);
  } catch (const Error& error) {
    result = error.what();
  }
  unsetenv("TUTTI_SYMM_TUNING");
  return result;
}

TEST(TuningFile, ReplacesTheTable) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("table")) << "all_reduce 2 inf two_shot  # always\n";
  EXPECT_EQ(choice_with(""), "one_shot");
  EXPECT_EQ(choice_with(folder.file("table")), "two_shot");
}

// A pipe that nobody writes to must not hang.
TEST(TuningFile, ThatIsNoRegularFileIsNamed) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe"), large = folder.file("large"), here = folder.file(".");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(large) << std::string((1 << 20) + 1, '#');
  EXPECT_EQ(choice_with(pipe), "TUTTI_SYMM_TUNING: " + pipe + ": cannot be read: it is not a regular file");
  EXPECT_EQ(choice_with(here), "TUTTI_SYMM_TUNING: " + here + ": cannot be read: it is a folder; name the file in it");
  EXPECT_EQ(choice_with(large),
            "TUTTI_SYMM_TUNING: " + large + ": 1048577 bytes are more than is read here (1048576 at most)");
  EXPECT_EQ(choice_with("/nowhere/table"),
            "TUTTI_SYMM_TUNING: /nowhere/table: cannot be read: No such file or directory");
}

}  // namespace
}  // namespace tutti::comm::symm
