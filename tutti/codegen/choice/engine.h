// The choice engine: which of many candidates serves a call.
//
// 1. The candidates of the call's bucket are walked once. Each is tested by the predicates, from cheapest to most
// expensive, up
//    to the first that fails; the classifier sorts the rest into classes (or drops them). The result is kept by the
//    full signature.
// 2. What is left is ranked by the rules' cost, which looks at the call and never at a clock. heuristic: the first
// wins.
// 3. measure: the first max_candidates are timed and the winner is kept on disk, so that the next process does not.
// 4. The decision is kept by the full signature; a repeated call takes a look-up and calls no predicate.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/codegen/choice/candidate_space.h"
#include "tutti/codegen/choice/fastest.h"
#include "tutti/codegen/choice/memo_table.h"
#include "tutti/codegen/choice/options.h"
#include "tutti/codegen/choice/winner_store.h"

namespace tutti::codegen::choice {

template <class Candidate>
struct Predicate {
  std::string name;
  std::function<bool(const Candidate&, const Signature&)> holds;
};

// All of these are called from any thread and must depend on nothing but their arguments.
template <class Candidate>
struct ChoiceRules {
  std::vector<Predicate<Candidate>> predicates;                     // from cheapest to most expensive
  std::function<int(const Candidate&, const Signature&)> classify;  // the class, below signature.classes; -1: drop it
  std::function<double(const Candidate&, const Signature&)> cost;   // the smallest is chosen; equal: the earlier one
  std::function<std::string(const Candidate&)> name;                // unique in a bucket, the same in every process
};

// The candidates of a call's bucket that can serve it: indices into `bucket`, by class.
template <class Candidate>
struct Partition {
  std::span<const Candidate> bucket;
  std::vector<std::vector<uint32_t>> classes;
  std::vector<int64_t> rejected;  // by each predicate
};

struct ChoiceStatistics {
  int64_t passes = 0;                                            // walks over a bucket
  int64_t classified = 0;                                        // calls of the classifier
  int64_t memo_hits = 0;                                         // decisions found in memory
  int64_t disk_hits = 0;                                         // and on disk
  int64_t measured = 0;                                          // candidates that were run and timed
  std::vector<std::pair<std::string, int64_t>> predicate_calls;  // in order

  int64_t all_predicate_calls() const {
    return std::accumulate(predicate_calls.begin(), predicate_calls.end(), int64_t{0},
                           [](int64_t sum, const auto& p) { return sum + p.second; });
  }
};

// Runs a candidate once and returns its microseconds; infinity when it cannot run.
template <class Candidate>
using RunCandidate = FunctionRef<double(const Candidate&)>;

// Gives every rank the bytes of rank 0: calls `mine` on rank 0, which decides there, and returns its result on all
// ranks.
using ExchangeWinner = std::function<std::string(const std::function<std::string()>& mine)>;

// Any thread.
template <class Candidate>
class ChoiceEngine {
 public:
  // `store` may be null and outlives the engine.
  ChoiceEngine(std::function<std::vector<Candidate>(const BucketKey&)> candidates, ChoiceRules<Candidate> rules,
               const ChoiceOptions& options, WinnerStore* store = nullptr)
      : options_(options),
        rules_(std::move(rules)),
        space_(std::move(candidates)),
        store_(store),
        partitions_(options.memo_entries),
        winners_(options.memo_entries),
        predicate_calls_(rules_.predicates.size()) {}

  std::shared_ptr<const Partition<Candidate>> partition(const Signature& call) {
    return partitions_.get(call, [&] { return std::make_shared<const Partition<Candidate>>(walk(call)); });
  }

  // UsageError when no candidate can serve the call; it says what each predicate rejected. Errors of `run` pass through
  // and leave no decision. Threads that ask for one call wait for one of them to decide.
  Candidate choose(const Signature& call, RunCandidate<Candidate> run) {
    if (std::optional<Candidate> known = find(call)) return *known;
    return winners_.get(call, [&] { return decide(call, run); });
  }
  // The same, but nothing while another thread is deciding.
  std::optional<Candidate> choose_unless_busy(const Signature& call, RunCandidate<Candidate> run) {
    if (std::optional<Candidate> known = find(call)) return known;
    return winners_.get_unless_busy(call, [&] { return decide(call, run); });
  }
  // The decision of an earlier call.
  std::optional<Candidate> find(const Signature& call) {
    std::optional<Candidate> known = winners_.find(call);
    if (known) memo_hits_.fetch_add(1, std::memory_order_relaxed);
    return known;
  }

  // Collective: what rank 0 chooses for the call, on all ranks, now and later. Holds no lock while ranks exchange.
  // UsageError on a rank that cannot run rank 0's choice.
  Candidate adopt(const Signature& call, RunCandidate<Candidate> run, const ExchangeWinner& exchange) {
    const std::string name = exchange([&] { return rules_.name(choose(call, run)); });
    const std::shared_ptr<const Partition<Candidate>> mine = partition(call);
    const std::optional<Candidate> winner = named(*mine, name);
    TUTTI_CHECK(winner,
                "choice: rank 0 chose '{}' for [{}], which is not among the {} candidates that can serve it here; "
                "run the same build on the same kind of processor on all ranks",
                name, call.text(), ranked(*mine, call).size());
    winners_.put(call, *winner);
    return *winner;
  }

  ChoiceStatistics statistics() const {
    ChoiceStatistics s{passes_, classified_, memo_hits_, disk_hits_, measured_, {}};
    for (size_t p = 0; p < rules_.predicates.size(); ++p)
      s.predicate_calls.emplace_back(rules_.predicates[p].name, predicate_calls_[p].load());
    return s;
  }
  const ChoiceOptions& options() const { return options_; }

 private:
  Partition<Candidate> walk(const Signature& call) {
    const size_t predicates = rules_.predicates.size();
    Partition<Candidate> found{space_.of(bucket_of(call)), std::vector<std::vector<uint32_t>>(call.classes),
                               std::vector<int64_t>(predicates)};
    std::vector<int64_t> calls(predicates);
    int64_t classified = 0;
    for (uint32_t i = 0; i < found.bucket.size(); ++i) {
      const Candidate& candidate = found.bucket[i];
      size_t p = 0;
      for (; p < predicates; ++p) {
        ++calls[p];
        if (!rules_.predicates[p].holds(candidate, call)) break;
      }
      if (p < predicates) {
        ++found.rejected[p];
        continue;
      }
      ++classified;
      const int index = rules_.classify(candidate, call);
      if (index < 0) continue;
      TUTTI_ASSERT(index < call.classes, "choice: class {} of {}", index, call.classes);
      found.classes[static_cast<size_t>(index)].push_back(i);
    }
    ++passes_;
    classified_ += classified;
    for (size_t p = 0; p < predicates; ++p) predicate_calls_[p] += calls[p];
    return found;
  }

  // Best first.
  std::vector<uint32_t> ranked(const Partition<Candidate>& found, const Signature& call) const {
    std::vector<std::pair<double, uint32_t>> costs;
    for (const std::vector<uint32_t>& members : found.classes)
      for (const uint32_t i : members) costs.emplace_back(rules_.cost(found.bucket[i], call), i);
    std::sort(costs.begin(), costs.end());
    std::vector<uint32_t> order;
    for (const auto& [cost, i] : costs) order.push_back(i);
    return order;
  }

  std::optional<Candidate> named(const Partition<Candidate>& found, const std::string& name) const {
    for (const std::vector<uint32_t>& members : found.classes)
      for (const uint32_t i : members)
        if (rules_.name(found.bucket[i]) == name) return found.bucket[i];
    return std::nullopt;
  }

  std::string why_none(const Partition<Candidate>& found) const {
    std::string text;
    for (size_t p = 0; p < rules_.predicates.size(); ++p)
      text += fmt::format("{}{} by '{}'", p ? ", " : "", found.rejected[p], rules_.predicates[p].name);
    return text;
  }

  Candidate decide(const Signature& call, RunCandidate<Candidate> run) {
    const std::shared_ptr<const Partition<Candidate>> found = partition(call);
    std::vector<uint32_t> order = ranked(*found, call);
    TUTTI_CHECK(!order.empty(), "choice: none of {} candidates can serve [{}]; rejected: {}", found->bucket.size(),
                call.text(), why_none(*found));
    if (!options_.may_measure()) return found->bucket[order.front()];
    if (store_) {
      const std::optional<std::string> name = store_->read(call);
      if (const std::optional<Candidate> winner = name ? named(*found, *name) : std::nullopt) {
        ++disk_hits_;
        return *winner;
      }
    }
    order.resize(static_cast<size_t>(options_.max_candidates.of(static_cast<int64_t>(order.size()))));
    measured_ += static_cast<int64_t>(order.size());
    const Candidate winner =
        found->bucket[order[fastest(order.size(), options_, [&](size_t i) { return run(found->bucket[order[i]]); })]];
    if (store_) store_->write(call, rules_.name(winner));
    return winner;
  }

  const ChoiceOptions options_;
  const ChoiceRules<Candidate> rules_;
  CandidateSpace<Candidate> space_;
  WinnerStore* const store_;
  MemoTable<std::shared_ptr<const Partition<Candidate>>> partitions_;
  MemoTable<Candidate> winners_;
  std::atomic<int64_t> passes_ = 0, classified_ = 0, memo_hits_ = 0, disk_hits_ = 0, measured_ = 0;
  std::vector<std::atomic<int64_t>> predicate_calls_;
};

}  // namespace tutti::codegen::choice
