#include "tutti/train/step/expert_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tutti/runtime/json_document.h"

namespace tutti::train {
namespace {

double sum_of(const ExpertLoad& load) {
  return static_cast<double>(std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0}));
}

}  // namespace

double max_over_mean(const ExpertLoad& load) {
  const double all = sum_of(load);
  if (all == 0) return 0;
  return static_cast<double>(*std::max_element(load.tokens.begin(), load.tokens.end())) *
         static_cast<double>(load.tokens.size()) / all;
}

double entropy_of(const ExpertLoad& load) {
  const double all = sum_of(load);
  if (all == 0 || load.tokens.size() < 2) return load.tokens.size() < 2 ? 1 : 0;
  double nats = 0;
  for (const int64_t n : load.tokens) {
    const double share = static_cast<double>(n) / all;
    if (n > 0) nats -= share * std::log(share);
  }
  return nats / std::log(static_cast<double>(load.tokens.size()));
}

int64_t starved_in(const ExpertLoad& load) { return std::count(load.tokens.begin(), load.tokens.end(), 0); }

std::string to_json(const ExpertLoad& load) {
  return fmt::format(
      R"({{"layer":{},"tokens":[{}],"max_over_mean":{},"entropy":{},"bias_min":{},"bias_max":{},"starved":{}}})",
      load.layer,
      [&] {
        std::string list;
        for (const int64_t n : load.tokens) list += fmt::format("{}{}", list.empty() ? "" : ",", n);
        return list;
      }(),
      max_over_mean(load), entropy_of(load), load.bias_min, load.bias_max, starved_in(load));
}

ExpertLoad expert_load_in(const JsonValue& json) {
  ExpertLoad load{.layer = json.at("layer").whole(0, INT32_MAX),
                  .bias_min = static_cast<float>(json.at("bias_min").number()),
                  .bias_max = static_cast<float>(json.at("bias_max").number())};
  for (const auto& [_, n] : json.at("tokens")) load.tokens.push_back(n.whole(0, INT64_MAX));
  return load;
}

}  // namespace tutti::train
