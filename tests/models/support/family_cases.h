// The tiny models of published families (tests/models/families/README.md).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tutti/io/safetensors.h"
#include "tutti/models/token_batch.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/reshape.h"

namespace tutti::models {

const std::filesystem::path& families_folder();
inline constexpr int64_t kFamilyPositions = 9100;  // those of the tokens are below it

// The decoders whose folders hold the file.
inline std::vector<std::string> family_cases(const std::string& file) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(families_folder())) {
    const std::string name = entry.path().filename().string();
    if (name != "bert" && std::filesystem::exists(entry.path() / file)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string name_of_case(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline TokenBatch batch_in(const SafetensorsFile& expected) {
  const Tensor tokens = expected.tensor("tokens");
  const int64_t rows = tokens.extent(0), length = tokens.extent(1), count = rows * length;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(static_cast<int32_t>(i % length));
  return {reshape(tokens, {count}),
          expected.contains("positions") ? reshape(expected.tensor("positions"), {count}) : Tensor::of(positions),
          Tensor::of(std::vector<int32_t>(static_cast<size_t>(count), 0)), rows};
}

// The largest difference, relative to the largest magnitude of `expected`.
inline double difference(const Tensor& got, const Tensor& expected) {
  const Tensor a = to_contiguous(cast(got, DType::f64)), b = to_contiguous(cast(expected, DType::f64));
  EXPECT_EQ(a.numel(), b.numel());
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double difference = std::abs(a.data<double>()[i] - b.data<double>()[i]);
    worst = std::max(worst, std::isnan(difference) ? HUGE_VAL : difference);
    largest = std::max(largest, std::abs(b.data<double>()[i]));
  }
  return largest == 0 ? worst : worst / largest;
}

}  // namespace tutti::models
