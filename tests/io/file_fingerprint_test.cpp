#include "tutti/io/file_fingerprint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

using Files = std::vector<FileFingerprint>;

FileFingerprint file(const std::string& path, uint64_t hash = 1) { return {path, 10, hash}; }

const Files kBefore = {file("data/a", 1), file("data/b", 2), file("data/c", 3)};

struct Case {
  const char* name;
  Files now;
  const char* difference;
};
class FileDifference : public ::testing::TestWithParam<Case> {};

TEST_P(FileDifference, IsNamed) { EXPECT_EQ(first_difference(kBefore, GetParam().now), GetParam().difference); }

INSTANTIATE_TEST_SUITE_P(
    , FileDifference,
    ::testing::Values(
        Case{"None", kBefore, ""},
        Case{"AddedAtTheEnd",
             {file("data/a", 1), file("data/b", 2), file("data/c", 3), file("data/d", 4)},
             "the file data/d was added (10 bytes, hash 0000000000000004)"},
        Case{"AddedInFront",
             {file("data/0", 4), file("data/a", 1), file("data/b", 2), file("data/c", 3)},
             "the file data/0 was added (10 bytes, hash 0000000000000004)"},
        Case{"AddedElsewhere",
             {file("data/a", 1), file("data/b", 2), file("data/c", 3), file("more/d", 4)},
             "the file more/d was added (10 bytes, hash 0000000000000004)"},
        Case{"Removed",
             {file("data/a", 1), file("data/c", 3)},
             "the file data/b was removed (10 bytes, hash 0000000000000002)"},
        Case{"RemovedAtTheEnd",
             {file("data/a", 1), file("data/b", 2)},
             "the file data/c was removed (10 bytes, hash 0000000000000003)"},
        Case{"AllRemoved", {}, "the file data/a was removed (10 bytes, hash 0000000000000001)"},
        Case{
            "Changed",
            {file("data/a", 1), {"data/b", 12, 9}, file("data/c", 3)},
            "the file data/b changed: it had 10 bytes, hash 0000000000000002, and has 12 bytes, hash 0000000000000009"},
        Case{"Renamed",
             {file("data/a", 1), file("data/bb", 2), file("data/c", 3)},
             "the file data/b is called data/bb now (10 bytes, hash 0000000000000002)"},
        Case{"RenamedAndMovedToTheEnd",
             {file("data/a", 1), file("data/c", 3), file("data/z", 2)},
             "the file data/b is called data/z now, and moved from place 2 to place 3 (10 bytes, hash "
             "0000000000000002)"},
        Case{"RenamedAndMovedToTheFront",
             {file("data/0", 3), file("data/a", 1), file("data/b", 2)},
             "the file data/c is called data/0 now, and moved from place 3 to place 1 (10 bytes, hash "
             "0000000000000003)"},
        Case{"RenamedOverAnother",
             {file("data/b", 1), file("data/c", 3)},
             "the file data/a is called data/b now (10 bytes, hash 0000000000000001)"},
        Case{"RenamedAndAnotherAdded",
             {file("data/0", 4), file("data/a", 1), file("data/c", 3), file("data/z", 2)},
             "the file data/0 was added (10 bytes, hash 0000000000000004)"},
        Case{"RemovedAndAnotherRenamed",
             {file("data/b", 2), file("data/z", 3)},
             "the file data/a was removed (10 bytes, hash 0000000000000001)"},
        Case{"Copied",
             {file("data/a", 1), file("data/b", 2), file("data/c", 3), file("data/d", 1)},
             "the file data/d was added (10 bytes, hash 0000000000000001)"},
        Case{"NamesExchanged",
             {file("data/a", 2), file("data/b", 1), file("data/c", 3)},
             "the files data/a and data/b exchanged their names: data/a has 10 bytes, hash 0000000000000002 now, and "
             "data/b has 10 bytes, hash 0000000000000001"},
        Case{"NamesRotated",
             {file("data/a", 3), file("data/b", 1), file("data/c", 2)},
             "the file data/c is called data/a now, and moved from place 3 to place 1 (10 bytes, hash "
             "0000000000000003)"},
        Case{"Reordered",
             {file("data/b", 2), file("data/a", 1), file("data/c", 3)},
             "the files were reordered: at place 1 stood data/a (10 bytes, hash 0000000000000001), and stands data/b "
             "(10 bytes, hash 0000000000000002)"},
        Case{"ReadTwice",
             {file("data/a", 1), file("data/b", 2), file("data/c", 3), file("data/c", 3)},
             "the file data/c (10 bytes, hash 0000000000000003) is read once more, at place 4"},
        Case{"Moved",
             {file("new/data/a", 1), file("new/data/b", 2), file("new/data/c", 3)},
             "the file data/a was moved to new/data/a (10 bytes, hash 0000000000000001)"},
        Case{"MovedAndChanged",
             {file("new/a", 1), file("new/b", 2), file("new/c", 4)},
             "the file new/c changed: it had 10 bytes, hash 0000000000000003, and has 10 bytes, hash 0000000000000004"},
        Case{"MovedAndAdded",
             {file("new/a", 1), file("new/b", 2), file("new/c", 3), file("new/sub/d", 4)},
             "the file new/sub/d was added (10 bytes, hash 0000000000000004)"}),
    [](const auto& info) { return info.param.name; });

TEST(FileFingerprint, HoldsPathSizeAndHashInTheOrderOfReading) {
  const testing::TemporaryFolder folder;
  folder.write("data/b.txt", "second");
  folder.write("data/a.txt", "first");
  const Files files = fingerprint_files(std::vector<std::string>{folder / "data/./"});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, folder / "data/a.txt");
  EXPECT_EQ(files[1].nbytes, 6);
  folder.write("data/a.txt", "First");
  EXPECT_EQ(first_difference(files, fingerprint_files(std::vector<std::string>{folder / "data"}))
                .find("the file " + (folder / "data/a.txt") + " changed: it had 5 bytes"),
            0u);
}

TEST(FileFingerprint, DoesNotDependOnTimes) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("a.txt", "text");
  const Files before = fingerprint_files(std::vector<std::string>{path});
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(fingerprint_files(std::vector<std::string>{path}), before);
}

}  // namespace
}  // namespace tutti
