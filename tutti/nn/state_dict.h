// StateDict: the values of a module by name, and the report of loading one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {
class ModelFile;
}

namespace tutti::nn {

class Module;

// Names and values in the order of registration. A parameter that is held as quantized blocks is an entry of u8 [rows,
// bytes of a row] whose name ends with the format: "fc.weight.Q4_K". The weight of a linear layer that is held as codes
// (nn/quantize.h) is several entries: "fc.weight.int8", "fc.weight.int8.scale" (nn/code_entries.h). A module takes
// entries of both sorts: what they stand for is then held so.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

struct LoadOptions {
  bool strict = true;  // missing and unexpected names are an error
  // Parameters are frozen to the values of the source as they are (Parameter::freeze): those of a file stay in its
  // pages.
  bool freeze = false;
  // Frozen parameters that can hold blocks (Parameter::can_hold_blocks) keep the quantized blocks of a file, where
  // their format is one that quantized_linear() takes. Others are decoded.
  bool keep_blocks = false;
};

// The names of a module and of a source of values that do not agree.
struct LoadReport {
  std::vector<std::string> missing;     // the module has them, the source does not
  std::vector<std::string> unexpected;  // the source has them, the module does not
  std::vector<std::string>
      mismatched;  // both have them, but sizes differ: "fc.weight: the source holds [4, 3] f32 cpu, ..."
  bool empty() const { return missing.empty() && unexpected.empty() && mismatched.empty(); }
  // One line per name; "" when there is nothing to report.
  std::string to_string() const;
};

// Loads the tensors of a model file or folder (io/model_file.h) by name, one at a time straight from the files' pages,
// and converts them to the dtypes of the masters; blocks are decoded. Experts may stand under the names of published
// models (nn/published_experts.h). Errors as Module::load_state_dict(), and those of ModelFile. A module that failed to
// load is unchanged.
LoadReport load(Module& module, const std::string& path, const LoadOptions& options = {});
LoadReport load(Module& module, const ModelFile& file, const LoadOptions& options = {});
// Writes the state dict of `module` as a .safetensors file, atomically.
void save(const Module& module, const std::string& path);
// The same of a state dict, with experts under the names of published models (nn/published_experts.h).
void save_published(const StateDict& state, const std::string& path);

}  // namespace tutti::nn
