// The options of a choice. They are defined here once; every engine takes this struct and none has options of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::codegen::choice {

// heuristic: the candidate that the rules rank first. measure: the fastest of the first few, timed on the first call.
enum class ChoiceMode : uint8_t { heuristic, measure };

// The number of candidates to measure: at least 1, or all of them. No number means "all".
class CandidateLimit {
 public:
  static constexpr CandidateLimit all() { return CandidateLimit(Kind::all, 0); }
  // UsageError: count < 1.
  static CandidateLimit at_most(int64_t count);

  constexpr int64_t of(int64_t candidates) const {
    return kind_ == Kind::all ? candidates : std::min(count_, candidates);
  }
  std::string text() const;  // "10" or "all"
  bool operator==(const CandidateLimit&) const = default;

 private:
  enum class Kind : uint8_t { count, all };
  constexpr CandidateLimit(Kind kind, int64_t count) : kind_(kind), count_(count) {}

  Kind kind_;
  int64_t count_;
};

struct ChoiceOptions {
  ChoiceMode mode = ChoiceMode::heuristic;
  bool deterministic = false;  // never by timings, whatever `mode` says
  CandidateLimit max_candidates = CandidateLimit::at_most(10);
  int64_t samples = 5;          // timed runs of a candidate; their median counts
  int64_t budget_ms = 500;      // for measuring one call; what is not reached is not chosen
  int64_t memo_entries = 4096;  // calls whose choice stays in memory
  uint64_t seed = 0;            // of the order in which candidates take turns

  bool may_measure() const { return mode == ChoiceMode::measure && !deterministic; }
  bool operator==(const ChoiceOptions&) const = default;
};

// "name=value,name=value"; a word alone is the mode; "" is the defaults. `where` (a variable or key) begins each
// message. UsageError listing the options when a name is unknown, and what is legal when a value is not.
ChoiceOptions parse_choice_options(std::string_view text, std::string_view where);

// All of them in that notation.
std::string to_text(const ChoiceOptions& options);

}  // namespace tutti::codegen::choice
