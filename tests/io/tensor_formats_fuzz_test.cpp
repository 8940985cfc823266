// Damaged tensor files either read or raise one of Tutti's errors, whatever the damage.
#include <gtest/gtest.h>

#include "tests/io/support/sample_text.h"
#include "tests/support/fuzz_rounds.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/gguf.h"
#include "tutti/io/npy.h"
#include "tutti/io/safetensors.h"

namespace tutti {
namespace {

using testing::FuzzRounds;
using testing::mutated;
using testing::read_whole_file;

constexpr uint32_t kSeed = 20240612;

template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

// Touches every byte, so that a view beyond its memory is seen by a sanitizer or the system.
int64_t sum_of(const Tensor& tensor) {
  int64_t sum = 0;
  const auto* bytes = static_cast<const unsigned char*>(tensor.raw_data());
  for (int64_t i = 0; i < tensor.nbytes(); ++i) sum += bytes[i];
  return sum;
}

std::string replaced_number(std::string bytes, std::mt19937& random) {
  static const char* const kNumbers[] = {"0",
                                         "-1",
                                         "1",
                                         "7",
                                         "9223372036854775807",
                                         "18446744073709551615",
                                         "4611686018427387904",
                                         "1e5",
                                         "99999999999999999999999"};
  const size_t at = bytes.find_first_of("0123456789", 8 + random() % (bytes.size() - 8));
  if (at == std::string::npos) return bytes;
  const size_t end = bytes.find_first_not_of("0123456789", at);
  return bytes.replace(at, end - at, kNumbers[random() % std::size(kNumbers)]);
}

TEST(TensorFormatsFuzz, SafetensorsReadsOrRaises) {
  testing::TemporaryFolder folder;
  const std::vector<std::pair<std::string, Tensor>> tensors = {{"weight", Tensor::of<float>({1, 2, 3, 4}, {2, 2})},
                                                               {"ids", Tensor::of<int64_t>({5, 6, 7})},
                                                               {"flag", Tensor::of<uint8_t>({1})},
                                                               {"none", Tensor::empty({0, 3})}};
  write_safetensors(folder / "file", tensors, {{"key", "value"}});
  const std::string whole = read_whole_file(folder / "file");
  std::mt19937 random(kSeed);
  int64_t accepted = 0;
  FuzzRounds rounds(4000);
  while (rounds.go_on()) {
    const int64_t i = rounds.index();
    std::string damaged = i % 2 == 0 ? mutated(whole, random) : replaced_number(whole, random);
    if (i % 4 == 1 && damaged.size() > 8) {
      // Keep the length right, so that the damage behind it is reached.
      const uint64_t length =
          damaged.size() - (whole.size() - (8 + *reinterpret_cast<const uint64_t*>(whole.data()))) - 8;
      damaged.replace(0, 8, std::string(reinterpret_cast<const char*>(&length), 8));
    }
    accepted += accepts([&] {
      io::parse_safetensors_header(std::as_bytes(std::span(damaged)), "damaged");
      const SafetensorsFile file(folder.write("damaged", damaged));
      int64_t sum = 0;
      for (const io::SafetensorsEntry& entry : file.entries()) sum += sum_of(file.tensor(entry.name));
      EXPECT_GE(sum, 0);
    });
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, rounds.made() / 2);
}

TEST(TensorFormatsFuzz, NpyReadsOrRaises) {
  testing::TemporaryFolder folder;
  write_npy(folder / "file", Tensor::of<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3}));
  const std::string whole = read_whole_file(folder / "file");
  std::mt19937 random(kSeed);
  int64_t accepted = 0;
  FuzzRounds rounds(6000);
  while (rounds.go_on()) {
    const int64_t i = rounds.index();
    const std::string damaged = i % 2 == 0 ? mutated(whole, random) : replaced_number(whole, random);
    accepted += accepts([&] { EXPECT_GE(sum_of(parse_npy(std::as_bytes(std::span(damaged)), "damaged.npy")), 0); });
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, rounds.made() * 2 / 3);
}

// A copy of `bytes` in which one to three numbers of 8 or 4 bytes are others, such as counts and types at their limits.
std::string with_other_numbers(std::string bytes, std::mt19937& random) {
  static constexpr uint64_t kNumbers[] = {0,        1,   2,          8,          9,          32,    255,       1U << 24,
                                          1U << 31, ~0U, 1ULL << 32, 1ULL << 62, 1ULL << 63, ~0ULL, ~0ULL - 31};
  for (size_t edits = 1 + random() % 3; edits > 0; --edits) {
    const size_t nbytes = random() % 2 == 0 ? 4 : 8, at = random() % (bytes.size() - nbytes);
    const uint64_t number = kNumbers[random() % std::size(kNumbers)];
    std::memcpy(bytes.data() + at, &number, nbytes);
  }
  return bytes;
}

// Reads everything in the file.
int64_t sum_of(const GgufFile& file) {
  int64_t sum = 0;
  for (const auto& [key, value] : file.metadata().entries()) {
    sum += std::ssize(file.metadata().at(key).shown());
    for (size_t i = 0; i < value.size(); ++i) sum += value.whole(i).has_value() + value.number(i).has_value();
  }
  for (const io::GgufEntry& entry : file.entries()) {
    for (const std::byte b : file.bytes(entry.name)) sum += std::to_integer<int64_t>(b);
    accepts([&] { sum += sum_of(file.tensor(entry.name)); });
  }
  return sum;
}

TEST(TensorFormatsFuzz, GgufReadsOrRaises) {
  testing::TemporaryFolder folder;
  const std::string whole = read_whole_file(TUTTI_SOURCE_DIR "/tests/golden/gguf/every_type.gguf");
  const std::string header = whole.substr(0, 2048);
  std::mt19937 random(kSeed);
  int64_t accepted = 0;
  FuzzRounds rounds(20000);
  while (rounds.go_on()) {
    const int64_t i = rounds.index();
    // Most damage is done to the header, whose data may then be missing.
    std::string damaged = i % 4 == 0   ? mutated(whole, random)
                          : i % 4 == 1 ? mutated(header, random) + whole.substr(header.size())
                                       : with_other_numbers(header, random) + whole.substr(header.size());
    if (i % 8 == 7) damaged.resize(random() % damaged.size());
    accepted += accepts([&] {
      io::parse_gguf_header(std::as_bytes(std::span(damaged)), "damaged");
      EXPECT_GE(sum_of(GgufFile(folder.write("damaged", damaged))), 0);
    });
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, rounds.made() * 3 / 4);
}

TEST(TensorFormatsFuzz, ShapesWithAZeroAndHugeSizesReadOrRaise) {
  testing::TemporaryFolder folder;
  for (const char* shape : {"[0,4611686018427387904,4]", "[9223372036854775807,0]", "[0,0]"}) {
    const std::string json = fmt::format(R"({{"x":{{"dtype":"F32","shape":{},"data_offsets":[0,0]}}}})", shape);
    const uint64_t length = json.size();
    const std::string path = folder.write("file", std::string(reinterpret_cast<const char*>(&length), 8) + json);
    accepts([&] { EXPECT_EQ(SafetensorsFile(path).tensor("x").numel(), 0); });
  }
}

}  // namespace
}  // namespace tutti
