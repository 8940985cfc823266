#include "tutti/train/quantize_model.h"

#include <algorithm>
#include <optional>

#include "tutti/core/error.h"
#include "tutti/io/text_files.h"
#include "tutti/io/text_source.h"
#include "tutti/nn/input_recorder.h"
#include "tutti/train/score_text.h"

namespace tutti::train {
namespace {

constexpr int64_t kLongestWindow = 512;  // of calibration

std::vector<int32_t> calibration_of(const Tokenizer& tokenizer, const QuantizeSettings& settings) {
  std::vector<int32_t> tokens;
  const auto is_enough = [&] { return std::ssize(tokens) >= settings.calibration_tokens; };
  for (const std::string& file : expand_text_paths(settings.calibration)) {
    if (is_enough()) break;
    for_each_document({&file, 1}, [&](std::string_view text) {
      if (!is_enough()) tokenizer.encode_into(text, tokens, {.add_special_tokens = true, .parse_special = false});
    });
  }
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(settings.calibration_tokens)));
  TUTTI_CHECK(tokens.size() >= 2, "--calibration: the text has {} tokens; expected 2 or more", tokens.size());
  return tokens;
}

const nn::QuantizedLayer& worst_of(const std::vector<nn::QuantizedLayer>& layers) {
  const auto error = [](const nn::QuantizedLayer& layer) { return layer.result_error.value_or(layer.weight_error); };
  return *std::max_element(layers.begin(), layers.end(),
                           [&](const auto& a, const auto& b) { return error(a) < error(b); });
}

}  // namespace

void check(const QuantizeSettings& settings) {
  TUTTI_CHECK(!settings.calibration.empty() || !nn::needs_inputs(nn::quantization_from_name(settings.kind)),
              "--quantize {} needs --calibration FILE, a text from which the scales of inputs are taken",
              settings.kind);
  if (!settings.calibration.empty()) expand_text_paths(settings.calibration);
}

QuantizedModel quantize_module(nn::Module& module, const std::string& name, const QuantizeSettings& settings,
                               FunctionRef<int64_t()> calibrate) {
  check(settings);
  QuantizedModel quantized{.kind = nn::quantization_from_name(settings.kind)};
  std::optional<nn::InputRecorder> inputs;
  if (!settings.calibration.empty()) {
    inputs.emplace(module);
    quantized.calibration_tokens = calibrate();
    inputs->stop();
  }
  quantized.layers =
      nn::quantize_(module, {.kind = quantized.kind, .group = settings.group, .inputs = inputs ? &*inputs : nullptr});
  TUTTI_CHECK(!quantized.layers.empty(), "--quantize {}: no linear layer of {} has a weight of numbers", settings.kind,
              name);
  if (settings.report) settings.report(describe(quantized, settings.reports_layers));
  return quantized;
}

QuantizedModel quantize_model(models::LanguageModel& model, const Tokenizer* tokenizer,
                              const QuantizeSettings& settings, int64_t positions) {
  return quantize_module(model, model.call_name().empty() ? "the model" : model.call_name(), settings, [&] {
    const std::vector<int32_t> tokens = calibration_of(*tokenizer, settings);
    token_log_probabilities(model, tokens, std::clamp<int64_t>(positions - 1, 1, kLongestWindow));
    return std::ssize(tokens);
  });
}

std::string describe(const QuantizedModel& quantized, bool every_layer) {
  std::string text;
  double before = 0, after = 0;
  for (const nn::QuantizedLayer& layer : quantized.layers) {
    before += static_cast<double>(layer.nbytes_before), after += static_cast<double>(layer.nbytes_after);
    if (!every_layer) continue;
    text += fmt::format("{:<48} {:>16} weight {:.5f}", layer.name, fmt::format("{}", layer.sizes), layer.weight_error);
    if (layer.result_error) text += fmt::format(" result {:.5f}", *layer.result_error);
    text += "\n";
  }
  const nn::QuantizedLayer& worst = worst_of(quantized.layers);
  text += fmt::format(
      "{} layers as {}: {:.1f} MB became {:.1f} MB; the largest relative error of {} is {:.4f}, in {}\n",
      quantized.layers.size(), name_of(quantized.kind), before * 1e-6, after * 1e-6,
      worst.result_error ? "results" : "weights", worst.result_error.value_or(worst.weight_error), worst.name);
  return text;
}

}  // namespace tutti::train
