// `ulimit -f`: a run whose files may not grow ends with an error that names the file, never by a signal, and loses
// nothing.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/support/program.h"
#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace {

std::string limit_of(int64_t kib) {
  return "ulimit -f " + std::to_string(kib * 2) + ";";
}  // a shell counts in halves of a KiB

TEST(FileSizeLimit, OfARunIsAnErrorThatNamesTheFile) {
  const Workplace whole;
  write_tiny_run(whole);
  ASSERT_EQ(whole.tutti("train run.toml --quiet").status, 0);
  const std::string expected = outcome_of(whole);
  for (const std::string ranks : {"", "launch -n 2 -- "}) {
    bool is_enough = false;
    for (int64_t kib = 4; !is_enough; kib *= 4) {  // room for the messages, which are in a file too
      ASSERT_LT(kib, 1 << 20) << "no limit is high enough";
      const Workplace work;
      write_tiny_run(work);
      const std::string prefix = ranks.empty() ? "" : ranks + TUTTI_BINARY_DIR "/tutti ";
      const Output limited = work.tutti(prefix + "train run.toml --quiet", limit_of(kib));
      is_enough = limited.status == 0;
      if (is_enough) continue;
      EXPECT_EQ(limited.status, 1) << kib << " KiB\n" << limited.err;
      EXPECT_NE(limited.err.find("File too large"), std::string::npos) << kib << " KiB\n" << limited.err;
      const bool names = limited.err.find("runs/run") != std::string::npos ||
                         limited.err.find("memory shared between ranks") != std::string::npos;
      EXPECT_TRUE(names) << kib << " KiB\n" << limited.err;
      EXPECT_EQ(limited.err.find("signal"), std::string::npos) << kib << " KiB\n" << limited.err;
      // With room it goes on to where it would have come.
      ASSERT_EQ(work.tutti(prefix + "train run.toml --quiet").status, 0) << kib << " KiB";
      EXPECT_EQ(outcome_of(work), expected) << kib << " KiB";
    }
  }
}

TEST(FileSizeLimit, OfTheOutputIsAnErrorOfTheCommand) {
  const Workplace work;
  const Output output = work.tutti("train --help > help.txt 2> err.txt #", limit_of(1));
  EXPECT_EQ(output.status, 1) << output.err;
  EXPECT_NE(output.err.find("the results are incomplete, because the standard output cannot be written"),
            std::string::npos)
      << output.err;
}

// A program of the user's gets the system's default, as it would without a launcher.
TEST(FileSizeLimit, OfALaunchedProgramIsItsOwnMatter) {
  const Workplace work;
  const Output output = work.tutti("launch -n 1 -- sh -c 'ulimit -f 0; echo text > file'");
  EXPECT_EQ(output.status, 128 + 25) << output.err;
}

}  // namespace
}  // namespace tutti::test
