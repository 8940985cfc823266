// Weights of a ready model as codes of 8 or 4 bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/io/tokenizer.h"
#include "tutti/models/language_model.h"
#include "tutti/nn/module.h"
#include "tutti/nn/quantize.h"
#include "tutti/runtime/function_ref.h"
#include "tutti/train/quantize_settings.h"

namespace tutti::train {

// UsageError where a setting is unknown or missing, or a file of calibration is not there: before a model is opened.
void check(const QuantizeSettings& settings);

struct QuantizedModel {
  nn::Quantization kind;
  int64_t calibration_tokens = 0;  // that were read
  std::vector<nn::QuantizedLayer> layers;
};

// `positions`: tokens of a text that the model takes at most; `tokenizer` may be null without calibration. Quantizes
// the linear layers (nn::quantize_). The static kinds need calibration; with it the errors of results are known for
// every kind. UsageError when no layer is left to quantize, for text of fewer than two tokens, and as nn::quantize_().
QuantizedModel quantize_model(models::LanguageModel& model, const Tokenizer* tokenizer,
                              const QuantizeSettings& settings, int64_t positions);

// The same for any module. `calibrate` lets it read the texts of calibration and returns their tokens; it is called
// where there are some. `name` is for messages.
QuantizedModel quantize_module(nn::Module& module, const std::string& name, const QuantizeSettings& settings,
                               FunctionRef<int64_t()> calibrate);

// "210 layers as int8: 424.7 MB became 106.9 MB; ...", and with `every_layer` a line for each.
std::string describe(const QuantizedModel& quantized, bool every_layer);

}  // namespace tutti::train
