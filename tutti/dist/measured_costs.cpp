#include "tutti/dist/measured_costs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/runtime/json_document.h"

namespace tutti::dist {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int64_t kMostRanks = int64_t{1} << 31;
constexpr const char* kVariable = "TUTTI_DTENSOR_COSTS";
// In front of a text that says what is wrong with the file, and of whose kind the error is.
constexpr char kUsage = 'U', kEnvironment = 'E', kCosts = 'C';

template <class T>
T number(const std::string& word, int line, const char* what) {
  T value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  TUTTI_CHECK(error == std::errc() && end == word.data() + word.size() && std::isfinite(static_cast<double>(value)),
              "measured costs, line {}: {} '{}' is no number", line, what, word);
  return value;
}

StepKind step_of(const std::string& word, int line) {
  std::vector<std::string> names;
  for (const StepKind kind : kCollectiveSteps) {
    if (name_of(kind) == word) return kind;
    names.emplace_back(name_of(kind));
  }
  throw UsageError(fmt::format("measured costs, line {}: {}", line, unknown_name_message("step", word, names)));
}

}  // namespace

MeasuredCosts MeasuredCosts::parse(std::string_view text) {
  MeasuredCosts costs;
  std::istringstream lines{std::string(text)};
  int at = 0;
  for (std::string line; std::getline(lines, line);) {
    ++at;
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> fields;
    for (std::string word; words >> word;) fields.push_back(word);
    if (fields.empty()) continue;
    TUTTI_CHECK(fields.size() == 5,
                "measured costs, line {}: '{}'; expected: transport step ranks latency_us bytes_per_us", at,
                line.substr(0, 80));
    const StepKind kind = step_of(fields[1], at);
    const auto ranks = number<int64_t>(fields[2], at, "the number of ranks");
    const StepCost cost{.latency = number<double>(fields[3], at, "the latency"),
                        .bytes_per_us = number<double>(fields[4], at, "the bandwidth")};
    TUTTI_CHECK(ranks >= 2 && ranks <= kMostRanks, "measured costs, line {}: {} ranks; a step takes two or more", at,
                ranks);
    TUTTI_CHECK(
        cost.latency >= 0 && cost.bytes_per_us > 0,
        "measured costs, line {}: {} us and {} bytes per us; expected a latency of at least 0 and a bandwidth above it",
        at, cost.latency, cost.bytes_per_us);
    TUTTI_CHECK(costs.rows_.emplace(std::tuple(fields[0], kind, ranks), cost).second,
                "measured costs, line {}: {} {} over {} ranks stands twice", at, fields[0], fields[1], ranks);
  }
  TUTTI_CHECK(!costs.rows_.empty(), "measured costs: there are none; `tutti bench comm --costs FILE` measures them");
  return costs;
}

MeasuredCosts MeasuredCosts::read(const std::string& path) {
  const std::string text = read_regular_file(path, kMaxFileBytes);
  try {
    return parse(text);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", path, error.what()));
  }
}

std::string MeasuredCosts::to_text() const {
  std::string text = "# transport step ranks latency_us bytes_per_us\n";
  for (const auto& [key, cost] : rows_) {
    const auto& [transport, kind, ranks] = key;
    text += fmt::format("{} {} {} {:.6g} {:.6g}\n", transport, name_of(kind), ranks, cost.latency, cost.bytes_per_us);
  }
  return text;
}

void MeasuredCosts::set(const std::string& transport, StepKind kind, int64_t ranks, StepCost cost) {
  rows_[{transport, kind, ranks}] = cost;
}

void MeasuredCosts::set(const MeasuredCosts& others) {
  for (const auto& [key, cost] : others.rows_) rows_.insert_or_assign(key, cost);
}

const StepCost* MeasuredCosts::find(std::string_view transport, StepKind kind, int64_t ranks) const {
  const StepCost* nearest = nullptr;
  int64_t distance = 0;
  for (const auto& [key, cost] : rows_) {
    if (std::get<0>(key) != transport || std::get<1>(key) != kind) continue;
    const int64_t away = std::abs(std::get<2>(key) - ranks);
    // Rows come in ascending order of ranks.
    if (nearest == nullptr || away <= distance) nearest = &cost, distance = away;
  }
  return nearest;
}

std::string costs_of_environment() {
  const char* path = std::getenv(kVariable);
  if (path == nullptr || *path == '\0') return "";
  try {
    return kCosts + MeasuredCosts::read(path).to_text();
  } catch (const UsageError& error) {
    return fmt::format("{}{}: {}", kUsage, kVariable, error.what());
  } catch (const EnvironmentError& error) {
    return fmt::format("{}{}: {}", kEnvironment, kVariable, error.what());
  }
}

std::shared_ptr<const MeasuredCosts> costs_from(const std::string& text) {
  if (text.empty()) return nullptr;
  const std::string rest = text.substr(1);
  if (text[0] == kEnvironment) throw EnvironmentError(rest);
  if (text[0] == kUsage) throw UsageError(rest);
  return std::make_shared<const MeasuredCosts>(MeasuredCosts::parse(rest));
}

}  // namespace tutti::dist
