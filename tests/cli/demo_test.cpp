// `tutti demo bits`, as somebody types it who knows nothing else.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Demo, EveryLayoutHasTheBitsOfTheFirstAndNothingIsLeftBehind) {
  Workplace work;
  const Output output = work.tutti("demo bits", "TMPDIR=" + work.folder().string());
  ASSERT_EQ(output.status, 0) << output.out << output.err;
  EXPECT_EQ(count(output.out, "every bit is that of the first run"), 3) << output.out;
  EXPECT_EQ(count(output.out, "differs from step ") + count(output.out, " tensors differ at step "), 1) << output.out;
  for (const auto& entry : std::filesystem::directory_iterator(work.folder()))
    EXPECT_EQ(entry.path().filename().string().find("tutti-demo"), std::string::npos) << entry.path();
}

TEST(Demo, SaysWhatThereIsToShow) {
  Workplace work;
  EXPECT_EQ(work.tutti("demo").status, 2);
  EXPECT_NE(work.tutti("demo --help").out.find("bits"), std::string::npos);
  EXPECT_EQ(work.tutti("demo bits --keep /proc/nowhere").status, 1);
}

}  // namespace
}  // namespace tutti::test
