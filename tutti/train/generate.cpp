#include "tutti/train/generate.h"

#include "tutti/core/error.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/numerics.h"
#include "tutti/train/checkpoint.h"
#include "tutti/train/config_toml.h"
#include "tutti/train/run_model.h"
#include "tutti/train/run_tokenizer.h"
#include "tutti/train/sample.h"

namespace tutti::train {

std::string generate_text(const std::filesystem::path& run, const GenerateOptions& options) {
  const Config config = load_config(run / "config.resolved.toml");
  const auto checkpoint = newest_checkpoint(run / "checkpoint");
  TUTTI_CHECK(checkpoint.has_value(), "{} holds no complete checkpoint; train it first", run.string());
  const auto tokenizer = open_run_tokenizer(run, read_state(*checkpoint).train.inputs.tokenizer);
  const NumericsScope numerics(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict);
  const TokenGrainScope grain(config.numerics.token_grain);
  const auto model = build_model(config);
  load_model(*checkpoint, *model);
  SampleOptions sample = sample_options(config);
  const int64_t usual = sample.max_tokens > 0 ? sample.max_tokens : SampleOptions{}.max_tokens;  // a run may write no sample
  sample.max_tokens = options.max_tokens.value_or(usual);
  sample.temperature = options.temperature.value_or(sample.temperature);
  sample.top_k = options.top_k.value_or(sample.top_k);
  sample.seed = options.seed.value_or(sample.seed);
  return sample_text(*model, *tokenizer, options.prompt.value_or(config.validation.sample_prompt), sample);
}

}  // namespace tutti::train
