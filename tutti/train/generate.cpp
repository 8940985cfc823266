#include "tutti/train/generate.h"

#include <bit>

#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"
#include "tutti/io/model_file.h"
#include "tutti/io/token_stream.h"
#include "tutti/models/decoder_config.h"
#include "tutti/models/generation_defaults.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/numerics.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/data/run_tokenizer.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/sample.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/tensor_ranks.h"

namespace tutti::train {

namespace {

// Nothing is summed over tokens here, so they may be cut anywhere.
void check(models::LanguageModel& model, const Config& config, int64_t ranks, const GenerateOptions& options) {
  TUTTI_CHECK(
      options.divides_products || options.divides_experts,
      "generate: {} ranks divide neither products nor experts of the model; let them divide one, or use one rank",
      ranks);
  if (options.divides_products && config.numerics.mode == "strict")
    model.check_tensor_parallel(ranks, 0, config.numerics.token_grain);
  if (!options.divides_experts) return;
  const std::vector<nn::NamedMoE> layers = nn::moe_layers(model);
  TUTTI_CHECK(!layers.empty(), "generate: the model {} has no experts for {} ranks to divide", model.config().name(),
              ranks);
  for (const nn::NamedMoE& layer : layers) {
    const int64_t experts = layer.layer->options().router.num_experts;
    TUTTI_CHECK(experts % ranks == 0 && std::has_single_bit(static_cast<uint64_t>(ranks)),
                "generate: {} ranks cannot divide the {} experts of '{}'; expected a power of two that divides them",
                ranks, experts, layer.name);
  }
}

TensorRanks divided(models::LanguageModel& model, const Config& config, const GenerateOptions& options) {
  const int64_t ranks = options.group == nullptr ? 1 : options.group->size();
  if (ranks == 1) return {};
  check(model, config, ranks, options);
  ParallelismConfig division;
  division.tensor_parallel_degree = options.divides_products ? ranks : 1;
  division.expert_parallel_degree = options.divides_experts ? ranks : 1;
  division.enable_sequence_parallel = false;
  return divide_model(model, division, options.group);
}

}  // namespace

void check_generate(const std::filesystem::path& run, int64_t ranks, const GenerateOptions& options) {
  const Config config = load_config(run / "config.resolved.toml");
  const NumericsScope numerics(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict);
  if (ranks > 1) check(*build_model(config, run), config, ranks, options);
}

std::string generate_text(const std::filesystem::path& run, const GenerateOptions& options) {
  const Config config = load_config(run / "config.resolved.toml");
  const auto checkpoint = newest_checkpoint(run / "checkpoint");
  TUTTI_CHECK(checkpoint.has_value(), "{} holds no complete checkpoint; train it first", run.string());
  const auto tokenizer = open_run_tokenizer(run, read_state(*checkpoint).train.inputs.tokenizer);
  const NumericsScope numerics(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict);
  const TokenGrainScope grain(config.numerics.token_grain);
  const auto model = build_model(config, run);
  const TensorRanks ranks = divided(*model, config, options);
  load_model(*checkpoint, *model);
  SampleOptions sample = sample_options(config);
  sample.mesh = ranks.mesh;
  const int64_t usual =
      sample.max_tokens > 0 ? sample.max_tokens : SampleOptions{}.max_tokens;  // a run may write no sample
  sample.max_tokens = options.max_tokens.value_or(usual);
  sample.temperature = options.temperature.value_or(sample.temperature);
  sample.top_k = options.top_k.value_or(sample.top_k);
  sample.seed = options.seed.value_or(sample.seed);
  return sample_text(*model, *tokenizer, options.prompt.value_or(config.validation.sample_prompt), sample);
}

std::string generate_with_published(const std::filesystem::path& path, const GenerateOptions& options) {
  TUTTI_CHECK(options.group == nullptr || options.group->size() == 1,
              "generate: {} is a published model, which one rank runs; leave out -n", path.string());
  TUTTI_CHECK(options.prompt.has_value(), "generate: {} is a published model; give it a text to continue by --prompt",
              path.string());
  constexpr int64_t most_tokens = 1 << 20;
  SampleOptions sample{.max_tokens = options.max_tokens.value_or(SampleOptions{}.max_tokens)};
  TUTTI_CHECK(sample.max_tokens >= 0 && sample.max_tokens <= most_tokens, "generate: {} tokens; expected 0 to {}",
              sample.max_tokens, most_tokens);
  sample.temperature = options.temperature.value_or(sample.temperature);
  sample.top_k = options.top_k.value_or(sample.top_k);
  sample.seed = options.seed.value_or(sample.seed);
  const std::unique_ptr<Tokenizer> tokenizer = open_published_tokenizer(path);
  // The prompt is the whole text that the model continues: its markers are meant.
  std::vector<int32_t> tokens = tokenizer->encode(*options.prompt, {.add_special_tokens = true, .parse_special = true});
  if (tokens.empty()) tokens.push_back(document_frame(*tokenizer).start);
  sample.context = std::ssize(tokens) + sample.max_tokens;
  const ReadyModel ready = open_published(path, sample.context);
  const std::vector<int32_t> ends = models::generation_defaults(ModelFile(path), *tokenizer).eos_token_ids;
  continue_tokens(*ready.model, *tokenizer, tokens, ends, sample);
  return tokenizer->decode(tokens, true);
}

}  // namespace tutti::train
