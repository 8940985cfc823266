#include "tutti/train/data/run_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"

namespace tutti::train {
namespace {

using testing::TemporaryFolder;

TEST(RunTokenizer, ItsFilesAreCopiedWhereTheyAre) {
  const TemporaryFolder from, to;
  copy_run_tokenizer(from.path(), to.path());
  EXPECT_EQ(to.entry_count(), 0);
  from.write("tokenizer.json", "a vocabulary");
  from.write("tokenizer_config.json", "markers");
  copy_run_tokenizer(from.path(), to.path());
  EXPECT_EQ(testing::read_whole_file(to / "tokenizer.json"), "a vocabulary");
  EXPECT_EQ(testing::read_whole_file(to / "tokenizer_config.json"), "markers");
}

TEST(RunTokenizer, ACopyThatMayNotGrowIsAnErrorThatNamesItAndNoSignal) {
  const TemporaryFolder from, to;
  from.write("tokenizer.json", "a vocabulary");
  const testing::FileSizeLimit limit(4);
  std::string text;
  try {
    copy_run_tokenizer(from.path(), to.path());
  } catch (const EnvironmentError& error) {
    text = error.what();
  }
  for (const std::string& part : {from / "tokenizer.json", to / "tokenizer.json", std::string("File too large")})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::train
