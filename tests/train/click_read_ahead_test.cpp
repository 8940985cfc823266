// Click data that are read ahead: the rows and positions of a source that is read step by step.
#include "tutti/train/task/click_read_ahead.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <tuple>

#include "tests/support/same_bits.h"
#include "tests/train/support/temp_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/generated_clicks.h"
#include "tutti/train/config/model_kind.h"

namespace tutti::train {
namespace {

constexpr int64_t kShards = 4, kRows = 6;

struct Files {
  Files() {
    config.model.name = kDlrm;
    config.clicks.source = "files";
    config.clicks.table_rows = {4, 60, 200};
    const GeneratedClicks clicks(click_columns(config));
    for (const auto& [name, first, count] : {std::tuple{"a.csv", 0, 50}, {"b.csv", 50, 33}}) {
      clicks.write_csv((folder / name).string(), first, count);
      config.data.paths.push_back((folder / name).string());
    }
  }
  TempFolder folder;
  Config config;
};

// The rows of these shards of the next step, read one after another.
std::vector<ClickRows> step_of(ClickSource& source, std::span<const int64_t> shards) {
  std::vector<ClickRows> rows;
  int64_t at = 0;
  for (const int64_t s : shards) {
    source.skip((s - at) * kRows);
    rows.push_back(source.read(kRows));
    at = s + 1;
  }
  source.skip((kShards - at) * kRows);
  return rows;
}

void expect_same_rows(const std::vector<ClickRows>& a, const std::vector<ClickRows>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    expect_same_bits(a[i].dense, b[i].dense);
    expect_same_bits(a[i].categories, b[i].categories);
    expect_same_bits(a[i].labels, b[i].labels);
  }
}

TEST(ClickReadAhead, HasTheRowsAndPositionsOfTheSource) {
  Files files;
  Config generated = files.config;
  generated.clicks.source = "generated";
  for (const Config& config : {files.config, generated}) {
    ClickReadAhead ahead(open_training_clicks(config), kShards, kRows);
    const auto source = open_training_clicks(config);
    // The shards that a rank has may change, as when ranks go on without one.
    for (const std::vector<int64_t>& shards :
         {std::vector<int64_t>{0, 1}, {0, 1}, {2}, {0, 1, 2, 3}, {}, {1, 3}, {1, 3}, {1, 3}}) {
      EXPECT_EQ(ahead.position(), source->position());
      expect_same_rows(ahead.next(shards), step_of(*source, shards));
    }
    EXPECT_EQ(ahead.position(), source->position());
  }
}

TEST(ClickReadAhead, GoesOnFromAPosition) {
  Files files;
  const std::array<int64_t, 2> shards = {1, 2};
  ClickReadAhead first(open_training_clicks(files.config), kShards, kRows);
  for (int i = 0; i < 3; ++i) first.next(shards);
  const std::vector<int64_t> position = first.position();
  const std::vector<ClickRows> expected = first.next(shards);
  ClickReadAhead second(open_training_clicks(files.config), kShards, kRows);
  second.next(shards);
  for (int i = 0; i < 2; ++i) {
    second.seek(3 * kShards * kRows, position);
    EXPECT_EQ(second.position(), position);
    expect_same_rows(second.next(shards), expected);
  }
}

TEST(ClickReadAhead, ErrorsComeWithTheStepThatTheyAreOf) {
  Files files;
  const GeneratedClicks clicks(click_columns(files.config));
  const std::string path = (files.folder / "bad.csv").string();
  clicks.write_csv(path, 0, kShards * kRows);
  std::ofstream(path, std::ios::app) << "x\n";
  files.config.data.paths = {path};
  const std::array<int64_t, 1> shards = {0};
  ClickReadAhead ahead(open_training_clicks(files.config), kShards, kRows);
  ahead.next(shards);
  std::string text;
  try {
    ahead.next(shards);
  } catch (const EnvironmentError& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("bad.csv, line 26"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::train
