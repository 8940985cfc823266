// What a trace records is what the function did on one rank: it may ask for the rank, the mesh or the groups of a rank,
// and with a distributed argument the graph has the sizes of the part of that rank. So ranks that are threads share
// kernels, but neither traces nor what decides about them (which sizes vary, how many kinds there are, when a call is
// verified): as in processes of their own, these follow from the calls of the rank alone, and ranks that make the same
// calls make the same decisions.
#include "tutti/graph/compiled_function.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "tutti/graph/compiled_core.h"
#include "tutti/graph/trace.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::graph {
namespace {

void check(const CompileOptions& options) {
  TUTTI_CHECK(options.recompile_limit >= 1, "compile: recompile_limit is {}; expected at least 1",
              options.recompile_limit);
  TUTTI_CHECK(
      options.activation_memory_budget >= 0 && options.activation_memory_budget <= 1,
      "compile: activation_memory_budget is {}; expected 0 (compute again what may be) to 1 (keep what costs time)",
      options.activation_memory_budget);
  TUTTI_CHECK(options.verify >= 0, "compile: verify is {}; expected 0 (never) or n (every n-th call)", options.verify);
  TUTTI_CHECK(options.collectives.under_way_bytes >= 0 && options.collectives.bucket_bytes >= 0,
              "compile: collectives.under_way_bytes is {}, bucket_bytes {}; expected 0 (off) or more",
              options.collectives.under_way_bytes, options.collectives.bucket_bytes);
  TUTTI_CHECK(options.jobs >= 0, "compile: jobs is {}; expected 0 (all cores) or more", options.jobs);
}

}  // namespace

// The cores of one function. An entry goes with its rank, so that its address names no later one.
class CompiledFunction::Cores {
 public:
  CompiledCore* find(const RankOfCores& rank) const {
    const std::shared_lock lock(mutex_);
    for (const auto& [of, core] : list_) {
      if (of == &rank) return core.get();
    }
    return nullptr;
  }
  // The core of the rank, and whether it is new: another thread of the rank may have been first.
  std::pair<CompiledCore*, bool> add(const RankOfCores& rank, const CompileOptions& options, bool may_hold) {
    const std::unique_lock lock(mutex_);
    for (const auto& [of, core] : list_) {
      if (of == &rank) return {core.get(), false};
    }
    return {list_.emplace_back(&rank, std::make_unique<CompiledCore>(options, may_hold)).second.get(), true};
  }
  void drop(const RankOfCores& rank) {
    std::unique_ptr<CompiledCore> dropped;  // destroyed without the lock: it may wait for a thread that compiles
    const std::unique_lock lock(mutex_);
    const auto at = std::find_if(list_.begin(), list_.end(), [&](const auto& entry) { return entry.first == &rank; });
    if (at == list_.end()) return;
    dropped = std::move(at->second);
    list_.erase(at);
  }

 private:
  mutable std::shared_mutex mutex_;
  std::vector<std::pair<const RankOfCores*, std::unique_ptr<CompiledCore>>> list_;
};

// In the slots of a rank: the functions that it called. What it compiled of them goes with it.
class CompiledFunction::RankOfCores {
 public:
  ~RankOfCores() {
    for (const std::weak_ptr<Cores>& weak : called_) {
      if (const std::shared_ptr<Cores> cores = weak.lock()) cores->drop(*this);
    }
  }
  void add(const std::shared_ptr<Cores>& cores) {
    const std::lock_guard lock(mutex_);
    if (called_.size() >= sweep_at_) {
      std::erase_if(called_, [](const auto& weak) { return weak.expired(); });
      sweep_at_ = std::max(kSweepAt, 2 * called_.size());
    }
    called_.push_back(cores);
  }

 private:
  static constexpr size_t kSweepAt = 64;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Cores>> called_;
  size_t sweep_at_ = kSweepAt;
};

CompiledFunction::CompiledFunction(CompileOptions options, bool may_hold)
    : options_(std::move(options)), may_hold_(may_hold), cores_(std::make_shared<Cores>()) {
  check(options_);
}
CompiledFunction::~CompiledFunction() = default;

CallOutcome CompiledFunction::call(const Leaves& arguments, TraceFn trace, FunctionRef<Rerun()> rerun) const {
  return here().call(arguments, trace, rerun);
}
CompileStatistics CompiledFunction::statistics() const { return here().statistics(); }
std::string CompiledFunction::explain() const { return here().explain(); }
bool CompiledFunction::calls_inline() { return Trace::current() != nullptr; }

// It lives as long as both the function and the rank.
CompiledCore& CompiledFunction::here() const {
  auto& rank = RankContext::current().slot<RankOfCores>();
  if (CompiledCore* core = cores_->find(rank)) return *core;
  const auto [core, is_new] = cores_->add(rank, options_, may_hold_);
  if (is_new) rank.add(cores_);
  return *core;
}

}  // namespace tutti::graph
