// Everything that reads JSON from outside against text that nobody should have written: it is understood, or refused by
// a UsageError that names the file and the place. Nothing else is thrown, nothing recurses, nothing waits.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/fuzz/support/every_json.h"
#include "tutti/core/error.h"

namespace tutti::testing {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kDeep = 100'000;

std::string nested(const std::string& open, const std::string& inner, const std::string& close) {
  std::string text;
  for (size_t i = 0; i < kDeep; ++i) text += open;
  text += inner;
  for (size_t i = 0; i < kDeep; ++i) text += close;
  return text;
}

// The places in `text` of at most `most` values, as [begin, end).
std::vector<std::pair<size_t, size_t>> values_in(const std::string& text, size_t most) {
  std::vector<std::pair<size_t, size_t>> all;
  std::vector<size_t> open;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[' || c == '{') {
      open.push_back(i);
    } else if (c == ']' || c == '}') {
      all.push_back({open.back(), i + 1});
      open.pop_back();
    } else if (c == '"') {
      const size_t begin = i;
      for (++i; text[i] != '"'; ++i) i += text[i] == '\\';
      const size_t next = text.find_first_not_of(" \n", i + 1);
      if (next == std::string::npos || text[next] != ':') all.push_back({begin, i + 1});
    } else if (std::string_view(",: \n").find(c) == std::string_view::npos) {
      const size_t begin = i;
      i = text.find_first_of(",]} \n", begin) - 1;
      all.push_back({begin, i + 1});
    }
  }
  // Evenly, the first and the last among them: large files repeat themselves.
  if (all.size() <= most) return all;
  std::vector<std::pair<size_t, size_t>> some;
  for (size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return some;
}

std::string with(const std::string& text, const std::pair<size_t, size_t>& place, const std::string& value) {
  return text.substr(0, place.first) + value + text.substr(place.second);
}

class EveryJsonReader : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override { alarm(240); }  // one that waits, waits for ever
  void TearDown() override { alarm(0); }

  const JsonReader& reader() const { return every_json_reader()[GetParam()]; }
  size_t values() const { return reader().read_file ? 60 : 5; }  // a store costs a hundred times as much

  // What a UsageError says; "" when the text is understood. `other` takes what any other error of Tutti says.
  std::string complaint_about(const std::string& text, std::string* other = nullptr) {
    try {
      reader().read(folder, text);
    } catch (const UsageError& error) {
      return error.what();
    } catch (const EnvironmentError& error) {
      if (other == nullptr) throw;
      *other = error.what();
    }
    return "";
  }
  void expect_refused(const std::string& text, const std::string& what, const std::string& part = "") {
    const std::string complaint = complaint_about(text);
    EXPECT_NE(complaint.find(reader().file), std::string::npos) << what << ": " << complaint.substr(0, 500);
    EXPECT_NE(complaint.find(part), std::string::npos) << what << ": " << complaint.substr(0, 500);
    EXPECT_LT(complaint.size(), 2000u) << what;
  }
  // What is understood may still not fit: a tensor its data, a node its job. The error names what it is about.
  void expect_understood_or_refused(const std::string& text, const std::string& what) {
    std::string misfit;
    const std::string complaint = complaint_about(text, &misfit) + misfit;
    EXPECT_TRUE(complaint.empty() || complaint.find(reader().file) != std::string::npos ||
                (!reader().subject.empty() && complaint.find(reader().subject) != std::string::npos))
        << what << ": " << complaint.substr(0, 500);
  }

  TemporaryFolder folder;
};

TEST_P(EveryJsonReader, UnderstandsWhatIsWritten) { EXPECT_EQ(complaint_about(reader().good), ""); }

TEST_P(EveryJsonReader, RefusesDeepNesting) {
  for (const auto& text : {std::string(kDeep, '['), nested("[", "", "]"), nested("{\"a\":", "1", "}"),
                           nested("[{\"a\":", "", ""), nested("[", "1", "")})
    expect_refused(text, text.substr(0, 12), "nested deeper than");
}

TEST_P(EveryJsonReader, RefusesDeepNestingInEveryValue) {
  for (const auto& place : values_in(reader().good, values())) {
    expect_refused(with(reader().good, place, nested("[", "", "]")), reader().good.substr(place.first, 20),
                   "nested deeper than");
    expect_refused(with(reader().good, place, nested("{\"a\":", "0", "}")), reader().good.substr(place.first, 20),
                   "nested deeper than");
  }
  // Also in a value that nobody asks for.
  expect_refused("{\"unknown\": " + nested("[", "", "]") + ", " + reader().good.substr(1), "unknown key",
                 "nested deeper than");
}

TEST_P(EveryJsonReader, RefusesNumbersThatNoDoubleHolds) {
  for (const auto& place : values_in(reader().good, values())) {
    for (const char* number : {"1e999", "-1e999"})
      expect_refused(with(reader().good, place, number), number, "not JSON: number overflow");
  }
}

TEST_P(EveryJsonReader, RefusesTextCutShort) {
  const size_t step = std::max<size_t>(1, reader().good.size() / (values() * 2));
  const size_t last = reader().good.find_last_not_of(" \n");  // without what follows it is whole
  for (size_t size = 0; size <= last; size += step) {
    if (size == 0 && reader().name == "Documents") continue;  // a blank line is no document
    expect_refused(reader().good.substr(0, size), fmt::format("cut to {}", size), ": byte ");
  }
}

TEST_P(EveryJsonReader, RefusesWhatIsNotUtf8) {
  for (const auto& place : values_in(reader().good, values())) {
    for (const char* bytes : {"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xf8\x88\x80\x80\x80\""})
      expect_refused(with(reader().good, place, bytes), reader().good.substr(place.first, 20), "not JSON: ");
  }
}

TEST_P(EveryJsonReader, RefusesKeysThatAreThereTwice) {
  const Json good = Json::parse(reader().good);
  for (const auto& [key, value] : good.items())
    expect_refused(fmt::format("{{{}: {}, {}", Json(key).dump(), value.dump(), reader().good.substr(1)), key,
                   fmt::format("has the key '{}' twice", key));
}

TEST_P(EveryJsonReader, UnderstandsOrRefusesEveryOtherValue) {
  const std::vector<std::string> others = {"null",
                                           "true",
                                           "-1",
                                           "0",
                                           "1.5",
                                           "1e300",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "18446744073709551615",
                                           "99999999999999999999999999",
                                           "\"\"",
                                           "\"x\"",
                                           "[]",
                                           "{}",
                                           "[[[[0]]]]",
                                           "\"[0, 1\"",
                                           "\"\\u0000\""};
  for (const auto& place : values_in(reader().good, values())) {
    for (const std::string& other : others)
      expect_understood_or_refused(with(reader().good, place, other),
                                   reader().good.substr(place.first, 20) + " -> " + other);
  }
  // What the whole is must be an object everywhere.
  for (const std::string& other : others) {
    if (other != "{}") expect_refused(other, other);
  }
}

TEST_P(EveryJsonReader, UnderstandsOrRefusesDamagedText) {
  const std::string alphabet = "[]{}\",:-+.0123456789eEntrufals\\ \xc3\xff\x01";
  const unsigned seeds = reader().read_file ? 600 : 20;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    std::string text = reader().good;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.erase(at, 1 + random() % 20);
          break;
        case 1:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 2:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
      }
    }
    expect_understood_or_refused(text, fmt::format("seed {}", seed));
  }
}

TEST_P(EveryJsonReader, RefusesWhatIsNoFile) {
  if (!reader().read_file) return;  // a store has texts only
  const auto complaint = [&] {
    try {
      reader().read_file(folder);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("understood");
  };
  const std::string path = folder / reader().file;
  std::filesystem::create_directories(path);
  EXPECT_NE(complaint().find(reader().name == "Documents" ? "data.jsonl" : reader().file), std::string::npos)
      << complaint();
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(complaint().find(reader().file), std::string::npos) << complaint();
}

INSTANTIATE_TEST_SUITE_P(Of, EveryJsonReader, ::testing::Range<size_t>(0, every_json_reader().size()),
                         [](const auto& info) { return every_json_reader()[info.param].name; });

}  // namespace
}  // namespace tutti::testing
