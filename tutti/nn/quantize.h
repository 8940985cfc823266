// quantize_(): the linear layers of a loaded model with weights of 8 or 4 bits.
//
//   nn::quantize_(model, {.kind = nn::Quantization::int8});
//
// The names and the meaning of the kinds are torchao's. The weights are given up: the model can compute, and be
// compiled, but neither be trained nor saved. Embeddings, heads that share their table with them, experts and norms
// stay as they are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/shape.h"

namespace tutti::nn {

class InputRecorder;
class Linear;
class Module;

enum class Quantization : uint8_t {
  int8,              // rows of W and of x as i8, each with its own scale
  fp8,               // the same as f8e4m3fn
  int8_static,       // rows of W as i8, x as u8 with the scale and the zero point of all inputs that were recorded
  fp8_static,        // rows of W as f8e4m3fn, x with one scale that was recorded
  int8_weight_only,  // rows of W as i8; x keeps its precision
  int4_weight_only,  // groups of W as codes of 4 bits; x keeps its precision
};
std::string_view name_of(Quantization kind);
// UsageError lists the names.
Quantization quantization_from_name(std::string_view name);
bool needs_inputs(Quantization kind);  // those that are static

struct QuantizeOptions {
  Quantization kind = Quantization::int8;
  int64_t group = 32;                     // of int4_weight_only: elements of a row
  const InputRecorder* inputs = nullptr;  // for the static kinds, and for the errors of results
  // Which layers are quantized, by their names below the module; default: all that compute with a weight of
  // numbers of their own, whole on this rank, that no other module reads.
  std::function<bool(const std::string& name, const Linear& layer)> filter = {};
};

struct QuantizedLayer {
  std::string name;
  Extents sizes;
  int64_t nbytes_before = 0, nbytes_after = 0;  // of the weight, scales included
  double weight_error = 0;                      // |decoded - W| / |W|, of Frobenius norms
  std::optional<double> result_error;           // the same of results for recorded inputs
};

// One entry for each layer, in the order of the module. UsageError, before any layer is changed, when a static kind has
// no recorded inputs of a layer, for weights that are not finite, and for rows that are not whole groups.
std::vector<QuantizedLayer> quantize_(Module& module, const QuantizeOptions& options = {});

}  // namespace tutti::nn
