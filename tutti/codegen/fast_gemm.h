// Who computes a product in fast mode: Tutti's tree, or a library whose sums have an order of their own.
//
// The candidates go through the choice engine as cuts do (gemm_choice.h), under the same TUTTI_GEMM_CHOICE. heuristic takes
// a library where it has instructions that the tree does not use, which is bf16 on processors that multiply it; measure
// takes whoever is fastest for the call. Ranks may differ in that: fast mode promises no bits.
#pragma once

#include <vector>

#include "tutti/codegen/choice/engine.h"
#include "tutti/codegen/gemm_cut.h"
#include "tutti/codegen/gemm_library.h"

namespace tutti::codegen {

struct GemmProvider {
  const GemmLibrary* library;  // null: Tutti
};

// Of the bucket's types: Tutti first, then the libraries that multiply them.
std::vector<GemmProvider> gemm_providers(const choice::BucketKey& bucket);
choice::ChoiceRules<GemmProvider> gemm_provider_rules();

// Any thread.
class GemmProviderChooser {
 public:
  // `store` may be null and outlives the chooser.
  explicit GemmProviderChooser(const choice::ChoiceOptions& options, choice::WinnerStore* store = nullptr)
      : engine_(gemm_providers, gemm_provider_rules(), options, store) {}

  // `run` computes the problem with a provider. Tutti inside a loop of the pool and while another thread measures.
  GemmProvider choose(const GemmProblem& p, int threads, FunctionRef<void(const GemmProvider&)> run);
  // What choose() would take now without measuring.
  GemmProvider known(const GemmProblem& p, int threads);

 private:
  choice::ChoiceEngine<GemmProvider> engine_;
};

// That of gemm(): options of TUTTI_GEMM_CHOICE, winners in the cache folder.
GemmProviderChooser& process_gemm_provider_chooser();

// The problem by a library, parts of C shared out over the pool. EnvironmentError: what the library complains of.
void multiply_by(const GemmLibrary& library, const GemmProblem& p, ThreadPool& pool);

}  // namespace tutti::codegen
