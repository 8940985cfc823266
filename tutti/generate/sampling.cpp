#include "tutti/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/core/philox.h"

namespace tutti::generate {
namespace {

constexpr size_t kPenaltyWindow = 64;  // of llama_cpp

bool is_likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Tokens that may be drawn, of which the `sorted` most likely ones stand first, in their order.
class Candidates {
 public:
  explicit Candidates(std::vector<Candidate>& entries) : entries_(entries) {}

  size_t size() const { return entries_.size(); }
  const Candidate& at(size_t place) {
    if (place >= sorted_) sort(std::max(place + 1, std::max<size_t>(2 * sorted_, 64)));
    return entries_[place];
  }
  void keep(size_t count) {
    if (count >= size()) return;
    sort(count);
    entries_.resize(count);
  }
  // exp((logit - largest logit) / temperature), added up over all.
  double sum_of_weights(double temperature) {
    const float largest = at(0).logit;
    double sum = 0;
    for (const Candidate& entry : entries_) sum += weight(entry, largest, temperature);
    return sum;
  }
  double weight(size_t place, double temperature) {
    const Candidate& entry = at(place);  // sorts, before the first one is read
    return weight(entry, entries_[0].logit, temperature);
  }

 private:
  static double weight(const Candidate& entry, float largest, double temperature) {
    return std::exp((entry.logit - largest) / temperature);
  }
  void sort(size_t count) {
    count = std::min(count, size());
    if (count <= sorted_) return;
    std::partial_sort(entries_.begin() + static_cast<std::ptrdiff_t>(sorted_),
                      entries_.begin() + static_cast<std::ptrdiff_t>(count), entries_.end(), is_likelier);
    sorted_ = count;
  }

  std::vector<Candidate>& entries_;
  size_t sorted_ = 0;
};

void add_penalties(std::unordered_map<int32_t, float>& changed, std::span<const float> logits,
                   const SamplingOptions& options, const SamplingState& state) {
  const auto logit = [&](int32_t id) -> float& {
    return changed.try_emplace(id, logits[static_cast<size_t>(id)]).first->second;
  };
  for (const auto& [id, bias] : options.logit_bias) logit(id) += static_cast<float>(bias);
  const bool as_llama = options.order == SamplingOrder::llama_cpp;
  const auto all = as_llama ? state.tokens.last(std::min(state.tokens.size(), kPenaltyWindow)) : state.tokens;
  const auto counted = as_llama ? all : state.tokens.subspan(static_cast<size_t>(state.prompt));
  if (options.repetition_penalty != 1) {
    std::unordered_map<int32_t, int> seen;
    const float penalty = static_cast<float>(options.repetition_penalty);
    for (const int32_t id : all) {
      if (seen[id]++ > 0) continue;
      float& x = logit(id);
      x = x <= 0 ? x * penalty : x / penalty;
    }
  }
  if (options.presence_penalty == 0 && options.frequency_penalty == 0) return;
  std::unordered_map<int32_t, int64_t> counts;
  for (const int32_t id : counted) ++counts[id];
  for (const auto& [id, count] : counts)
    logit(id) -= static_cast<float>(options.presence_penalty + options.frequency_penalty * static_cast<double>(count));
}

// Calls take(candidate) for each token that may be drawn, in the order of ids.
template <class Take>
void each_candidate(std::span<const float> logits, std::span<const int32_t> ids, const SamplingOptions& options,
                    const SamplingState& state, Take&& take) {
  std::unordered_map<int32_t, float> changed;
  add_penalties(changed, logits, options, state);
  for (const int32_t id : state.forbidden) changed[id] = -INFINITY;
  int64_t count = 0;
  for (const int32_t id : ids) {
    float logit = logits[static_cast<size_t>(id)];
    if (!changed.empty()) {
      if (const auto found = changed.find(id); found != changed.end()) logit = found->second;
    }
    TUTTI_CHECK(!std::isnan(logit), "the logit of token {} is NaN; the model has diverged or its file is damaged", id);
    if (logit == -INFINITY) continue;
    take(Candidate{logit, id});
    ++count;
  }
  TUTTI_CHECK(count > 0, "no token is left to draw: all {} are forbidden or have a logit of -inf", ids.size());
}

// The fewest of the most likely tokens whose probabilities at this temperature add up to top_p.
void keep_top_p(Candidates& left, double top_p, double temperature) {
  if (top_p >= 1) return;
  const double enough = top_p * left.sum_of_weights(temperature);
  double sum = 0;
  size_t count = 0;
  while (count < left.size() && (count == 0 || sum < enough)) sum += left.weight(count++, temperature);
  left.keep(count);
}

void keep_min_p(Candidates& left, double min_p, double temperature) {
  if (min_p <= 0) return;
  size_t count = 1;
  while (count < left.size() && left.weight(count, temperature) >= min_p) ++count;
  left.keep(count);
}

}  // namespace

void validate(const SamplingOptions& o, int64_t vocab) {
  const auto check = [](bool fits, const char* name, double value, const char* expected) {
    TUTTI_CHECK(fits && std::isfinite(value), "{} is {}; expected {}", name, value, expected);
  };
  check(o.temperature >= 0, "temperature", o.temperature, "0 or more");
  check(o.top_k >= 0, "top_k", static_cast<double>(o.top_k), "0 (all tokens) or more");
  check(o.top_p >= 0 && o.top_p <= 1, "top_p", o.top_p, "0 to 1");
  check(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "0 to 1");
  check(o.repetition_penalty > 0, "repetition_penalty", o.repetition_penalty, "a positive number (1: none)");
  check(true, "presence_penalty", o.presence_penalty, "a number");
  check(true, "frequency_penalty", o.frequency_penalty, "a number");
  for (const auto& [id, bias] : o.logit_bias) {
    TUTTI_CHECK(id >= 0 && id < vocab, "logit_bias names token {}; the model has {}", id, vocab);
    TUTTI_CHECK(!std::isnan(bias), "logit_bias of token {} is NaN", id);
  }
}

// The candidates that the settings leave, in `entries`.
static Candidates narrowed(std::vector<Candidate>& entries, std::span<const float> logits, std::span<const int32_t> ids,
                           const SamplingOptions& options, const SamplingState& state) {
  entries.clear();
  entries.reserve(ids.size());
  each_candidate(logits, ids, options, state, [&](const Candidate& candidate) { entries.push_back(candidate); });
  Candidates left(entries);
  if (options.temperature == 0) {
    left.keep(1);
    return left;
  }
  // The temperature at which probabilities are compared while tokens are left out.
  const double narrowing = options.order == SamplingOrder::llama_cpp ? 1 : options.temperature;
  if (options.top_k > 0) left.keep(static_cast<size_t>(options.top_k));
  keep_top_p(left, options.top_p, narrowing);
  keep_min_p(left, options.min_p, narrowing);
  return left;
}

std::vector<TokenProbability> distribution_of(std::span<const float> logits, std::span<const int32_t> ids,
                                              const SamplingOptions& options, const SamplingState& state) {
  std::vector<Candidate> entries;
  Candidates left = narrowed(entries, logits, ids, options, state);
  const double temperature = options.temperature == 0 ? 1 : options.temperature, sum = left.sum_of_weights(temperature);
  std::vector<TokenProbability> result;
  for (size_t place = 0; place < left.size(); ++place)
    result.push_back({left.at(place).id, left.weight(place, temperature) / sum});
  return result;
}

int32_t draw_token(std::span<const float> logits, std::span<const int32_t> ids, const SamplingOptions& options,
                   const SamplingState& state) {
  std::vector<Candidate> memory;
  return draw_token(logits, ids, options, state, memory);
}

int32_t draw_token(std::span<const float> logits, std::span<const int32_t> ids, const SamplingOptions& options,
                   const SamplingState& state, std::vector<Candidate>& memory) {
  if (options.temperature == 0) {
    Candidate likeliest{-INFINITY, -1};
    each_candidate(logits, ids, options, state, [&](const Candidate& candidate) {
      if (likeliest.id < 0 || is_likelier(candidate, likeliest)) likeliest = candidate;
    });
    return likeliest.id;
  }
  Candidates left = narrowed(memory, logits, ids, options, state);
  if (left.size() == 1) return left.at(0).id;
  const auto generated = static_cast<uint64_t>(std::ssize(state.tokens) - state.prompt);
  const auto block = philox4x32({static_cast<uint32_t>(generated), static_cast<uint32_t>(generated >> 32), 0, 0},
                                philox_key(hash64("sample", options.seed)));
  double rest = block[0] * 0x1p-32 * left.sum_of_weights(options.temperature);
  for (size_t place = 0; place < left.size(); ++place) {
    rest -= left.weight(place, options.temperature);
    if (rest < 0) return left.at(place).id;
  }
  return left.at(left.size() - 1).id;
}

}  // namespace tutti::generate
