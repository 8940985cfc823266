// What a user may set of the weights of a model that is quantized when it is loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::train {

struct QuantizeSettings {
  std::string kind;                      // the name of an nn::Quantization; empty: weights stay as they are
  int64_t group = 32;                    // of int4_weight_only
  std::vector<std::string> calibration;  // files of text, whose first tokens the model reads beforehand
  int64_t calibration_tokens = 8192;
  bool reports_layers = false;                          // every one by name
  std::function<void(const std::string& text)> report;  // is told what describe() says; null: nobody
  bool is_wanted() const { return !kind.empty(); }
};

}  // namespace tutti::train
