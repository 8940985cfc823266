// Damaged dumps of the flight recorder are understood or refused with file and place, never anything else.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tutti/core/error.h"
#include "tutti/diagnose/diagnosis.h"
#include "tutti/diagnose/flight_recorder.h"

namespace tutti::comm {
namespace {

std::string good_dump() {
  FlightRecorder recorder({.entries = 8, .rank = 1, .world_size = 3});
  FlightGroup& dp = recorder.add_group("dp", "data", {0, 1, 2});
  FlightGroup& tp = recorder.add_group("tp", "", {1, 2});
  CallRecord record{.kind = CollectiveKind::all_reduce, .sequence = 1};
  record.describe_tensor(DType::f32, {4, 5});
  recorder.ended(recorder.begin(dp, record, 80, 80), FlightState::completed);
  record.sequence = 2;
  recorder.begin(dp, record, 80, 80);
  recorder.enqueue(tp, {.kind = CollectiveKind::recv, .root = 0, .tag = 3, .sequence = 1}, 0, 16);
  return to_json(recorder.snapshot("fuzz"));
}

void expect_understood_or_refused(const std::string& text, unsigned seed) {
  try {
    const FlightDump dump = read_flight_dump(text, "a_1");
    to_json(diagnose({&dump, 1}));
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("a_1:", 0), 0u) << "seed " << seed << ": " << error.what();
  }
}

TEST(FlightDumpFuzz, DamagedBytesAreUnderstoodOrRefused) {
  const std::string good = good_dump();
  const std::string alphabet = "[]{}\",:-+.0123456789eEntrufals\\ \n\xc3\xff\x01";
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.erase(at, 1 + random() % 40);
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
    expect_understood_or_refused(text, seed);
  }
}

// Well-formed JSON in which one value is another.
TEST(FlightDumpFuzz, ValuesOfOtherTypesAndSizesAreUnderstoodOrRefused) {
  const std::string good = good_dump();
  const std::vector<std::string> values = {
      "null", "true",  "-1", "0",  "1e300",     "9223372036854775807", "-9223372036854775808", "18446744073709551615",
      "\"\"", "\"x\"", "[]", "{}", "[[[[0]]]]", "\"[0, 1\"",           "\"[0, -1]\""};
  std::vector<std::pair<size_t, size_t>> spots;  // of the text behind each colon, up to a comma or bracket
  for (size_t at = good.find("\": "); at != std::string::npos; at = good.find("\": ", at + 1)) {
    const size_t begin = at + 3;
    const size_t end = good[begin] == '"' ? good.find('"', begin + 1) + 1 : good.find_first_of(",}]", begin);
    if (good[begin] != '{' && good[begin] != '[') spots.push_back({begin, end - begin});
  }
  ASSERT_GT(spots.size(), 50u);
  unsigned seed = 0;
  for (const auto& [begin, length] : spots) {
    for (const std::string& value : values)
      expect_understood_or_refused(std::string(good).replace(begin, length, value), seed++);
  }
}

TEST(FlightDumpFuzz, DeepNestingAndTruncationAreRefused) {
  expect_understood_or_refused(std::string(200'000, '['), 0);
  expect_understood_or_refused(
      "{\"version\": \"2.10\", \"entries\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}", 1);
  const std::string good = good_dump();
  for (size_t length = 0; length < good.size(); length += 7)
    expect_understood_or_refused(good.substr(0, length), static_cast<unsigned>(length));
}

}  // namespace
}  // namespace tutti::comm
