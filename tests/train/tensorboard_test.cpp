#include "tutti/train/report/tensorboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "tests/train/support/temp_folder.h"
#include "tutti/core/error.h"

namespace tutti::train {
namespace {

// A reader written from the format, independent of the writer.
template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  if (at + sizeof value > bytes.size()) throw std::runtime_error("short record");
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::vector<std::string> payloads(std::string_view file) {
  std::vector<std::string> result;
  while (!file.empty()) {
    const auto length = number_at<uint64_t>(file, 0);
    if (number_at<uint32_t>(file, 8) != masked_crc32c(file.substr(0, 8))) throw std::runtime_error("length checksum");
    const std::string_view payload = file.substr(12, length);
    if (number_at<uint32_t>(file, 12 + length) != masked_crc32c(payload)) throw std::runtime_error("payload checksum");
    result.emplace_back(payload);
    file.remove_prefix(16 + length);
  }
  return result;
}

struct Message {
  std::map<uint32_t, uint64_t> numbers;                  // varint and fixed fields, as their bits
  std::vector<std::pair<uint32_t, std::string>> pieces;  // length-delimited fields
};

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = number_at<uint8_t>(bytes, 0);
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

Message decode(std::string_view bytes) {
  Message message;
  while (!bytes.empty()) {
    const uint64_t tag = take_varint(bytes);
    const auto field = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0:
        message.numbers[field] = take_varint(bytes);
        break;
      case 1:
        message.numbers[field] = number_at<uint64_t>(bytes, 0);
        bytes.remove_prefix(8);
        break;
      case 5:
        message.numbers[field] = number_at<uint32_t>(bytes, 0);
        bytes.remove_prefix(4);
        break;
      case 2: {
        const uint64_t length = take_varint(bytes);
        message.pieces.emplace_back(field, bytes.substr(0, length));
        bytes.remove_prefix(length);
        break;
      }
      default:
        throw std::runtime_error("unknown wire type");
    }
  }
  return message;
}

std::map<std::string, float> scalars_in(const std::string& payload) {
  std::map<std::string, float> scalars;
  for (const auto& [field, summary] : decode(payload).pieces) {
    if (field != 5) continue;
    for (const auto& [value_field, value_bytes] : decode(summary).pieces) {
      const Message value = decode(value_bytes);
      float number;
      const auto bits = static_cast<uint32_t>(value.numbers.at(2));
      std::memcpy(&number, &bits, sizeof number);
      scalars[value.pieces.at(0).second] = number;
    }
  }
  return scalars;
}

// Source: RFC 3720, appendix B.4.
TEST(Crc32c, EqualsThePublishedExamples) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST(Tensorboard, BeginsWithTheFileVersion) {
  const TempFolder folder;
  const TensorboardWriter writer(folder.path(), 0);
  const auto events = payloads(contents_of(writer.path()));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(decode(events[0]).pieces.at(0), (std::pair<uint32_t, std::string>(3, "brain.Event:2")));
}

TEST(Tensorboard, HoldsTheScalarsOfEveryStep) {
  const TempFolder folder;
  TensorboardWriter writer(folder / "events", 0);
  for (const int64_t step : {1, 300}) {
    writer.write(step, {{"loss", 0.5f * static_cast<float>(step)}, {"lr", -1e-30f}});
  }
  const auto events = payloads(contents_of(writer.path()));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(decode(events[3]).numbers.at(2), 300u);
  EXPECT_EQ(scalars_in(events[3]), (std::map<std::string, float>{{"loss", 150.0f}, {"lr", -1e-30f}}));
}

// What TensorBoard shows of a scalar: it reads the files in the order of their names, and drops what it has of the
// steps from a START on. Source: tensorboard/backend/event_processing/event_accumulator.py,
// _CheckForRestartAndMaybePurge.
std::vector<std::pair<uint64_t, float>> shown(const std::filesystem::path& folder, const std::string& name) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::pair<uint64_t, float>> points;
  for (const auto& file : files) {
    for (const std::string& event : payloads(contents_of(file))) {
      const Message message = decode(event);
      for (const auto& [field, bytes] : message.pieces) {
        if (field == 7 && decode(bytes).numbers.at(1) == 1)
          std::erase_if(points, [&](const auto& point) { return point.first >= message.numbers.at(2); });
      }
      const auto scalars = scalars_in(event);
      if (scalars.contains(name)) points.emplace_back(message.numbers.at(2), scalars.at(name));
    }
  }
  return points;
}

// Starts that were killed after any step, and gone on with from any checkpoint before it, the beginning included; many
// in one second.
TEST(Tensorboard, ShowsEveryStepOnceHoweverOftenTheRunWasResumed) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const TempFolder folder;
    uint64_t state = seed;
    const auto next = [&](int64_t n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<int64_t>(state >> 33) % n;
    };
    std::vector<std::pair<uint64_t, float>> expected;
    int64_t reached = 0;
    for (int start = 0; start < 6; ++start) {
      const int64_t from = next(reached + 1), to = from + next(5);
      TensorboardWriter writer(folder / "events", from);
      for (int64_t step = from + 1; step <= to; ++step)
        writer.write(step, {{"loss", static_cast<float>(100 * start + step)}});
      std::erase_if(expected, [&](const auto& point) { return point.first > static_cast<uint64_t>(from); });
      for (int64_t step = from + 1; step <= to; ++step)
        expected.emplace_back(step, static_cast<float>(100 * start + step));
      reached = to;
    }
    EXPECT_EQ(shown(folder / "events", "loss"), expected) << seed;
  }
}

TEST(Tensorboard, NamesItsFileBehindThoseThatAreThere) {
  const TempFolder folder;
  std::ofstream(folder / "events.out.tfevents.5000000000.elsewhere.1");
  std::ofstream(folder / "events.out.tfevents.notes");
  std::ofstream(folder / "other");
  EXPECT_EQ(TensorboardWriter(folder.path(), 0).path().filename().string().find("events.out.tfevents.5000000001."), 0u);
}

TEST(Tensorboard, PlotsTheValidationOnlyWhereThereIsOne) {
  StepRecord record{.step = 5, .loss = 1.5f};
  EXPECT_EQ(scalars_in(encode_scalars(0, 5, scalars_of(record))).count("validation/bits_per_byte"), 0u);
  record.val_bits_per_byte = 2.0;
  EXPECT_EQ(scalars_in(encode_scalars(0, 5, scalars_of(record))).at("validation/bits_per_byte"), 2.0f);
}

TEST(Tensorboard, NamesTheFileItCannotMake) {
  try {
    TensorboardWriter writer("/proc/no/events", 0);
    FAIL() << "it was made";
  } catch (const EnvironmentError& error) {
    EXPECT_EQ(std::string(error.what()).find("cannot create /proc/no/events/events.out.tfevents."), 0u) << error.what();
  }
}

}  // namespace
}  // namespace tutti::train
