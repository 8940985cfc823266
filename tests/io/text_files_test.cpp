#include "tutti/io/text_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

using testing::TemporaryFolder;
using Paths = std::vector<std::string>;

std::string message_of(const Paths& paths) {
  try {
    expand_text_paths(paths);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TextFiles, KeepTheGivenOrder) {
  TemporaryFolder folder;
  const std::string b = folder.write("b", "");
  const std::string a = folder.write("a", "");
  EXPECT_EQ(expand_text_paths(Paths{b, a, b}), (Paths{b, a, b}));
}

TEST(TextFiles, ListAFolderInSortedOrderWithoutHiddenEntries) {
  TemporaryFolder folder;
  folder.write("b.txt", "");
  folder.write("sub/a.txt", "");
  folder.write("a.txt", "");
  folder.write(".hidden", "");
  folder.write(".git/config", "");
  EXPECT_EQ(expand_text_paths(Paths{folder.path()}), (Paths{folder / "a.txt", folder / "b.txt", folder / "sub/a.txt"}));
}

TEST(TextFiles, ExpandGlobsInSortedOrder) {
  TemporaryFolder folder;
  folder.write("2.txt", "");
  folder.write("1.txt", "");
  folder.write("3.bin", "");
  EXPECT_EQ(expand_text_paths(Paths{folder / "*.txt"}), (Paths{folder / "1.txt", folder / "2.txt"}));
}

TEST(TextFiles, PatternsLeaveFoldersWhole) {
  TemporaryFolder folder;
  folder.write("day_2/a.npy", "");
  folder.write("day_1/b.npy", "");
  const std::string file = folder.write("c.csv", "");
  EXPECT_EQ(expand_patterns(Paths{file, folder / "day_?"}), (Paths{file, folder / "day_1", folder / "day_2"}));
  EXPECT_EQ(expand_patterns(Paths{folder / "day_2"}), Paths{folder / "day_2"});
  EXPECT_THROW(expand_patterns(Paths{}), UsageError);
  EXPECT_THROW(expand_patterns(Paths{folder / "day_?", folder / "day_4*"}), UsageError);
}

TEST(TextFiles, PreferAFileWhoseNameLooksLikeAGlob) {
  TemporaryFolder folder;
  const std::string odd = folder.write("[1].txt", "");
  EXPECT_EQ(expand_text_paths(Paths{odd}), Paths{odd});
}

TEST(TextFiles, NameTheNearestEntryOfAMissingPath) {
  TemporaryFolder folder;
  folder.write("corpus.txt", "");
  const std::string message = message_of({folder / "corpsu.txt"});
  EXPECT_NE(message.find("does not exist; did you mean '" + (folder / "corpus.txt") + "'?"), std::string::npos)
      << message;
}

TEST(TextFiles, SayWhereALinkToNothingLeads) {
  TemporaryFolder folder;
  std::filesystem::create_symlink("nowhere", folder / "link");
  const std::string message = message_of({folder / "link"});
  EXPECT_NE(message.find("is a link to 'nowhere', which does not exist"), std::string::npos) << message;
}

TEST(TextFiles, RefuseNothing) {
  TemporaryFolder folder;
  EXPECT_NE(message_of({}).find("no data"), std::string::npos);
  EXPECT_NE(message_of({folder.path()}).find("no file in the data folder"), std::string::npos);
  EXPECT_NE(message_of({folder / "*.txt"}).find("no file matches"), std::string::npos);
}

}  // namespace
}  // namespace tutti
