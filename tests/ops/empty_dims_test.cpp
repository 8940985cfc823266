// Ops along dims on tensors without elements: sizes of 0 in every position. What PyTorch defines decides: nothing has
// no extreme, its sum is 0, and without rows there is no result, and nothing to refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/support/message_of.h"
#include "tests/support/ops_over_dims.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

// The result of a reduction of no elements.
std::map<std::string, double> results_of_nothing() {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  return {{"sum", 0},    {"prod", 1},  {"any", 0},      {"all", 1},
          {"mean", nan}, {"var", nan}, {"stddev", nan}, {"logsumexp", -std::numeric_limits<double>::infinity()}};
}

const std::vector<std::string>& ops_that_choose() {
  static const std::vector<std::string> names = {"amax",     "amin",   "argmax",    "argmin", "topk of 1",
                                                 "kthvalue", "median", "nanmedian", "mode"};
  return names;
}

std::string first_words(const std::string& name) {
  const size_t end = name.find(" with keepdim");
  return name.substr(0, end);
}

Extents sizes_of_result(const std::string& name, const Extents& x, const Dims& dims) {
  const std::string op = first_words(name);
  const bool keeps = op == "softmax" || op == "log_softmax" || op.starts_with("cum") || op.ends_with("cumsum") ||
                     op == "logcumsumexp" || op.ends_with("sort") || op == "flip" || op == "roll";
  if (keeps) return x;
  Extents sizes;
  const auto is_chosen = [&](int d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); };
  const bool keepdim = name.ends_with("keepdim") || op == "argmin" || op == "nanmedian";
  for (int d = 0; d < x.ndim(); ++d) {
    const int64_t size = x[static_cast<size_t>(d)];
    if (op == "stack" && is_chosen(d)) sizes.push_back(2);
    if (!is_chosen(d) || op == "stack") sizes.push_back(size);
    else if (op == "cat") sizes.push_back(2 * size);
    else if (op == "topk of 1") sizes.push_back(1);
    else if (op == "topk of 0") sizes.push_back(0);
    else if (keepdim) sizes.push_back(1);
  }
  return sizes;
}

template <class Visit>
void for_each_case(const Visit& visit) {
  for (const OpOverDims& op : ops_over_dims()) {
    for (const Extents& shape : shapes_of({0, 2, 3}, 4)) {
      if (numel_of(shape) != 0) continue;
      for (const Dims& dims : sets_of_dims(4, op.takes_several)) visit(op, shape, dims);
    }
  }
}

TEST(EmptyDims, GiveWhatNothingGivesOrAreRefused) {
  const std::map<std::string, double> of_nothing = results_of_nothing();
  for_each_case([&](const OpOverDims& op, const Extents& shape, const Dims& dims) {
    const std::string about = fmt::format("{} over [{}] of {}", op.name, fmt::join(dims, ", "), shape);
    const bool is_empty_row =
        std::any_of(dims.begin(), dims.end(), [&](int64_t d) { return shape[static_cast<size_t>(d)] == 0; });
    const std::string name = first_words(op.name);
    const bool chooses = std::find(ops_that_choose().begin(), ops_that_choose().end(), name) != ops_that_choose().end();
    const Tensor x = facets::sample_tensor(1, shape);
    std::vector<Tensor> results;
    std::string said;
    try {
      said = message_of([&] { results = op.run(x, dims); });
    } catch (const std::exception& error) {
      ADD_FAILURE() << about << ": " << error.what();
      return;
    }
    EXPECT_EQ(said != "no error", chooses && is_empty_row) << about << ": " << said;
    for (const Tensor& y : results) {
      EXPECT_EQ(y.extents(), sizes_of_result(op.name, shape, dims)) << about;
      for (int64_t i = 0; i < y.numel(); ++i) {
        const double v = facets::read_double(y, i), wanted = of_nothing.at(name);
        EXPECT_TRUE(v == wanted || (std::isnan(v) && std::isnan(wanted))) << about << " gave " << v;
      }
    }
  });
}

// Rows of a tensor without memory that repeat: nothing is read ahead of a loop that does not run.
TEST(EmptyDims, OfExpandedTensorsGiveTheSame) {
  for_each_case([&](const OpOverDims& op, const Extents& shape, const Dims& dims) {
    for (int set = 0; set < 16; ++set) {
      Extents strides = contiguous_strides(shape);
      bool has_empty = false;  // along a dim that does not repeat
      for (int d = 0; d < 4; ++d) {
        if ((set >> d & 1) != 0) strides[static_cast<size_t>(d)] = 0;
        else has_empty = has_empty || shape[static_cast<size_t>(d)] == 0;
      }
      if (!has_empty) continue;
      const Tensor x = facets::sample_tensor(1, shape), repeated = x.view_as(shape, strides, 0);
      std::vector<Tensor> results, others;
      const std::string said = message_of([&] { results = op.run(x, dims); }),
                        other = message_of([&] { others = op.run(repeated, dims); });
      ASSERT_EQ(said == "no error", other == "no error") << op.name << fmt::format(" of repeated {}: {}", shape, other);
      for (size_t k = 0; k < results.size(); ++k) ASSERT_EQ(results[k].extents(), others[k].extents()) << op.name;
    }
  });
}

// Empty tensors look dense whatever their strides are.
TEST(EmptyDims, OfTransposedTensorsGiveTheSame) {
  for_each_case([&](const OpOverDims& op, const Extents& shape, const Dims& dims) {
    const std::string about = fmt::format("{} over [{}] of transposed {}", op.name, fmt::join(dims, ", "), shape);
    const Tensor x = facets::sample_tensor(1, shape), strided = x.view_as(shape, {1, 7, 30, 200}, 0);
    try {
      std::vector<Tensor> results, others;
      const std::string said = message_of([&] { results = op.run(x, dims); }),
                        other = message_of([&] { others = op.run(strided, dims); });
      EXPECT_EQ(said == "no error", other == "no error") << about << ": " << other;
      ASSERT_EQ(results.size(), others.size()) << about;
      for (size_t k = 0; k < results.size(); ++k) EXPECT_EQ(results[k].extents(), others[k].extents()) << about;
    } catch (const std::exception& error) {
      ADD_FAILURE() << about << ": " << error.what();
    }
  });
}

}  // namespace
}  // namespace tutti
