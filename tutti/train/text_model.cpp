#include "tutti/train/text_model.h"

#include <bit>
#include <limits>

#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"
#include "tutti/generate/packaged_forward.h"
#include "tutti/io/model_file.h"
#include "tutti/io/token_stream.h"
#include "tutti/models/decoder.h"
#include "tutti/models/decoder_config.h"
#include "tutti/models/decoder_plan.h"
#include "tutti/models/generation_defaults.h"
#include "tutti/models/package_file.h"
#include "tutti/models/published_model.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/numerics.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/data/run_tokenizer.h"
#include "tutti/train/quantize_model.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/sample.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/tensor_ranks.h"

namespace tutti::train {
namespace {

constexpr const char* kRunConfig = "config.resolved.toml";

struct RunNumerics {
  explicit RunNumerics(const Config& config)
      : mode(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict),
        grain(config.numerics.token_grain) {}
  NumericsScope mode;
  TokenGrainScope grain;
};

// Nothing is summed over tokens here, so they may be cut anywhere.
// `is_quantized`: the weights of linear layers are blocks or codes.
void check_ranks(models::LanguageModel& model, const Config& config, int64_t ranks, const TextModelOptions& options,
                 bool is_quantized) {
  TUTTI_CHECK(
      options.divides_products || options.divides_experts,
      "generate: {} ranks divide neither products nor experts of the model; let them divide one, or use one rank",
      ranks);
  // Quantized products can be divided anywhere; what else a file holds is known when it is loaded.
  if (options.divides_products && is_quantized) models::check_divided_heads(model.config(), ranks);
  else if (options.divides_products && config.numerics.mode == "strict")
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

dist::Mesh divide(models::LanguageModel& model, const Config& config, const TextModelOptions& options,
                  bool is_quantized) {
  if (!options.is_divided()) return {};
  const int64_t ranks = options.group->size();
  check_ranks(model, config, ranks, options, is_quantized);
  ParallelismConfig division;
  division.tensor_parallel_degree = options.divides_products ? ranks : 1;
  division.expert_parallel_degree = options.divides_experts ? ranks : 1;
  division.enable_sequence_parallel = false;
  return divide_model(model, division, options.group).mesh;
}

void quantize(TextModel& text, const TextModelOptions& options) {
  QuantizeSettings settings = options.quantize;
  if (options.is_divided() && options.group->rank() != 0) settings.report = nullptr;
  quantize_model(*text.model, text.tokenizer.get(), settings, text.context);
}

bool is_packaged(const std::filesystem::path& path) { return std::filesystem::exists(path / models::kPackageFile); }

void open_package(const std::filesystem::path& path, const TextModelOptions& options, TextModel& text) {
  TUTTI_CHECK(!options.quantize.is_wanted() && !options.keep_blocks && !options.compile && !options.is_divided() &&
                  options.dtype == DType::f32 && !options.cache_dtype,
              "generate: {} is a packaged model, whose dtypes and kernels were chosen when it was packaged; leave out "
              "flags of the model, and run it on one rank",
              path.string());
  text.packaged = generate::PackagedForward::open((path / models::kPackageFile).string());
}

// The files beside a package describe a model without weights.
void check_package(const std::filesystem::path& path, const char* description, const TextModel& text) {
  TUTTI_CHECK(text.packaged->vocab_size() == text.model->vocab_size(),
              "generate: the package in {} gives logits of {} tokens, and {} beside it describes {}; they are "
              "of two models",
              path.string(), text.packaged->vocab_size(), description, text.model->vocab_size());
}

void open_packaged_run(const std::filesystem::path& run, const Config& config, const TextModelOptions& options,
                       TextModel& text) {
  open_package(run, options, text);
  check_package(run, kRunConfig, text);
  text.tokenizer = open_packaged_run_tokenizer(run, config.data.tokenizer);
}

TextModel open_run(const std::filesystem::path& run, const TextModelOptions& options) {
  const Config config = load_config(run / kRunConfig);
  const bool has_package = is_packaged(run), is_quantized = options.quantize.is_wanted();
  const auto checkpoint = has_package ? std::nullopt : newest_checkpoint(run / "checkpoint");
  TUTTI_CHECK(has_package || checkpoint.has_value(), "{} holds no complete checkpoint; train it first", run.string());
  TextModel text;
  text.model = build_model(config, run);
  if (has_package) open_packaged_run(run, config, options, text);
  else text.tokenizer = open_run_tokenizer(run, read_state(*checkpoint).train.inputs.tokenizer);
  text.numerics = std::make_shared<RunNumerics>(config);
  if (!has_package && !is_quantized) text.mesh = divide(*text.model, config, options, false);
  if (!has_package) load_model(*checkpoint, *text.model);
  const SampleOptions sample = sample_options(config);
  text.sampling = {.temperature = sample.temperature, .top_k = sample.top_k, .seed = sample.seed};
  if (sample.max_tokens > 0) text.max_tokens = sample.max_tokens;  // a run may write no sample
  text.prompt = config.validation.sample_prompt;
  text.ends = {document_frame(*text.tokenizer).end};
  text.context = options.context == 0 ? sample.context : std::min(options.context, sample.context);
  if (has_package) text.context = std::min(text.context, text.packaged->context());
  text.slides = true;
  text.forward = sample.forward;
  // Codes are made of whole weights, and divided then.
  if (is_quantized) quantize(text, options), text.mesh = divide(*text.model, config, options, true);
  return text;
}

TextModel open_published_text(const std::filesystem::path& path, const TextModelOptions& options) {
  TextModel text;
  text.context = options.context == 0 ? kUsualContext : options.context;
  const bool is_quantized = options.quantize.is_wanted();
  const bool has_package = is_packaged(path);
  if (has_package) {
    open_package(path, options, text);
    text.context = std::min(text.context, text.packaged->context());
  }
  const auto divide_it = [&](models::LanguageModel& model) {
    text.mesh = divide(model, Config(), options, is_quantized || options.keep_blocks || holds_codes(path));
  };
  ReadyModel ready = has_package ? open_without_weights(path, text.context)
                     : options.is_divided() && !is_quantized
                         ? open_divided(path, text.context, options.dtype, options.keep_blocks, divide_it)
                         : open_published(path, text.context, options.dtype, options.keep_blocks);
  text.model = std::move(ready.model);
  if (has_package) check_package(path, "config.json", text);
  text.tokenizer = std::move(ready.tokenizer);
  if (is_quantized) quantize(text, options), divide_it(*text.model);
  text.chat = read_published_chat(path.string());
  const models::GenerationDefaults defaults = models::generation_defaults(ModelFile(path), *text.tokenizer);
  text.sampling = {.temperature = defaults.temperature.value_or(0.7),
                   .top_k = defaults.top_k.value_or(40),
                   .top_p = defaults.top_p.value_or(1),
                   .min_p = defaults.min_p.value_or(0),
                   .repetition_penalty = defaults.repetition_penalty.value_or(1)};
  if (defaults.do_sample == false) text.sampling.temperature = 0;
  text.max_tokens = defaults.max_new_tokens.value_or(text.max_tokens);
  text.ends = std::move(ready.ends);
  text.suppressed = defaults.suppress_tokens;
  text.stops = defaults.stop_strings;
  return text;
}

}  // namespace

std::vector<int32_t> TextModel::encode(const std::string& text) const {
  std::vector<int32_t> ids;
  if (frames_documents_) ids.push_back(document_frame(*tokenizer).start);
  tokenizer->encode_into(text, ids, {.add_special_tokens = !frames_documents_, .parse_special = true});
  if (ids.empty()) ids.push_back(document_frame(*tokenizer).start);
  return ids;
}

std::string TextModel::decode(std::span<const int32_t> ids) const {
  return tokenizer->decode(frames_documents_ ? ids.subspan(1) : ids, true);
}

generate::EngineOptions TextModel::engine_options() const {
  return {.context = context,
          .cache_dtype = cache_dtype,
          .forward = forward,
          .compile = compile,
          .packaged = packaged,
          .mesh = mesh};
}

TextModel open_text_model(const std::filesystem::path& path, const TextModelOptions& options) {
  constexpr int64_t most = 1 << 22;
  TUTTI_CHECK(options.context >= 0 && options.context <= most, "a context of {} tokens; expected 1 to {}",
              options.context, most);
  TUTTI_CHECK(std::filesystem::exists(path), "generate: {} does not exist; expected a run folder or a published model",
              path.string());
  const bool published = is_published(path);
  TUTTI_CHECK(published || !options.keep_blocks,
              "generate: {} is a run, whose weights are not quantized; leave out --quantized", path.string());
  TUTTI_CHECK(
      !options.quantize.is_wanted() || !options.keep_blocks,
      "generate: --quantize makes codes of numbers and --quantized keeps the blocks of a file; give one of them");
  if (options.quantize.is_wanted()) check(options.quantize);
  TextModel text = published ? open_published_text(path, options) : open_run(path, options);
  text.frames_documents_ = !published;
  text.compile = options.compile;
  text.cache_dtype = options.cache_dtype;
  text.name = name_of_path(path);
  return text;
}

void check_text_model_ranks(const std::filesystem::path& path, int64_t ranks, const TextModelOptions& options) {
  if (ranks == 1) return;
  if (is_published(path))
    return check_ranks(*std::make_unique<models::Decoder>(models::published_description(path), 1), Config(), ranks,
                       options, options.keep_blocks || options.quantize.is_wanted() || holds_codes(path));
  const Config config = load_config(path / kRunConfig);
  const NumericsScope numerics(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict);
  check_ranks(*build_model(config, path), config, ranks, options, options.quantize.is_wanted());
}

}  // namespace tutti::train
