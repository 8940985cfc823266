// Entries of codes in state dicts: "fc.weight.int8", i8 [out, in], and "fc.weight.int8.scale", f32 [out], stand for the
// weight "fc.weight" [out, in] of a linear layer. The kinds (nn/quantization.h) differ in their parts:
//
//   fc.weight.int8                   i8 [out, in]            .scale f32 [out]
//   fc.weight.fp8                    f8e4m3fn [out, in]      .scale f32 [out]
//   fc.weight.int8_static            i8 [out, in]            .scale f32 [out], .x_scale f32 [1], .x_zero_point i32 [1]
//   fc.weight.fp8_static             f8e4m3fn [out, in]      .scale f32 [out], .x_scale f32 [1]
//   fc.weight.int8_weight_only       i8 [out, in]            .scale f32 [out]
//   fc.weight.int4_weight_only       u8 [out, in / 2]        .scale and .minimum f32 [out, groups]
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/nn/coded_operand.h"
#include "tutti/nn/state_dict.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::nn {

// What the name of such an entry says; nothing for other names.
struct CodeName {
  std::string_view parameter;
  Quantization kind;
  const CodePart* part;
};
std::optional<CodeName> code_name_in(std::string_view name);

// Appends the entries of a parameter whose layer is held as codes.
void append_code_entries(StateDict& state, const std::string& parameter, const CodedOperand& operand);
// Returns those of all layers of a module that are held as codes.
StateDict code_entries(Module& module);

// The entries of codes in a source of values, by their parameters.
class CodeEntries {
 public:
  struct Entry {
    Quantization kind;
    std::map<const CodePart*, std::string> names = {};  // of the parts that are there
    std::map<const CodePart*, PartMeta> metas = {};
    Extents matrix = {};
    std::string fault = {};  // why it stands for nothing; "" where it is whole
  };
  // Whether the name is that of an entry. UsageError where the same parameter has entries of another kind.
  bool add(std::string_view name, const Extents& sizes, DType dtype);
  // The entries, when all names were added.
  const std::map<std::string, Entry>& complete();
  // The entry of a parameter, or null.
  const Entry* find(const std::string& parameter) const;

 private:
  std::map<std::string, Entry> entries_;
};

// The tensors of an entry, which are copied unless they are shared. UsageError, naming the entry, for a scale that is
// not finite, a scale of inputs that is not positive, and a zero point that is no code.
WeightCodes codes_of(const CodeEntries::Entry& entry, FunctionRef<Tensor(const std::string& name)> value_of,
                     bool shares_memory);

}  // namespace tutti::nn
