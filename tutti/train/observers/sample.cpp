// Samples text when the run has taken all its steps: sample.txt.
#include <string>

#include "tutti/comm/process_group.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/train/observer.h"
#include "tutti/train/report/report.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"
#include "tutti/train/sample.h"

namespace tutti::train {
namespace {

class Sample final : public Observer {
 public:
  using Observer::Observer;
  void on_end() override {
    if (run_.state.step < run_.config.training.steps || run_.config.validation.sample_tokens <= 0) return;
    if (run_.sharded) whole_.emplace(*run_.sharded);
    run_.survival->may_be_lost_at("sampling", run_.state.step);
    const TensorRanks& tensor = run_.tensor;
    const bool is_divided = tensor.mesh != nullptr || tensor.experts != nullptr;
    // The ranks that divide the model of rank 0 sample with it.
    if (run_.rank != 0 && !(is_divided && tensor.evaluators(run_.group)->rank() == 0)) return;
    SampleOptions sampling = sample_options(run_.config);
    sampling.mesh = tensor.mesh;
    const std::string text = sample_text(*run_.model, *run_.tokenizer, run_.config.validation.sample_prompt, sampling);
    if (!run_.log) return;
    run_.log->sample(run_.state.step, text);
    run_.note("sample: " + displayable(text));
  }

 private:
  std::optional<parallel::UnshardedScope> whole_;  // until all ranks are done: rank 0 reads alone
};

}  // namespace

TUTTI_OBSERVER(sample) = {.turn = Turn::sample, .make = make_observer<Sample>};

}  // namespace tutti::train
