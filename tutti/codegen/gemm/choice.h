// Which cut a GEMM takes: the choice engine over the cuts of gemm_cut.h.
//
// heuristic, the default, is usual_cut(), worked out in place: no table is asked. measure asks the engine, for products
// that are worth it; it runs candidates on the caller's own operands, which is safe because every cut writes all of C
// with the same bits. Therefore ranks may differ in their cuts, and timings may decide in strict mode.
#pragma once

#include <optional>

#include "tutti/codegen/choice/engine.h"
#include "tutti/codegen/gemm/cut.h"

namespace tutti::codegen {

// Multiply-adds from which gemm() asks a chooser: some 10 us of work beside a look-up of 0.1 us. Smaller ones take the
// usual cut unasked.
inline constexpr int64_t kWorthChoosing = int64_t{1} << 20;
inline bool is_worth_choosing(const GemmProblem& p) { return p.m * p.n * p.k * p.batch.count >= kWorthChoosing; }

// The full description of the problem that a cut may depend on.
choice::Signature gemm_signature(const GemmProblem& p, int threads);

// All cuts with tiles that exist for the bucket's instruction set, and the rules that select those valid for a call.
std::vector<GemmCut> gemm_cuts(const choice::BucketKey& bucket);
choice::ChoiceRules<GemmCut> gemm_choice_rules();

// The time of one run in microseconds; infinity for a candidate that cannot run here, which is then skipped without
// failing the product.
double microseconds_of(FunctionRef<void()> run);

// May be used by any thread.
class GemmChooser {
 public:
  // `store` may be null and must outlive the chooser.
  explicit GemmChooser(const choice::ChoiceOptions& options, choice::WinnerStore* store = nullptr)
      : engine_(gemm_cuts, gemm_choice_rules(), options, store) {}

  // `run` computes the problem with a given cut. Returns usual_cut() inside a loop of the pool (where other work would
  // be timed as well) and while another thread measures the same call (which may need the pool that this thread holds).
  GemmCut choose(const GemmProblem& p, int threads, FunctionRef<void(const GemmCut&)> run) {
    return engine_.options().may_measure() ? measured(p, threads, run) : usual_cut(p);
  }
  // The cut that choose() would return now without measuring.
  GemmCut known(const GemmProblem& p, int threads);

  choice::ChoiceEngine<GemmCut>& engine() { return engine_; }

 private:
  GemmCut measured(const GemmProblem& p, int threads, FunctionRef<void(const GemmCut&)> run);

  choice::ChoiceEngine<GemmCut> engine_;
};

// The options in TUTTI_GEMM_CHOICE. UsageError when it is malformed.
choice::ChoiceOptions gemm_choice_options();
// The store of winners in the cache folder for this machine and code and the candidates described by `what`; null when
// nothing is measured.
choice::WinnerStore* gemm_winner_store(const std::string& what);

// The chooser that gemm() uses, with process-wide options and cached winners.
GemmChooser& process_gemm_chooser();

}  // namespace tutti::codegen
