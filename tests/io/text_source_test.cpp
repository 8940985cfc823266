#include "tutti/io/text_source.h"

#include <gtest/gtest.h>

#include "tests/io/support/gzip_writer.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

using testing::gzip_of;
using testing::TemporaryFolder;
using Documents = std::vector<std::string>;

Documents read(const std::string& path, const TextSourceOptions& options = {}) {
  return read_documents(Documents{path}, options);
}

template <class Kind>
std::string message_of(const std::string& path) {
  try {
    read(path);
  } catch (const Kind& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TextSource, MakesOneDocumentOfASmallFile) {
  TemporaryFolder folder;
  EXPECT_EQ(read(folder.write("a.txt", "one\n\ntwo\n")), Documents{"one\n\ntwo\n"});
}

TEST(TextSource, KeepsInvalidUtf8) {
  TemporaryFolder folder;
  const std::string bytes("a\xff\xfe\0b", 5), latin1 =
                                                  "Gr\xfc\xdf"
                                                  "e";
  EXPECT_EQ(read(folder.write("a.txt", latin1)), Documents{latin1});
  EXPECT_EQ(read(folder.write("a.bin", bytes), {.reads_binary = true}), Documents{bytes});
}

TEST(TextSource, CutsALargeFileAtBlankLinesAndLosesNothing) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "paragraph " + std::to_string(i) + "\nsecond line\n\n";
  const Documents sections = read(folder.write("book.txt", text), {.large_file_nbytes = 100, .section_nbytes = 200});
  std::string joined;
  for (const std::string& section : sections) {
    EXPECT_TRUE(section.ends_with("\n\n"));
    EXPECT_LT(section.size(), 400u);
    joined += section;
  }
  EXPECT_GT(sections.size(), 8u);
  EXPECT_EQ(joined, text);
}

TEST(TextSource, CutsALargeFileWithoutLinesBetweenCharacters) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "\u20ac";
  std::string joined;
  for (const std::string& section : read(folder.write("a", text), {.large_file_nbytes = 10, .section_nbytes = 10})) {
    EXPECT_EQ(section.size() % 3, 0u);
    joined += section;
  }
  EXPECT_EQ(joined, text);
}

TEST(TextSource, ReadsJsonLines) {
  TemporaryFolder folder;
  EXPECT_EQ(read(folder.write("a.jsonl", "{\"text\": \"one\\n\"}\r\n\n{\"id\": 1, \"text\": \"tw\\u00f6\"}")),
            (Documents{"one\n", "tw\u00f6"}));
}

TEST(TextSource, NamesFileAndLineOfMalformedJson) {
  TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\n");
  const std::string message = message_of<UsageError>(path);
  EXPECT_NE(message.find(path + ":2:"), std::string::npos) << message;
}

TEST(TextSource, SaysWhatAJsonLineLacks) {
  TemporaryFolder folder;
  EXPECT_NE(message_of<UsageError>(folder.write("a.jsonl", "{\"txt\": \"\"}")).find("a.jsonl:1: has no 'text'"),
            std::string::npos);
  EXPECT_NE(
      message_of<UsageError>(folder.write("b.jsonl", "[1]")).find("b.jsonl:1: is an array of 1, expected an object"),
      std::string::npos);
  EXPECT_NE(
      message_of<UsageError>(folder.write("c.jsonl", "{\"text\": 1}")).find("c.jsonl:1: text: is 1, expected a string"),
      std::string::npos);
}

TEST(TextSource, MakesADocumentOfEachDictEntry) {
  TemporaryFolder folder;
  const std::string dict =
      "\n\n00-database-url\n   somewhere\n\nLark \\Lark\\ n.\n   A bird.\n\n   Note: sings.\n\n\nLarker\n   One who "
      "larks.\n";
  EXPECT_EQ(read(folder.write("a.dict.dz", gzip_of(dict))),
            (Documents{"Lark \\Lark\\ n.\n   A bird.\n\n   Note: sings.\n", "Larker\n   One who larks.\n"}));
}

TEST(TextSource, SeesCompressionInTheContentsAndKindInTheName) {
  TemporaryFolder folder;
  EXPECT_EQ(read(folder.write("a.jsonl.gz", gzip_of("{\"text\": \"one\"}\n"))), Documents{"one"});
  EXPECT_EQ(read(folder.write("a.txt", gzip_of("packed"))), Documents{"packed"});
  EXPECT_NE(message_of<EnvironmentError>(folder.write("b.gz", "not packed")).find("b.gz"), std::string::npos);
}

TEST(TextSource, RefusesEmptyData) {
  TemporaryFolder folder;
  EXPECT_NE(message_of<UsageError>(folder.write("a.txt", "")).find("no text in the data"), std::string::npos);
  EXPECT_NE(message_of<UsageError>(folder.write("b.txt", " \n\t\n")).find("no text in the data"), std::string::npos);
  EXPECT_NE(message_of<UsageError>(folder.write("c.jsonl", "\n\n")).find("no text in the data"), std::string::npos);
}

TEST(TextSource, RefusesWhatIsNotARegularFile) {
  EXPECT_NE(message_of<UsageError>("/dev/null").find("/dev/null"), std::string::npos);
}

}  // namespace
}  // namespace tutti
