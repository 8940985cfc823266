// Data that nobody should train on: files without text, and files that expand without end.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/io/support/gzip_writer.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/text_source.h"

namespace tutti {
namespace {

using namespace std::string_literals;
using testing::gzip_of;
using testing::TemporaryFolder;
using Documents = std::vector<std::string>;

TextDocuments read(const std::string& path, const TextSourceOptions& options = {}) {
  return read_counted_documents(Documents{path}, options);
}

std::string refusal_of(const std::string& path, const TextSourceOptions& options = {}) {
  try {
    read(path, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// Equal seeds give equal numbers.
struct Numbers {
  uint64_t state;
  uint64_t next(uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  }
};

std::string noise(size_t nbytes) {
  Numbers numbers{1};
  std::string bytes(nbytes, '\0');
  for (char& c : bytes) c = static_cast<char>(numbers.next(255) + 1);
  return bytes;
}

// Text of words, with line ends within.
Documents sample_documents(int count) {
  static const char* const kWords[] = {"the",  "lark",  "sings", "above", "a",     "field",  "of",   "barley", "and",
                                       "wind", "moves", "its",   "grey",  "water", "slowly", "then", "rests"};
  Numbers numbers{7};
  Documents documents;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (uint64_t words = 5 + numbers.next(40); words > 0; --words)
      text += std::string(kWords[numbers.next(std::size(kWords))]) + (numbers.next(9) == 0 ? ".\n" : " ");
    documents.push_back(text);
  }
  return documents;
}

std::string at(size_t place, const std::string& text) { return std::string(place, 'a') + text; }

// The first bytes of the formats' specifications.
const std::pair<std::string, std::string> kBinaries[] = {
    {"\xfd"
     "7zXZ\0\0\4"s,
     "xz data; uncompress it first: xz -d"},
    {"\x28\xb5\x2f\xfd\4\0"s, "zstd data; uncompress it first: zstd -d"},
    {"BZh91AY&SY", "bzip2 data"},
    {"\x04\x22\x4d\x18\x64", "lz4 data"},
    {"PK\x03\x04\x14", "a zip archive"},
    {"7z\xbc\xaf\x27\x1c", "a 7z archive"},
    {at(257, "ustar"), "a tar archive"},
    {"PAR1\x15\4", "a Parquet table; export its text to .jsonl"},
    {"ARROW1\0\0"s, "an Arrow table"},
    {"Obj\x01\4", "Avro data"},
    {"SQLite format 3\0"s, "an SQLite database"},
    {"\x89HDF\r\n\x1a\n", "an HDF5 file"},
    {"\x93NUMPY\1", "a NumPy array"},
    {"%PDF-1.7\n", "a PDF document"},
    {"\x89PNG\r\n\x1a\n", "a picture"},
    {"\xff\xd8\xff\xe0", "a picture"},
    {"GIF89a", "a picture"},
    {"\x7f"
     "ELF\2",
     "a program"},
    {"\xff\xfeT\0e\0x\0t\0"s, "UTF-16 text; convert it to UTF-8"},
    {"\xfe\xff\0T\0e\0x\0t"s, "UTF-16 text"},
    {"T\0e\0x\0t\0"s, "no text: byte 1 is zero"},
    {at(60'000, "\0"s), "no text: byte 60000 is zero"},
    {noise(5000), "control characters"},
    {gzip_of(gzip_of("packed twice")), "gzip data within gzip data"},
};

TEST(BinaryData, IsRefusedByItsFormatUnderAnyNameAndReadWhenAskedFor) {
  TemporaryFolder folder;
  for (const auto& [bytes, kind] : kBinaries) {
    for (const char* name : {"data.txt", "data.xz", "data", "data.dict"}) {
      for (const bool is_packed : {false, true}) {
        if (is_packed && kind.starts_with("gzip")) continue;
        const std::string path = folder.write(name, is_packed ? gzip_of(bytes) : bytes);
        const std::string message = refusal_of(path);
        EXPECT_EQ(message.find("the data file '" + path + "' is "), 0u) << message;
        EXPECT_NE(message.find(kind), std::string::npos) << message;
        EXPECT_NE(message.find("set data.binary = \"read\""), std::string::npos) << message;
        EXPECT_EQ(refusal_of(path, {.reads_binary = true}), "accepted") << kind;
      }
    }
  }
}

TEST(BinaryData, IsNoTextOfPeople) {
  TemporaryFolder folder;
  const std::string texts[] = {"Zwölf Boxkämpfer\n",
                               "\xd0\x96\xd1\x83\xd0\xba",
                               "Latin-1: \xe4\xf6\xfc\n",
                               "\xef\xbb\xbfwith a mark",
                               "bold: o\bo\n",
                               "\x1b[1mcolours\x1b[0m\n",
                               "PKZIP, BZip and PARIS",
                               "a\r\n\f\v\tb",
                               at(70'000, "a zero behind the head: \0"s)};
  for (const std::string& text : texts)
    EXPECT_EQ(read(folder.write("a.txt", text)).counts.nbytes, static_cast<int64_t>(text.size())) << text;
}

TEST(TextCounts, TellWhatWasReadAndWhatWasSkipped) {
  TemporaryFolder folder;
  folder.write("data/a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \" \"}\n{\"text\": \"two\"}\n");
  folder.write("data/b.txt", "three");
  folder.write("data/c.txt", "\n");
  folder.write("data/d.jsonl", "");
  folder.write("data/e.dict", "00-database-url\n   here\n\nLark\n   A bird.\n");
  const TextCounts counts = read(folder / "data").counts;
  EXPECT_EQ(counts, (TextCounts{.files = 5, .documents = 4, .nbytes = 3 + 3 + 5 + 16, .skipped = 4}));
  EXPECT_EQ(describe(counts), "read 5 files, 4 documents, 27 bytes, skipped 4 without text");
  EXPECT_EQ(describe(TextCounts{.files = 1, .documents = 1, .nbytes = 1}),
            "read 1 file, 1 document, 1 byte, skipped 0 without text");
}

TEST(TextField, IsTheOneThatIsNamed) {
  TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"text\": \"no\", \"content\": \"yes\"}\n");
  EXPECT_EQ(read(path, {.text_field = "content"}).documents, Documents{"yes"});
  EXPECT_EQ(refusal_of(path, {.text_field = "body"}),
            path +
                ":1: has no 'body'; its keys are \"text\", \"content\". Name the one that holds the text: "
                "data.text_field, or --text-field of tutti tokenizer train");
  std::string many = "{";
  for (int i = 0; i < 30; ++i) many += "\"k" + std::to_string(i) + "\\u001b\": 1, ";
  EXPECT_NE(refusal_of(folder.write("b.jsonl", "{\"text\": \"\"}\n" + many + "\"z\": 2}"))
                .find("b.jsonl:2: has no 'text'; its keys are \"k0\\u001b\", "),
            std::string::npos);
  EXPECT_NE(refusal_of(folder / "b.jsonl").find(" and 19 more. Name"), std::string::npos)
      << refusal_of(folder / "b.jsonl");
  EXPECT_NE(refusal_of(folder.write("c.jsonl", "{}")).find("it has no keys at all"), std::string::npos);
}

// What is expanded piece by piece is divided as what is there at once, wherever the pieces end.
TEST(CompressedText, GivesTheDocumentsOfPlainText) {
  TemporaryFolder folder;
  std::string lines, dict, plain;
  const Documents samples = sample_documents(9000);
  for (size_t i = 0; i < samples.size(); ++i) {
    std::string escaped;
    for (const char c : samples[i]) escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
    lines += "{\"text\": \"" + escaped + "\"}" + (i % 3 == 0 ? "\r\n" : i % 3 == 1 ? "\n\n" : "\n");
    dict += "Head" + std::to_string(i) + "\n   " + escaped + "\n\n   more\n\n";
    plain += samples[i] + (i % 7 == 0 ? "\n\n" : " ");
  }
  ASSERT_GT(plain.size(), size_t{1} << 20) << "more than one piece";
  const std::pair<std::string, std::string> kinds[] = {{"a.jsonl", lines},
                                                       {"a.dict", dict},
                                                       {"a.txt", plain},
                                                       {"b.txt", plain.substr(0, 64 << 10)},
                                                       {"c.txt", plain.substr(0, (64 << 10) + 1)},
                                                       {"d.jsonl", lines + "{\"text\": \"the last line has no end\"}"}};
  for (const auto& [name, text] : kinds) {
    const TextDocuments whole = read(folder.write(name, text));
    std::string members;
    for (size_t begin = 0; begin < text.size(); begin += 77'777) members += gzip_of(text.substr(begin, 77'777));
    for (const std::string& packed : {gzip_of(text), members}) {
      const TextDocuments streamed = read(folder.write(name + ".gz", packed));
      EXPECT_TRUE(streamed.documents == whole.documents) << name;
      EXPECT_EQ(streamed.counts, whole.counts) << name;
    }
  }
}

// How much memory a process takes beyond what it has now, at its highest, in MiB.
template <class Work>
int64_t growth_mib(const Work& work) {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    work();
    getrusage(RUSAGE_SELF, &after);
    const int64_t kib = after.ru_maxrss - before.ru_maxrss;
    _exit(write(pipes[1], &kib, sizeof kib) == sizeof kib ? 0 : 1);
  }
  close(pipes[1]);
  int64_t kib = -1;
  EXPECT_EQ(::read(pipes[0], &kib, sizeof kib), static_cast<ssize_t>(sizeof kib)) << "the work did not end well";
  close(pipes[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return kib >> 10;
}

TEST(CompressedText, TakesNoMemoryForItsSize) {
  TemporaryFolder folder;
  std::string line = "{\"text\": \"", plain, dict;
  for (const std::string& document : sample_documents(400)) plain += document;
  std::erase(plain, '\n');
  line += plain + "\"}\n";
  dict = "Head\n   " + plain + "\n\n";
  const std::pair<const char*, std::string> kinds[] = {{"a.txt.gz", plain}, {"a.jsonl.gz", line}, {"a.dict.gz", dict}};
  for (const auto& [name, text] : kinds) {
    const std::string member = gzip_of(text);
    std::string packed;
    int64_t nbytes = 0;
    for (; nbytes < (int64_t{96} << 20); nbytes += static_cast<int64_t>(text.size())) packed += member;
    const std::vector<std::string> files = {folder.write(name, packed)};
    int64_t seen = 0;
    const int64_t mib = growth_mib([&] {
      const TextCounts counts =
          for_each_document(files, [&](std::string_view document) { seen += static_cast<int64_t>(document.size()); });
      if (counts.nbytes < nbytes * 9 / 10) _exit(1);
    });
    EXPECT_LT(mib, 24 + static_cast<int64_t>(packed.size() >> 20)) << name;
  }
}

std::string repeated(std::string_view part, int64_t times) {
  std::string text;
  for (int64_t i = 0; i < times; ++i) text += part;
  return text;
}

// Each in a form of little size and much memory.
TEST(HostileText, IsRefusedByNameBeforeItTakesMuchMemory) {
  TemporaryFolder folder;
  const std::string gib = [] {
    const std::string member = gzip_of(std::string(16 << 20, 'a'));
    std::string all;
    for (int i = 0; i < 64; ++i) all += member;
    return all;
  }();
  const TextSourceOptions short_lines{.longest_nbytes = 4 << 20};
  struct Case {
    std::string name, bytes, says;
    TextSourceOptions options = {};
  };
  const Case cases[] = {
      {"bomb.txt.gz", gib, "expands to more than 256 times its size"},
      {"bomb.jsonl.gz", gib, "expands to more than 256 times its size"},
      {"bomb.dict.gz", gib, "expands to more than 256 times its size"},
      {"line.jsonl.gz", gzip_of("{\"text\": \"" + std::string(64 << 20, 'a')),
       ":1: the line has more than 4194304 bytes", short_lines},
      {"line.jsonl", "{}"s.replace(1, 0, "\"text\": \"" + std::string(64 << 20, 'a') + "\""),
       ":1: the line has more than 4194304 bytes", short_lines},
      {"second.jsonl", "{\"text\": \"one\"}\n" + std::string(5 << 20, ' ') + "{}",
       ":2: the line has more than 4194304 bytes", short_lines},
      {"numbers.jsonl", "[" + std::string(32 << 20, '1') + "]", ":1: the line has more than 4194304 bytes",
       short_lines},
      {"values.jsonl", "{\"text\": \"a\", \"n\": [" + repeated("1,", 24 << 20) + "1]}", ":1: more than 1048576 values"},
      {"keys.jsonl", "[" + repeated("{},", 16 << 20) + "{}]", ":1: more than 1048576 values"},
      {"entry.dict", "Head\n" + std::string(64 << 20, '\n'), ": the entry that ends here has more than 4194304 bytes",
       short_lines},
      {"line.dict", "Head\n   " + std::string(64 << 20, 'a'), ":2: the line has more than 4194304 bytes", short_lines},
  };
  for (const Case& c : cases) {
    const std::vector<std::string> files = {folder.write(c.name, c.bytes)};
    std::string message = "accepted";
    const auto refuse = [&] {
      try {
        for_each_document(files, [](std::string_view) {}, c.options);
      } catch (const Error& error) {
        message = error.what();
      }
    };
    // Pages of the file itself are not the process's own.
    EXPECT_LT(growth_mib(refuse), 160) << c.name;
    refuse();
    EXPECT_NE(message.find(c.name), std::string::npos) << message;
    EXPECT_NE(message.find(c.says), std::string::npos) << message;
  }
}

TEST(HostileText, OfTheLongestLineIsTaken) {
  TemporaryFolder folder;
  const std::string line = "{\"text\": \"" + std::string(100, 'a') + "\"}";
  const TextSourceOptions exact{.longest_nbytes = static_cast<int64_t>(line.size())},
      less{.longest_nbytes = static_cast<int64_t>(line.size()) - 1};
  for (const std::string& text : {line, line + "\n", line + "\n" + line}) {
    for (const bool is_packed : {false, true}) {
      const std::string path = folder.write("a.jsonl", is_packed ? gzip_of(text) : text);
      EXPECT_EQ(refusal_of(path, exact), "accepted") << text;
      EXPECT_NE(refusal_of(path, less).find(":1: the line has more than"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace tutti
