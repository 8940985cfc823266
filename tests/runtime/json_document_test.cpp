#include "tutti/runtime/json_document.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

using testing::TemporaryFolder;

JsonDocument document(std::string_view text, int depth = 64) {
  return JsonDocument(text, {.name = "x.json"}, {.depth = depth, .nbytes = 1 << 20});
}
std::string complaint_about(std::string_view text) {
  return message_of([&] { document(text); });
}

TEST(JsonDocument, GivesWhatStandsInTheText) {
  const JsonDocument doc =
      document(R"({"a": [1, -2, 2.5, "t\u00e9\n", true, false, null, {}], "b": {"c": 18446744073709551615}, "": []})");
  const JsonValue a = doc.top().at("a");
  ASSERT_EQ(a.size(), 8u);
  std::vector<JsonValue> values;
  for (const auto& [key, value] : a) {
    EXPECT_EQ(key, "");
    values.push_back(value);
  }
  ASSERT_EQ(values.size(), 8u);
  EXPECT_EQ(values[0].whole(), 1);
  EXPECT_EQ(values[1].whole(), -2);
  EXPECT_EQ(values[1].number(), -2.0);
  EXPECT_EQ(values[2].number(), 2.5);
  EXPECT_EQ(values[3].text(), "t\u00e9\n");
  EXPECT_TRUE(values[4].boolean());
  EXPECT_FALSE(values[5].boolean());
  EXPECT_TRUE(values[6].is_null());
  EXPECT_EQ(values[7].size(), 0u);
  EXPECT_EQ(doc.top().at("b").at("c").number(), 18446744073709551615.0);
  EXPECT_EQ(doc.top().at("b").at("c").natural(), 18446744073709551615u);
  EXPECT_EQ(values[0].natural(), 1u);
  EXPECT_EQ(doc.top().at("").size(), 0u);
  std::string keys;
  for (const auto& [key, value] : doc.top()) keys += std::string(key) + "|";
  EXPECT_EQ(keys, "a|b||");
}

TEST(JsonDocument, ADocumentMayBeOneValue) {
  EXPECT_EQ(document(" 7 ").top().whole(), 7);
  EXPECT_EQ(document("\"x\"").top().text(), "x");
  EXPECT_EQ(document("\xef\xbb\xbf[]").top().size(), 0u) << "a byte order mark";
}

TEST(JsonDocument, FindsKeysOfObjectsOfAnySize) {
  for (int count : {0, 1, 8, 9, 1000}) {
    std::string text = "{";
    for (int i = 0; i < count; ++i) text += fmt::format("{}\"k{}\": [{}]", i ? "," : "", (i * 7919) % 1000, i);
    const JsonDocument doc = document(text + "}");
    ASSERT_EQ(doc.top().size(), static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
      ASSERT_EQ((*doc.top().at(fmt::format("k{}", (i * 7919) % 1000)).begin()).value.whole(), i);
    EXPECT_FALSE(doc.top().find("absent"));
  }
}

TEST(JsonDocument, TellsNullFromAbsent) {
  const JsonDocument doc = document(R"({"a": null})");
  EXPECT_TRUE(doc.top().find("a"));
  EXPECT_FALSE(doc.top().find_set("a"));
  EXPECT_FALSE(doc.top().find_set("b"));
}

TEST(JsonDocument, NamesLineAndColumnOfWhatIsNoJson) {
  EXPECT_EQ(complaint_about("{\n \"a\": 1,\n  oops}").find("x.json:3:3: byte 14: not JSON: "), 0u)
      << complaint_about("{\n \"a\": 1,\n  oops}");
  EXPECT_EQ(complaint_about("").find("x.json:1:1: byte 1: not JSON: "), 0u) << complaint_about("");
  EXPECT_EQ(message_of([] { JsonDocument("[1,", {.name = "x.jsonl", .line = 7}); }).find("x.jsonl:7:4: "), 0u);
  for (const char* text :
       {"[1,]", "{\"a\"}", "{a:1}", "[1] 2", "nul", "[01]", "\"\\x\"", "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"",
        "[\"a\nb\"]", "NaN", "[-]", "'a'", "// no\n1", "[1e999]", "[-1e999]", "\"\\ud800\""}) {
    EXPECT_EQ(complaint_about(text).find("x.json:"), 0u) << text;
    EXPECT_NE(complaint_about(text).find(": not JSON: "), std::string::npos) << text;
  }
  EXPECT_EQ(complaint_about(std::string("1\0", 2)).find("x.json:1:2"), 0u);
}

TEST(JsonDocument, CutsWhatItQuotes) {
  const std::string message = complaint_about("\"" + std::string(100'000, 'x') + "\xff\"");
  EXPECT_LT(message.size(), 300u);
  for (const char c : message) EXPECT_TRUE(c >= ' ' && c <= '~');
}

TEST(JsonDocument, NestingEndsAtTheLimit) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_EQ(document(nested(64)).top().size(), 1u);
  EXPECT_EQ(complaint_about(nested(65)), "x.json:1:65: byte 65: nested deeper than 64 levels");
  EXPECT_EQ(complaint_about(std::string(10'000'00, '[')), "x.json:1:65: byte 65: nested deeper than 64 levels");
  EXPECT_EQ(message_of([] { document("{\"a\":\n[{}]}", 2); }), "x.json:2:2: byte 8: nested deeper than 2 levels");
  EXPECT_EQ(document(R"(["[[[[[[[[", "\"[[[[[[[["])", 1).top().size(), 2u) << "brackets inside texts";
}

TEST(JsonDocument, ValuesEndAtTheLimit) {
  const auto read = [](std::string_view text, int64_t line = 0) {
    return JsonDocument(text, {.name = "x.json", .line = line}, {.values = 4});
  };
  EXPECT_EQ(read("[1,2,3]").top().size(), 3u);
  EXPECT_EQ(read(R"({"a": [1]})").top().size(), 1u);
  EXPECT_EQ(message_of([&] { read("[1,2,3,4]"); }),
            "x.json: more than 4 values, keys included, are not read here; divide the text");
  EXPECT_EQ(message_of([&] { read(R"({"a": [[1]]})", 7); }),
            "x.json:7: more than 4 values, keys included, are not read here; divide the text");
}

TEST(JsonDocument, RefusesLongTextsBeforeReadingThem) {
  EXPECT_EQ(complaint_about(std::string((1 << 20) + 1, ' ')),
            "x.json: 1048577 bytes are more than is read here (1048576 at most)");
}

TEST(JsonDocument, RefusesAKeyThatIsThereTwice) {
  EXPECT_EQ(complaint_about(R"({"a": 1, "b": 2, "\u0061": 3})"), "x.json: has the key 'a' twice");
  EXPECT_EQ(complaint_about(R"([{}, {"o": {"k": 1, "k": 1}}])"), "x.json: [1].o: has the key 'k' twice");
  EXPECT_EQ(complaint_about(R"({"a": {"k": 1}, "b": {"k": 1}})"), "no error");
}

TEST(JsonValue, ErrorsNameThePathOfTheValueAndWhatItIs) {
  const JsonDocument doc =
      document(R"({"model": {"merges": [0, "a", {"deep": [null]}]}, "big": 9223372036854775808, "half": 0.5})");
  const JsonValue merges = doc.top().at("model").at("merges");
  std::vector<JsonValue> items;
  for (const auto& entry : merges) items.push_back(entry.value);
  const auto complaint = [](auto fn) { return message_of(fn); };
  EXPECT_EQ(complaint([&] { items[1].whole(); }),
            "x.json: model.merges[1]: is \"a\", expected a whole number of 64 bits");
  EXPECT_EQ(complaint([&] { items[0].whole(1, 5); }),
            "x.json: model.merges[0]: is 0, expected a whole number from 1 to 5");
  EXPECT_EQ(complaint([&] { items[0].text(); }), "x.json: model.merges[0]: is 0, expected a string");
  EXPECT_EQ(complaint([&] { items[2].at("other"); }), "x.json: model.merges[2]: has no 'other'");
  EXPECT_EQ(complaint([&] { (*items[2].at("deep").begin()).value.boolean(); }),
            "x.json: model.merges[2].deep[0]: is null, expected true or false");
  EXPECT_EQ(complaint([&] { merges.at("x"); }), "x.json: model.merges: is an array of 3, expected an object");
  EXPECT_EQ(complaint([&] { merges.number(); }), "x.json: model.merges: is an array of 3, expected a number");
  EXPECT_EQ(complaint([&] { doc.top().text(); }), "x.json: is an object, expected a string");
  EXPECT_EQ(complaint([&] { items[1].size(); }), "x.json: model.merges[1]: is \"a\", expected an array or object");
  EXPECT_EQ(complaint([&] { items[1].begin(); }), "x.json: model.merges[1]: is \"a\", expected an array or object");
  EXPECT_EQ(complaint([&] { doc.top().at("big").whole(); }),
            "x.json: big: is 9223372036854775808, expected a whole number of 64 bits");
  EXPECT_EQ(complaint([&] { doc.top().at("half").natural(); }),
            "x.json: half: is 0.5, expected a whole number from 0 to 2^64 - 1");
  EXPECT_EQ(complaint([&] { doc.top().at("half").whole(); }),
            "x.json: half: is 0.5, expected a whole number of 64 bits");
  EXPECT_EQ(message_of([] { JsonDocument("{}", {.name = "x.jsonl", .line = 3}).top().at("text"); }),
            "x.jsonl:3: has no 'text'");
}

TEST(JsonDocument, ReadsRegularFilesOnly) {
  const TemporaryFolder folder;
  EXPECT_EQ(JsonDocument::read(folder.write("a.json", "[1]")).top().size(), 1u);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(
      message_of([&] { JsonDocument::read(folder / "pipe"); }).find("/pipe: cannot be read: it is not a regular file"),
      std::string::npos);
  EXPECT_NE(message_of([&] { JsonDocument::read(folder.path()); }).find("it is a folder"), std::string::npos);
  EXPECT_NE(message_of([&] {
              JsonDocument::read(folder / "a.json", {.nbytes = 2});
            }).find("3 bytes are more than is read here (2 at most)"),
            std::string::npos);
  EXPECT_THROW(JsonDocument::read(folder / "absent"), EnvironmentError);
}

}  // namespace
}  // namespace tutti
