// Validation of click models: by definition in f64, on any ranks, and against the best that is possible.
#include "tutti/train/task/click_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/train/support/temp_folder.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/io/generated_clicks.h"
#include "tutti/models/dlrm.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/config/model_kind.h"
#include "tutti/train/task/click_plan.h"
#include "tutti/train/task/click_source.h"
#include "tutti/train/task/click_tables.h"

namespace tutti::train {
namespace {

Config config_of(int64_t held_out) {
  Config config;
  config.model.name = kDlrm;
  config.clicks = {.source = "generated", .table_rows = {4, 60, 200}, .validation_rows = held_out};
  config.tables.dim = 6;
  config.dlrm = {.bottom = {9}, .top = {12}};
  return config;
}

struct Model {
  explicit Model(const Config& config, comm::ProcessGroup* group = nullptr)
      : dlrm(click_model(config)), tables(make_click_tables(config, group)) {
    seed_all(3);
    nn::initialize(dlrm);
    tables->initialize();
  }
  ClickScores scores(ClickSource& source, int64_t most, comm::ProcessGroup* group = nullptr) {
    return click_scores(dlrm, *tables, source, most, group);
  }
  models::Dlrm dlrm;
  std::unique_ptr<parallel::ShardedTables> tables;
};

// By the definitions: each pair of a click and another row, and sums.
ClickScores expected_scores(Model& model, const ClickRows& rows) {
  const NoGradScope no_grad;
  const TableBatch batch = models::table_batch_of(rows.categories);
  const nn::EvalScope evaluating(*model.tables);
  const Tensor logits = model.dlrm.forward_looked_up(rows.dense, model.tables->look_up({&batch, 1})[0]);
  double loss = 0, predicted = 0, clicks = 0, above = 0, pairs = 0;
  const float *x = logits.data<float>(), *y = rows.labels.data<float>();
  for (int64_t i = 0; i < rows.count(); ++i) {
    const double z = static_cast<double>(x[i]), p = 1 / (1 + std::exp(-z));
    loss -= y[i] == 1 ? std::log(p) : std::log1p(-p);
    predicted += p;
    clicks += static_cast<double>(y[i]);
    for (int64_t j = 0; j < rows.count(); ++j) {
      if (y[i] != 1 || y[j] != 0) continue;
      above += x[i] > x[j] ? 1 : x[i] == x[j] ? 0.5 : 0;
      ++pairs;
    }
  }
  const auto n = static_cast<double>(rows.count());
  return {rows.count(), loss / n, above / pairs, predicted / clicks};
}

TEST(ClickScores, AreThoseOfTheDefinition) {
  const Config config = config_of(1500);  // more than one forward
  Model model(config);
  const ClickScores scores = model.scores(*open_held_out_clicks(config), 1 << 20);
  const ClickScores expected = expected_scores(model, open_held_out_clicks(config)->read(1500));
  EXPECT_EQ(scores.rows, 1500);
  EXPECT_NEAR(scores.loss, expected.loss, 1e-6);
  EXPECT_NEAR(scores.auc, expected.auc, 1e-12);
  EXPECT_NEAR(scores.calibration, expected.calibration, 1e-6);
}

TEST(ClickScores, HaveTheSameBitsOnAnyRanksAndFromFiles) {
  const TempFolder folder;
  Config config = config_of(3000);
  const std::vector<int64_t> sizes = {1, 900, 1024, 1025, 2500, 3000};
  std::vector<ClickScores> alone;
  for (const int64_t most : sizes) {
    Model model(config);
    alone.push_back(model.scores(*open_held_out_clicks(config), most));
    EXPECT_EQ(alone.back().rows, most);
  }
  // The same rows in three files.
  const GeneratedClicks clicks(click_columns(config));
  const int64_t first = int64_t{1} << 60;
  Config files = config;
  files.clicks.source = "files";
  for (const auto& [name, from, count] : {std::tuple{"a.csv", 0, 1500}, {"b.csv", 1500, 0}, {"c.csv", 1500, 1500}}) {
    clicks.write_csv((folder / name).string(), first + from, count);
    files.clicks.validation_paths.push_back((folder / name).string());
  }
  for (const Config& source : {config, files}) {
    for (const int ranks : {1, 2, 3, 4}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Model model(config, &group);
        for (size_t i = 0; i < sizes.size(); ++i) {
          const ClickScores scores = model.scores(*open_held_out_clicks(source), sizes[i], &group);
          EXPECT_EQ(scores.rows, alone[i].rows);
          EXPECT_EQ(scores.loss, alone[i].loss);
          EXPECT_TRUE(scores.auc == alone[i].auc || (std::isnan(scores.auc) && std::isnan(alone[i].auc)));
          EXPECT_EQ(scores.calibration, alone[i].calibration);
        }
      });
    }
  }
}

TEST(ClickScores, TheBestPossibleIsAboveAModelThatHasLearnedNothing) {
  const Config config = config_of(5000);
  Model model(config);
  const ClickScores scores = model.scores(*open_held_out_clicks(config), 5000);
  const std::optional<double> best = best_auc(*open_held_out_clicks(config), 5000);
  ASSERT_TRUE(best.has_value());
  EXPECT_GT(*best, scores.auc + 0.1);
  EXPECT_LT(*best, 1);
}

TEST(ClickScores, NobodyKnowsTheBestOfFilesAndNoRowIsAnError) {
  const TempFolder folder;
  Config config = config_of(10);
  const std::string path = (folder / "none.csv").string();
  GeneratedClicks(click_columns(config)).write_csv(path, 0, 0);
  config.clicks.source = "files";
  config.clicks.validation_paths = {path};
  Model model(config);
  EXPECT_EQ(best_auc(*open_held_out_clicks(config), 10), std::nullopt);
  try {
    model.scores(*open_held_out_clicks(config), 10);
    FAIL() << "no row was scored";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(), "validation: clicks.validation_paths hold no row");
  }
}

TEST(ClickSource, GeneratedRowsAreFoundByTheirNumberAndHeldOutOnesAreOthers) {
  const Config config = config_of(20);
  const auto source = open_training_clicks(config);
  EXPECT_EQ(source->skip(7), 7);
  const ClickRows later = source->read(3);
  const auto again = open_training_clicks(config);
  again->seek(7, {});
  const ClickRows same = again->read(3);
  for (int64_t i = 0; i < later.dense.numel(); ++i)
    EXPECT_EQ(later.dense.data<float>()[i], same.dense.data<float>()[i]);
  const auto held_out = open_held_out_clicks(config);
  EXPECT_EQ(held_out->skip(15), 15);
  EXPECT_EQ(held_out->true_logits(30).numel(), 5);
  EXPECT_EQ(held_out->read(30).count(), 5);
  EXPECT_EQ(held_out->read(30).count(), 0);
  EXPECT_EQ(held_out->skip(1), 0);
}

TEST(ClickColumns, HaveTheNamesOfTheConfiguration) {
  Config config = config_of(1);
  EXPECT_EQ(click_columns(config).dense.size(), 13u);
  config.clicks.label_column = "y";
  config.clicks.dense_columns = {"age", "price"};
  config.clicks.category_columns = {"shop", "day", "word"};
  const ClickColumns columns = click_columns(config);
  EXPECT_EQ(columns.label, "y");
  EXPECT_EQ(columns.dense, (std::vector<std::string>{"age", "price"}));
  EXPECT_EQ(columns.categories[2].name, "word");
  EXPECT_EQ(columns.categories[2].rows, 200);
}

// Parameters by name and size; tables of any size take no memory to plan.
TEST(ClickPlan, CountsEveryParameterAndWhatEachRankHolds) {
  Config config = config_of(1);
  config.tables.placements = {"data_parallel"};
  const StepPlan one = plan_click_step(config, 1, true), four = plan_click_step(config, 4, true);
  int64_t parameters = 0;
  for (const PlannedTensor& tensor : one.tensors) parameters += numel_of(tensor.sizes);
  EXPECT_EQ(parameters, models::parameter_count(click_model(config)));
  EXPECT_EQ(one.of_ranks.size(), 1u);
  EXPECT_EQ(four.of_ranks.size(), 4u);
  EXPECT_EQ(one.sent_bytes(), 0);
  EXPECT_GT(four.sent_bytes(), 0);
  const auto of = [](const StepPlan& plan, MemoryCategory category) {
    return plan.of_ranks[0].by_category[static_cast<size_t>(category)];
  };
  EXPECT_EQ(of(one, MemoryCategory::parameters), of(four, MemoryCategory::parameters)) << "each has all tables";
  EXPECT_GT(of(one, MemoryCategory::data), of(four, MemoryCategory::data));
  config.clicks.table_rows = {int64_t{1} << 40, 5, 7};
  EXPECT_GT(plan_click_step(config, 1, true).of_ranks[0].peak(), int64_t{1} << 44);
  config.tables.placements = {"row_wise"};
  const StepPlan divided = plan_click_step(config, 4, true);
  int64_t stored = 0;
  for (const int64_t bytes : divided.tensors.back().stored_bytes) stored += bytes;
  EXPECT_EQ(stored, 7 * 6 * 4);
  EXPECT_LT(divided.of_ranks[0].peak(), int64_t{1} << 43);
}

TEST(ClickPlan, SaysByItsKeysWhatFitsNowhere) {
  Config config = config_of(1);
  config.clicks.table_rows = {1 << 20, 5, 7};
  config.tables.placements = {"table_wise", "data_parallel"};
  config.tables.memory_mib = 8;
  EXPECT_NE(message_of([&] { plan_click_tables(config, 4); })
                .find("tables.placements = [table_wise, data_parallel] and tables.memory_mib = 8 on 4 ranks: embedding "
                      "plan: table 'tables.0' of 1048576 rows and 6 columns takes 29360128 bytes, and fits nowhere"),
            std::string::npos);
  config.tables.placements = {};
  EXPECT_EQ(plan_click_tables(config, 4).plan.tables[0].placement, parallel::TablePlacement::row_wise);
}

}  // namespace
}  // namespace tutti::train
