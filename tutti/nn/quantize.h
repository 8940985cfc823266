// quantize_(): the linear layers of a loaded model with weights of 8 or 4 bits.
//
//   nn::quantize_(model, {.kind = nn::Quantization::int8});
//
// The names and the meaning of the kinds are torchao's. The weights are given up: the model can compute, be compiled
// and be saved as codes (nn/code_entries.h), but not be trained. Embeddings, heads that share their table with them,
// experts and norms stay as they are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/shape.h"
#include "tutti/nn/quantization.h"

namespace tutti::nn {

class InputRecorder;
class Linear;
class Module;

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
