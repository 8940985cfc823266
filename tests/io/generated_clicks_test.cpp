#include "tutti/io/generated_clicks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/click_reader.h"

namespace tutti {
namespace {

const ClickColumns kColumns = criteo_columns({4, 1000, 10'000'000});

TEST(GeneratedClicks, ARowDependsOnItsNumberAndTheSeedAlone) {
  const GeneratedClicks clicks(kColumns), others(kColumns, {.seed = 2});
  const ClickRows all = clicks.rows(0, 100), some = clicks.rows(90, 10), none = clicks.rows(5, 0);
  for (int64_t i = 0; i < 10 * 13; ++i) EXPECT_EQ(some.dense.data<float>()[i], all.dense.data<float>()[90 * 13 + i]);
  for (int64_t i = 0; i < 10 * 3; ++i)
    EXPECT_EQ(some.categories.data<int64_t>()[i], all.categories.data<int64_t>()[90 * 3 + i]);
  EXPECT_NE(others.rows(0, 1).dense.data<float>()[0], all.dense.data<float>()[0]);
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(clicks.rows(INT64_MAX - 3, 3).count(), 3);
}

TEST(GeneratedClicks, LabelsFollowTheLogits) {
  constexpr int64_t n = 40000;
  const GeneratedClicks clicks(kColumns);
  const Tensor logits = clicks.logits(0, n), labels = clicks.rows(0, n).labels;
  double variance = 0, surplus = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(logits.data<float>()[i])));
    variance += p * (1 - p);
    surplus += static_cast<double>(labels.data<float>()[i]) - p;
  }
  EXPECT_LT(std::abs(surplus), 4 * std::sqrt(variance));
}

TEST(GeneratedClicks, CategoriesFollowZipf) {
  constexpr int64_t n = 60000;
  const double exponent = 1.2;
  const GeneratedClicks clicks(criteo_columns({1000}), {.zipf = exponent});
  const ClickRows rows = clicks.rows(0, n);
  std::vector<double> found(1000, 0);
  for (int64_t i = 0; i < n; ++i) ++found[static_cast<size_t>(rows.categories.data<int64_t>()[i])];
  const auto below = [&](double x) { return (std::pow(x, 1 - exponent) - 1) / (std::pow(1001.0, 1 - exponent) - 1); };
  for (const int k : {0, 1, 2, 5, 20, 100}) {
    const double expected = n * (below(k + 2) - below(k + 1));
    EXPECT_LT(std::abs(found[static_cast<size_t>(k)] - expected), 5 * std::sqrt(expected)) << "value " << k;
  }
}

TEST(GeneratedClicks, DenseColumnsAreNormal) {
  constexpr int64_t n = 20000;
  const Tensor dense = GeneratedClicks(kColumns).rows(0, n).dense;
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < dense.numel(); ++i) {
    const double x = dense.data<float>()[i];
    sum += x;
    squares += x * x;
  }
  const auto count = static_cast<double>(dense.numel());
  EXPECT_LT(std::abs(sum / count), 4 / std::sqrt(count));
  EXPECT_LT(std::abs(squares / count - 1), 4 * std::sqrt(2 / count));
}

TEST(GeneratedClicks, WritesNoRowsThatItRefuses) {
  const testing::TemporaryFolder folder;
  const GeneratedClicks clicks(kColumns);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, -1}, {-1, 2}, {INT64_MAX - 1, 2}}) {
    const std::string expected = fmt::format("clicks: {} rows from row {} on", count, first);
    EXPECT_EQ(message_of([&] { clicks.write_csv(folder / "a.csv", first, count); }), expected);
    EXPECT_EQ(message_of([&] { clicks.write_npy(folder / "npy", first, count); }), expected);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a.csv"));
  EXPECT_FALSE(std::filesystem::exists(folder / "npy"));
  folder.write("file", "");
  EXPECT_THROW(clicks.write_npy(folder / "file/npy", 0, 1), EnvironmentError);
}

TEST(GeneratedClicks, AnInterruptedFolderIsNoMixture) {
  const GeneratedClicks clicks(kColumns);
  for (const char* const name : {"dense.npy", "categories.npy"}) {
    const testing::TemporaryFolder folder;
    clicks.write_npy(folder.path(), 0, 5);
    std::filesystem::remove(folder / name);
    folder.write(std::string(name) + "/file", "");  // which no file replaces
    EXPECT_THROW(clicks.write_npy(folder.path(), 5, 5), EnvironmentError);
    EXPECT_FALSE(std::filesystem::exists(folder / "label.npy")) << name;
    std::filesystem::remove_all(folder / name);
    clicks.write_npy(folder.path(), 5, 5);
    ClickReader reader({folder.path()}, kColumns);
    const ClickRows read = reader.read(5), expected = clicks.rows(5, 5);
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(read.labels.data<float>()[i], expected.labels.data<float>()[i]);
  }
}

TEST(GeneratedClicks, RefusesOptionsWithoutMeaning) {
  EXPECT_EQ(message_of([] { GeneratedClicks(criteo_columns({0})); }),
            "clicks: the table of column 'cat_0' has 0 rows; expected 1 or more");
  EXPECT_EQ(message_of([] { GeneratedClicks(kColumns, {.zipf = 0}); }),
            "clicks: a Zipf exponent of 0; expected more than 0");
  EXPECT_EQ(message_of([] { GeneratedClicks(kColumns, {.intercept = NAN}); }),
            "clicks: an option of generated clicks is nan; expected a finite number");
  EXPECT_EQ(message_of([] { GeneratedClicks(kColumns).rows(-1, 2); }), "clicks: 2 rows from row -1 on");
}

}  // namespace
}  // namespace tutti
