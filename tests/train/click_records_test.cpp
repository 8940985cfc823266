// What a run of a click model writes: records, the line of a step, scalars, state.json, and the report.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "tutti/core/error.h"
#include "tutti/train/checkpoint/checkpoint_state.h"
#include "tutti/train/report/report.h"
#include "tutti/train/report/status_line.h"
#include "tutti/train/report/tensorboard.h"

namespace tutti::train {
namespace {

StepRecord record() {
  return {.step = 4,
          .model = ModelKind::clicks,
          .loss = 0.5f,
          .grad_norm = 0.25,
          .lr = 2e-3,
          .items_seen = 4096,
          .items_per_s = 32500,
          .step_ms = 31,
          .val_loss = 0.46,
          .val_auc = 0.8125,
          .val_calibration = 1.01};
}

TEST(ClickRecords, HaveTheKeysOfSamples) {
  EXPECT_EQ(
      to_json(record()),
      R"({"numerics_version":7,"step":4,"loss":0.5,"loss_hex":"0x1p-1","grad_norm":0.25,"grad_norm_hex":"0x1p-2",)"
      R"("lr":0.002,"samples_seen":4096,"samples_per_s":32500,"tflops":0,"mfu":null,"step_ms":31,"data_ms":0,)"
      R"("comm_ms":0,"memory_peak_bytes":0,"product_flops":0,"sent_bytes":0,)"
      R"("val_auc":0.8125,"val_calibration":1.01,"val_loss":0.46})");
}

TEST(ClickRecords, KeepEveryBitThroughAFile) {
  StepRecord odd = record();
  odd.val_auc = std::nextafter(0.75, 1.0);
  odd.val_calibration = std::nullopt;
  const StepRecord again = parse_record(to_json(odd), "here");
  EXPECT_EQ(again.model, ModelKind::clicks);
  EXPECT_EQ(again.items_seen, 4096);
  EXPECT_EQ(again.val_auc, odd.val_auc);
  EXPECT_EQ(to_json(again), to_json(odd));
  // The AUC of rows without a click.
  odd.val_auc = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(to_json(odd).find(R"("val_auc":null)"), std::string::npos);
  EXPECT_TRUE(std::isnan(*parse_record(to_json(odd), "here").val_auc));
}

TEST(ClickRecords, TheLineOfAStepTellsSamplesAndScores) {
  EXPECT_EQ(status_text(record(), 100, std::chrono::seconds(62)),
            "step 4/100  loss 0.5000  grad_norm 0.25  lr 2.00e-03  32.5k samples/s  31 ms  val AUC 0.8125, calibration "
            "1.010, loss 0.4600  ETA 1m 02s");
}

TEST(ClickRecords, ScalarsAreThoseOfTheRecord) {
  std::string names;
  for (const auto& [name, value] : scalars_of(record())) names += name + " ";
  EXPECT_NE(names.find("throughput/samples_per_s "), std::string::npos) << names;
  EXPECT_NE(names.find("validation/auc validation/calibration validation/loss "), std::string::npos) << names;
  EXPECT_EQ(names.find("tokens"), std::string::npos) << names;
}

TEST(ClickRecords, TheReportShowsHowFarTheModelIsFromTheBestPossible) {
  Config config;
  config.model.name = kDlrm;
  const std::string page =
      render_report({.title = "clicks", .config = config, .records = {record()}, .baseline = 0.83});
  for (const char* words :
       {"<strong>0.8125</strong><small>AUC; 0.0175 below the best possible one", "best possible on these rows 0.83",
        "<strong>1.010</strong><small>predicted clicks divided by clicks, held-out rows", "<span>Samples</span>"})
    EXPECT_NE(page.find(words), std::string::npos) << words;
  EXPECT_EQ(page.find("order-2"), std::string::npos);
}

TEST(ClickRecords, AStateHasFilesAndThePositionInThem) {
  const auto kept = std::make_unique<SavedState>();
  SavedState& saved = *kept;
  saved.train = {.step = 3, .items_seen = 768, .next_row = 768, .optimizer_steps = 3, .seed = 9};
  saved.train.position = {1, 0, 200, 201, 4711, int64_t{1} << 52};
  saved.train.inputs.settings = {{"model.name", "\"dlrm\""}};
  saved.train.inputs.clicks.emplace().files = {{"a.csv", 12}, {"b", 34}};
  saved.digests = {{"x", "0123456789abcdef"}};
  const std::string text = state_json_of(saved);
  EXPECT_EQ(text.find("tokenizer"), std::string::npos) << text;
  EXPECT_NE(text.find("\"samples_seen\": 768"), std::string::npos) << text;
  const SavedState again = parse_state_json(text, "here");
  EXPECT_EQ(again.train.position, saved.train.position);
  EXPECT_EQ(again.train.items_seen, 768);
  ASSERT_TRUE(again.train.inputs.clicks.has_value());
  ASSERT_EQ(again.train.inputs.clicks->files.size(), 2u);
  EXPECT_EQ(again.train.inputs.clicks->files[1].path, "b");
  EXPECT_EQ(again.train.inputs.clicks->files[1].number, 34);
  EXPECT_EQ(state_json_of(again), text);
  // Not a byte changes unnoticed.
  std::string changed = text;
  changed.replace(changed.find("4711"), 4, "4712");
  try {
    parse_state_json(changed, "here");
    FAIL() << "the state was read";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("here is damaged"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tutti::train
