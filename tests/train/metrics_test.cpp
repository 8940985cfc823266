#include "tutti/train/report/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/file_size_limit.h"
#include "tests/train/support/temp_folder.h"
#include "tutti/core/error.h"

namespace tutti::train {
namespace {

StepRecord record_at(int64_t step) {
  return {.step = step,
          .loss = 5.25f / static_cast<float>(step),
          .grad_norm = 0.1 * static_cast<double>(step),
          .lr = 3e-4,
          .items_seen = 8192 * step,
          .items_per_s = 12345.5,
          .tflops = 0.25,
          .mfu = std::nullopt,
          .step_ms = 650,
          .data_ms = 1.5,
          .comm_ms = 20,
          .memory_peak_bytes = 123456789,
          .product_flops = 25000000000,
          .sent_bytes = 4096,
          .val_bits_per_byte = std::nullopt};
}

void write_steps(const std::filesystem::path& path, int64_t resumed, int64_t first, int64_t last) {
  MetricsWriter writer(path, resumed);
  for (int64_t step = first; step <= last; ++step) writer.write(record_at(step));
}

TEST(Metrics, WriteTheDocumentedKeysInOrder) {
  StepRecord record = record_at(2);
  EXPECT_EQ(
      to_json(record),
      R"({"numerics_version":7,"step":2,"loss":2.625,"loss_hex":"0x1.5p+1","grad_norm":0.2,"grad_norm_hex":"0x1.999999999999ap-3",)"
      R"("lr":0.0003,"tokens_seen":16384,"tokens_per_s":12345.5,"tflops":0.25,"mfu":null,"step_ms":650,)"
      R"("data_ms":1.5,"comm_ms":20,"memory_peak_bytes":123456789,"product_flops":25000000000,"sent_bytes":4096})");
  record.mfu = 12.5;
  record.val_bits_per_byte = 2.5;
  EXPECT_NE(to_json(record).find(R"("mfu":12.5,)"), std::string::npos);
  EXPECT_NE(to_json(record).find(R"(,"val_bits_per_byte":2.5})"), std::string::npos);
}

TEST(Metrics, KeepEveryBitThroughAFile) {
  StepRecord record = record_at(3);
  record.loss = std::nextafter(1.0f, 2.0f);
  record.grad_norm = std::nextafter(1e-30, 1.0);
  const StepRecord again = parse_record(to_json(record), "here");
  EXPECT_EQ(again.loss, record.loss);
  EXPECT_EQ(again.grad_norm, record.grad_norm);
  EXPECT_EQ(to_json(again), to_json(record));
}

TEST(Metrics, TellOfRanksThatWereLost) {
  StepRecord record = record_at(3);
  record.lost_ranks = {{.rank = 2, .pid = 4711, .host = "host \"7\"", .step = 3, .seconds_lost = 0.25},
                       {.rank = 0, .pid = 4709, .host = "host7", .step = 2, .seconds_lost = 1.5}};
  EXPECT_NE(to_json(record).find(
                R"(,"lost_ranks":[{"rank":2,"pid":4711,"host":"host \"7\"","step":3,"seconds_lost":0.25},{"rank":0,)"),
            std::string::npos)
      << to_json(record);
  EXPECT_EQ(parse_record(to_json(record), "here").lost_ranks, record.lost_ranks);
}

TEST(Metrics, LinesWithoutANumericsVersionAreOfTheFirst) {
  std::string line = to_json(record_at(3));
  line.erase(1, line.find("\"step\"") - 1);
  EXPECT_EQ(parse_record(line, "here").numerics_version, 1);
  EXPECT_EQ(parse_record(to_json(record_at(3)), "here").numerics_version, kNumericsVersion);
}

TEST(Metrics, LinesWithoutAPeakOfMemoryHaveNone) {
  std::string line = to_json(record_at(3));
  const size_t begin = line.find(",\"memory_peak_bytes\"");
  line.erase(begin, line.find_first_of(",}", begin + 1) - begin);
  EXPECT_EQ(parse_record(line, "here").memory_peak_bytes, 0);
  EXPECT_EQ(parse_record(line, "here").step, 3);
}

TEST(Metrics, WriteNanAsNullAndNameItInHex) {
  StepRecord record = record_at(1);
  record.loss = std::numeric_limits<float>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  const std::string line = to_json(record);
  EXPECT_NE(line.find(R"("loss":null,"loss_hex":"nan","grad_norm":null,"grad_norm_hex":"inf")"), std::string::npos)
      << line;
  EXPECT_TRUE(std::isnan(parse_record(line, "here").loss));
}

TEST(Metrics, AppendAfterAResumeWithoutTheStepsBehindTheCheckpoint) {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  write_steps(path, 0, 1, 7);
  write_steps(path, 4, 5, 6);
  const auto records = read_metrics(path);
  ASSERT_EQ(records.size(), 6u);
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(to_json(records[i]), to_json(record_at(i + 1)));
}

TEST(Metrics, AFreshRunStartsAnEmptyFile) {
  const TempFolder folder;
  write_steps(folder / "metrics.jsonl", 0, 1, 3);
  write_steps(folder / "metrics.jsonl", 0, 1, 1);
  EXPECT_EQ(read_metrics(folder / "metrics.jsonl").size(), 1u);
}

TEST(Metrics, DropATornLastLine) {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  write_steps(path, 0, 1, 3);
  std::ofstream(path, std::ios::app) << R"({"step":4,"lo)";
  EXPECT_EQ(read_metrics(path).size(), 3u);
  write_steps(path, 10, 4, 4);
  EXPECT_EQ(read_metrics(path).size(), 4u);
}

TEST(Metrics, NameTheLineThatIsNoRecord) {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  std::ofstream(path) << to_json(record_at(1)) << "\n{\"step\": 2}\n";
  try {
    read_metrics(path);
    FAIL() << "it was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl:2: has no '"), std::string::npos) << error.what();
  }
}

TEST(Metrics, NameTheFileThatCannotBeMade) {
  try {
    MetricsWriter writer("/no/such/folder/metrics.jsonl", 0);
    FAIL() << "it was made";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/folder/metrics.jsonl"), std::string::npos) << error.what();
  }
}

// A file size limit is how a test can fill a disk.
TEST(Metrics, SayThatTheDiskIsFull) {
  const TempFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl", 0);
  const testing::FileSizeLimit limit(0);
  std::string text;
  try {
    writer.write(record_at(12));
  } catch (const EnvironmentError& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("cannot write step 12 to "), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::train
