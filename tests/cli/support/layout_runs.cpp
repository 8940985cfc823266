#include "tests/cli/support/layout_runs.h"

namespace tutti::test {

Output LayoutRuns::train(const std::string& name, const std::string& more, const std::string& shell) const {
  return work.tutti("train " TUTTI_SOURCE_DIR "/configs/quickstart.toml --data corpus.jsonl --data.tokenizer=byte --training.steps=" + last +
                    " --training.global_batch_tokens=512 --data.sequence_length=32 --data.validation_fraction=0.05 --lr_scheduler.warmup_steps=2 "
                    "--validation.steps=1 --validation.sample_tokens=8 --run.name=" + name + " " + flags + " " + more, shell);
}

}  // namespace tutti::test
