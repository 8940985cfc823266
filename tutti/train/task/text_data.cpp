// The text and the tokenizer of a start, and what a command needs to know of language models.
#include "tutti/io/token_cache.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/train/agreement.h"
#include "tutti/train/data/run_tokenizer.h"
#include "tutti/train/run_start.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/step_plan.h"
#include "tutti/train/task/task_kind.h"
#include "tutti/train/task/text_task.h"

namespace tutti::train {
namespace {

TextSourceOptions text_options_of(const DataConfig& data) {
  return {.text_field = data.text_field, .reads_binary = data.binary == "read"};
}

class TextData final : public TaskData {
 public:
  TextData(const Config& config, const std::string& cache_folder, const RunStart& start)
      : config_(config),
        tokenizer_(start.continues() ? open_run_tokenizer(start.path, start.saved.inputs.tokenizer)
                                     : open_tokenizer(config.data.tokenizer, config.data.paths, cache_folder,
                                                      text_options_of(config.data))),
        corpus_(open_token_corpus(config.data.paths, *tokenizer_, cache_folder, text_options_of(config.data))) {}

  std::vector<NamedHash> describe(RunInputs& inputs) const override {
    inputs.tokenizer = train::describe(*tokenizer_, config_.data.tokenizer);
    inputs.corpus = train::describe(corpus_);
    return {{"the tokenizer", inputs.tokenizer.fingerprint}, {"the text", inputs.corpus.hash}};
  }
  void describe_files(RunInputs& inputs) const override {
    inputs.corpus.files = train::describe_files(config_.data.paths);
  }
  InputChanges compare(const RunStart& start, const RunInputs& now) const override;
  std::string what_goes_on() const override { return "the text as it is and the run's own tokenizer"; }
  std::unique_ptr<Task> make_task(const RunStart& start) override {
    return std::make_unique<TextTask>(config_, std::move(tokenizer_), std::move(corpus_),
                                      start.continues() ? start.path : std::filesystem::path());
  }

 private:
  const Config config_;
  std::unique_ptr<Tokenizer> tokenizer_;  // for a resumed run, its own
  TokenCorpus corpus_;
};

InputChanges TextData::compare(const RunStart& start, const RunInputs& now) const {
  const RunInputs& then = start.saved.inputs;
  const SpecChange tokenizer = compare_tokenizer_spec(*tokenizer_, then.tokenizer, config_.data.tokenizer);
  TUTTI_CHECK(tokenizer.forbidden.empty(),
              "the run {} was started with another tokenizer:\n  {}\nuse another run.name, or --fresh to move the old "
              "run aside",
              start.path.string(), tokenizer.forbidden);
  const std::string text = corpus_change(then.corpus, now.corpus);
  InputChanges changes;
  for (const std::string& change : {tokenizer.changed, text}) {
    if (!change.empty()) changes.changed.push_back(change);
  }
  if (!tokenizer.changed.empty()) changes.notes.emplace_back("the run keeps its own tokenizer");
  if (!tokenizer.told.empty()) changes.notes.push_back(tokenizer.told);
  const std::string files = first_difference(then.corpus.files, now.corpus.files);
  if (text.empty() && !files.empty()) changes.notes.push_back(fmt::format("{}; its text gives the same rows", files));
  return changes;
}

}  // namespace

const TaskKind text_kind{
    .check_model = [](const Config& config) { build_model(config); },
    .plan = [](const Config& config, int64_t ranks,
               bool is_shared) { return StepPlanner(config).plan(ranks, is_shared); },
    .how_to_shrink =
        [](const Config& config, int64_t ranks) {
          return fmt::format(
              "(of virtual shards of {} tokens). Use a smaller model.flavor than '{}', more numerics.virtual_shards, "
              "or other degrees of parallelism; `tutti plan CONFIG -n {} --all` compares them",
              config.training.global_batch_tokens / config.numerics.virtual_shards, config.model.flavor, ranks);
        },
    .divides_model = true,
    .open_data = [](const Config& config, const std::string& cache_folder, const RunStart& start)
        -> std::unique_ptr<TaskData> { return std::make_unique<TextData>(config, cache_folder, start); },
};

}  // namespace tutti::train
