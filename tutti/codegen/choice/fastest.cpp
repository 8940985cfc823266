#include "tutti/codegen/choice/fastest.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace tutti::codegen::choice {
namespace {

constexpr double kWorthChanging = 0.97, kHopeless = 2.0;
constexpr double kNever = std::numeric_limits<double>::infinity();

double median(std::vector<double> samples) {
  if (samples.empty()) return kNever;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

}  // namespace

size_t fastest(size_t candidates, const ChoiceOptions& options, FunctionRef<double(size_t)> run_us) {
  if (candidates == 1) return 0;
  using Clock = std::chrono::steady_clock;
  // The first would run anyway; what it takes when cold, choices of its own included, is not for the others to pay.
  const double first_time = run_us(0);
  const auto end = Clock::now() + std::chrono::milliseconds(options.budget_ms);
  std::vector<std::vector<double>> samples(candidates);
  std::vector<size_t> order(candidates);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(options.seed);
  double best = kNever;  // of all samples
  bool is_over = false;
  for (int64_t round = 0; round <= options.samples && !is_over; ++round) {
    // Our own shuffle: that of the standard library differs between libraries. The first round keeps the order of the
    // heuristic: what the budget does not reach is then what it expects least of.
    for (size_t i = order.size(); round > 0 && i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    for (size_t i = 0; i < order.size() && !is_over; ++i) {
      const double time = round == 0 && i == 0 ? first_time : run_us(order[i]);
      if (round > 0 || std::isinf(time)) samples[order[i]].push_back(time);
      if (round > 0) best = std::min(best, time);
      is_over = Clock::now() >= end;
    }
    std::erase_if(order, [&](size_t index) {
      const double time = median(samples[index]);
      return !samples[index].empty() && (std::isinf(time) || time > kHopeless * best);
    });
  }
  const bool any_other = std::any_of(samples.begin() + 1, samples.end(), [](const auto& s) { return !s.empty(); });
  if (samples[0].empty() && any_other) samples[0].push_back(run_us(0));  // nobody wins against one that was not timed
  size_t winner = 0;
  double time_to_beat = median(samples[0]);
  for (size_t index = 1; index < candidates; ++index) {
    const double time = median(samples[index]);
    if (time >= kWorthChanging * median(samples[0]) || time >= time_to_beat) continue;
    winner = index;
    time_to_beat = time;
  }
  return winner;
}

}  // namespace tutti::codegen::choice
