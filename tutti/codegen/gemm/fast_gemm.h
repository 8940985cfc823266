// The provider of a product in fast mode: Tutti's tree, or a library with its own order of summation.
//
// Candidates are chosen by the choice engine, like cuts (gemm_choice.h), with the options in TUTTI_GEMM_CHOICE.
// `heuristic` uses a library if it has instructions that the tree does not use, which is the case for bf16 on
// processors with AMX; `measure` uses the fastest provider for each call. Ranks may choose differently, since fast mode
// does not guarantee bits.
#pragma once

#include <vector>

#include "tutti/codegen/choice/engine.h"
#include "tutti/codegen/gemm/cut.h"
#include "tutti/codegen/gemm/library.h"

namespace tutti::codegen {

struct GemmProvider {
  const GemmLibrary* library;  // null: Tutti
};

// The providers for the bucket's types: Tutti first, then the libraries that support them.
std::vector<GemmProvider> gemm_providers(const choice::BucketKey& bucket);
choice::ChoiceRules<GemmProvider> gemm_provider_rules();

// May be used by any thread.
class GemmProviderChooser {
 public:
  // `store` may be null and must outlive the chooser.
  explicit GemmProviderChooser(const choice::ChoiceOptions& options, choice::WinnerStore* store = nullptr)
      : engine_(gemm_providers, gemm_provider_rules(), options, store) {}

  // `run` computes the problem with a given provider. Returns Tutti inside a loop of the pool and while another thread
  // measures.
  GemmProvider choose(const GemmProblem& p, int threads, FunctionRef<void(const GemmProvider&)> run);
  // The provider that choose() would return now without measuring.
  GemmProvider known(const GemmProblem& p, int threads);

 private:
  choice::ChoiceEngine<GemmProvider> engine_;
};

// The chooser that gemm() uses, with the options in TUTTI_GEMM_CHOICE and winners in the cache folder.
GemmProviderChooser& process_gemm_provider_chooser();

// Computes the problem with a library, with parts of C distributed over the pool. EnvironmentError with the library's
// message when it fails.
void multiply_by(const GemmLibrary& library, const GemmProblem& p, ThreadPool& pool);

}  // namespace tutti::codegen
