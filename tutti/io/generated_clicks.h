// Click data with a known answer: columns like Criteo's, and labels drawn from a logistic model that is written down
// here, so that the best possible AUC can be computed.
//
// Row i is a function of the seed and i alone, computed when it is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/io/click_rows.h"

namespace tutti {

struct GeneratedClicksOptions {
  uint64_t seed = 1;
  double zipf = 1.05;           // the exponent: value k of a category has a probability of about (k + 1)^-zipf
  double intercept = -1.2;      // of the true logit
  double dense_scale = 0.25;    // standard deviation of the true weights of dense columns
  double category_scale = 0.4;  // and of the true weight that each value of each category has
};

// Dense columns are normally distributed with mean 0 and variance 1. The true logit of a row is the intercept plus the
// sums of its dense values times their weights and of the weights of its categories.
class GeneratedClicks {
 public:
  // UsageError for tables without rows, an exponent that is not above 0, and options that are not finite.
  explicit GeneratedClicks(ClickColumns columns, const GeneratedClicksOptions& options = {});

  // Rows first, first + 1, ...; first is 0 to 2^63 - 1.
  ClickRows rows(int64_t first, int64_t count) const;
  // f32 [count]: the true logits of the same rows. No model orders these rows better, but by chance.
  Tensor logits(int64_t first, int64_t count) const;

  // Writes rows as a text file, and as a folder of npy files, which ClickReader reads. The memory that this takes does
  // not depend on the count. Files are replaced atomically, one by one.
  void write_csv(const std::string& file, int64_t first, int64_t count) const;
  void write_npy(const std::string& folder, int64_t first, int64_t count) const;

  const ClickColumns& columns() const { return columns_; }

 private:
  struct Row;
  double make(int64_t index, const Row& row) const;

  const ClickColumns columns_;
  const GeneratedClicksOptions options_;
  std::vector<double> dense_weights_;
};

}  // namespace tutti
