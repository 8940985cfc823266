// Matrices of linear maps that are held as codes.
#pragma once

#include <utility>
#include <vector>

#include "tutti/nn/linear_operand.h"
#include "tutti/nn/quantization.h"

namespace tutti::nn {

class Linear;

// The tensors of a matrix of codes. What a kind does not have is undefined.
struct WeightCodes {
  Tensor codes;         // i8 or f8e4m3fn [out, in]; u8 [out, in / 2], two codes of 4 bits in a byte
  Tensor scale;         // f32 [out]; of groups [out, groups]
  Tensor minimum;       // f32 [out, groups]
  Tensor x_scale;       // f32 [1], of the static kinds
  Tensor x_zero_point;  // i32 [1], of int8_static
};

// The tensors in that order, each with a name for state dicts; that of the codes is "".
struct CodePart {
  std::string_view name;
  Tensor WeightCodes::* tensor;
};
inline constexpr CodePart kCodeParts[] = {{"", &WeightCodes::codes},
                                          {"scale", &WeightCodes::scale},
                                          {"minimum", &WeightCodes::minimum},
                                          {"x_scale", &WeightCodes::x_scale},
                                          {"x_zero_point", &WeightCodes::x_zero_point}};
// The dtype and sizes of a part of a matrix [out, in] with so many groups in a row; nothing where the kind does not
// have it.
struct PartMeta {
  DType dtype;
  Extents sizes;
};
std::optional<PartMeta> meta_of(Quantization kind, const CodePart& part, const Extents& matrix, int64_t groups);

// Codes that multiply codes of x, scaled_linear(), or numbers, weight_only_linear(). A compiled function reads them
// anew at each of its calls.
class CodedOperand final : public LinearOperand {
 public:
  // UsageError where the tensors are not those of the kind.
  CodedOperand(Quantization kind, const WeightCodes& codes);
  int64_t in_features() const override { return sizes_[1]; }
  int64_t out_features() const override { return sizes_[0]; }
  std::string_view kind() const override { return name_of(quantization_); }
  std::vector<Parameter> parameters() const override { return {}; }
  Tensor product(const Tensor& x, std::optional<DType> out_dtype) const override;

  Quantization quantization() const { return quantization_; }
  // What it holds.
  WeightCodes codes() const;
  int64_t nbytes() const;  // of the codes, scales and minima of W
  // From now on it holds other codes of the same kind and matrix. UsageError as above.
  void set(const WeightCodes& codes) const;

 private:
  void check(const WeightCodes& codes) const;

  const Quantization quantization_;
  const Extents sizes_;
  Buffer buffers_[std::size(kCodeParts)];  // undefined where the kind has no such part
};

// The numbers that the codes stand for, f32 [out, in].
Tensor decoded(Quantization kind, const WeightCodes& codes);

// The operand of a layer that is held as codes; null for others.
const CodedOperand* coded_operand_of(const Linear& layer);
// Whether the layer computes with its own weight, whole on this rank, so that codes can take the weight's place.
bool can_hold_codes(const Linear& layer);
// From now on the layer computes with these codes, and its weight has no values. A layer that is held as codes of this
// kind keeps its operand, so that functions that were compiled before compute with the new ones. UsageError unless
// can_hold_codes() or held as this kind.
void hold_codes(Linear& layer, Quantization kind, const WeightCodes& codes);

}  // namespace tutti::nn
