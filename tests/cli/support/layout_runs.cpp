#include "tests/cli/support/layout_runs.h"

namespace tutti::test {

std::string LayoutRuns::command(const std::string& name, const std::string& more) const {
  return "train " TUTTI_SOURCE_DIR
         "/configs/quickstart.toml --data corpus.jsonl --data.tokenizer=byte --training.steps=" +
         last +
         " --training.global_batch_tokens=512 --data.sequence_length=32 --data.validation_fraction=0.05 "
         "--lr_scheduler.warmup_steps=2 "
         "--validation.steps=1 --validation.sample_tokens=8 --run.name=" +
         name + " " + flags + " " + more;
}

Output LayoutRuns::train(const std::string& name, const std::string& more, const std::string& shell) const {
  return work.tutti(command(name, more), shell);
}
int LayoutRuns::start(const std::string& name, const std::string& more) const {
  return work.start(command(name, more));
}

}  // namespace tutti::test
