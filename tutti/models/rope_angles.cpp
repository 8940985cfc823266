#include "tutti/models/rope_angles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tutti/core/error.h"

namespace tutti::models {
namespace {

struct Name {
  RopeType type;
  const char* name;
};
constexpr std::array kNames{Name{RopeType::plain, "default"}, Name{RopeType::linear, "linear"},
                            Name{RopeType::llama3, "llama3"}, Name{RopeType::yarn, "yarn"},
                            Name{RopeType::proportional, "proportional"}};

// Long waves are stretched, short ones are not, and those between are both in proportion.
double llama3_frequency(const RopeConfig& c, double f) {
  const double original = static_cast<double>(c.original_positions), wavelength = 2 * std::numbers::pi / f;
  if (wavelength < original / c.high_freq_factor) return f;
  if (wavelength > original / c.low_freq_factor) return f / c.factor;
  const double s = (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return f * ((1 - s) / c.factor + s);
}

// The share of stretching in each frequency grows linearly between the dims that turn beta_fast and beta_slow times in
// the original positions.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& c, int64_t head_dim) {
    const double D = static_cast<double>(head_dim), original = static_cast<double>(c.original_positions);
    const auto dim_of = [&](double turns) {
      return D * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(c.theta));
    };
    low_ = dim_of(c.beta_fast), high_ = dim_of(c.beta_slow);
    if (c.truncate) low_ = std::floor(low_), high_ = std::ceil(high_);
    low_ = std::max(low_, 0.0), high_ = std::min(high_, D - 1);
    if (low_ == high_) high_ += 0.001;
  }
  double at(int64_t i) const { return std::clamp((static_cast<double>(i) - low_) / (high_ - low_), 0.0, 1.0); }

 private:
  double low_, high_;
};

// The pairs that turn, which are the first.
int64_t rotated_pairs(const RopeConfig& c, int64_t head_dim) {
  return static_cast<int64_t>(std::floor(c.rotary_factor * static_cast<double>(head_dim) / 2));
}

}  // namespace

std::string name_of(RopeType type) {
  return std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return n.type == type; })->name;
}

std::optional<RopeType> rope_type_named(std::string_view name) {
  for (const Name& n : kNames) {
    if (n.name == name) return n.type;
  }
  return std::nullopt;
}

std::vector<double> rope_frequencies(const RopeConfig& c, int64_t head_dim) {
  TUTTI_CHECK(head_dim > 0 && head_dim % 2 == 0, "rotary positions of heads of {} elements; expected an even number",
              head_dim);
  TUTTI_CHECK(c.theta > 0 && c.factor > 0 && std::isfinite(c.theta) && std::isfinite(c.factor),
              "rotary positions with base {} and factor {}; expected positive numbers", c.theta, c.factor);
  TUTTI_CHECK(c.rotary_factor >= 0 && c.rotary_factor <= 1,
              "rotary positions that turn {} of the pairs of a head; expected a number from 0 to 1", c.rotary_factor);
  const bool needs_original = c.type == RopeType::llama3 || c.type == RopeType::yarn;
  TUTTI_CHECK(!needs_original || c.original_positions > 0,
              "rotary positions of type {} with {} original positions; expected at least 1", name_of(c.type),
              c.original_positions);
  std::optional<YarnRamp> ramp;
  if (c.type == RopeType::yarn) ramp.emplace(c, head_dim);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double f = std::pow(c.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    switch (c.type) {
      case RopeType::plain:
        frequencies.push_back(f);
        break;
      case RopeType::linear:
        frequencies.push_back(f / c.factor);
        break;
      case RopeType::llama3:
        frequencies.push_back(llama3_frequency(c, f));
        break;
      case RopeType::yarn:
        frequencies.push_back(f * ((1 - ramp->at(i)) + ramp->at(i) / c.factor));
        break;
      case RopeType::proportional:
        frequencies.push_back(i < rotated_pairs(c, head_dim) ? f / c.factor : 0);
        break;
    }
  }
  TUTTI_CHECK(c.divisors.empty() || c.divisors.size() == frequencies.size(),
              "rotary positions with {} divisors for {} pairs", c.divisors.size(), frequencies.size());
  for (size_t i = 0; i < c.divisors.size(); ++i) {
    TUTTI_CHECK(c.divisors[i] > 0, "rotary positions with the divisor {} of pair {}; expected a positive number",
                c.divisors[i], i);
    frequencies[i] /= c.divisors[i];
  }
  return frequencies;
}

double rope_attention_factor(const RopeConfig& c) {
  if (c.type != RopeType::yarn) return 1;
  return c.attention_factor.value_or(c.factor <= 1 ? 1.0 : 0.1 * std::log(c.factor) + 1);
}

RopeTable rope_table(const RopeConfig& c, int64_t positions, int64_t head_dim) {
  return tutti::rope_table(positions, rope_frequencies(c, head_dim), rope_attention_factor(c));
}

}  // namespace tutti::models
