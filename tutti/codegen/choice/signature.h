// Signature: the full description of one call, on which a choice depends. Two calls that differ in any field may need
// different kernels, so this is the key of every table of choices, in memory and on disk.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tutti/core/dtype.h"

namespace tutti::codegen::choice {

inline constexpr size_t kMaxDims = 4;

// Geometry of one operand, without its data. Sizes and strides in elements.
struct TensorSignature {
  DType dtype = DType::f32;
  uint8_t ndim = 0;
  uint16_t alignment = 0;  // the address is a multiple of it; a power of two up to 64, 0: no data
  uint32_t filler = 0;     // makes the bytes of equal signatures equal: their bytes are hashed
  std::array<int64_t, kMaxDims> sizes{}, strides{};

  bool operator==(const TensorSignature&) const = default;
};
static_assert(std::has_unique_object_representations_v<TensorSignature>);

// UsageError: more than kMaxDims dims, or another number of strides than of sizes.
TensorSignature tensor_signature(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                                 const void* data);

// One op fused behind the product, and what it reads besides the result so far. Leaving the tensors out of a key makes
// two calls share a kernel that was made for the strides of one of them.
struct EpilogueStep {
  std::string op;
  std::vector<TensorSignature> tensors;

  bool operator==(const EpilogueStep&) const = default;
};

// The location of the factors of a scaled product.
enum class ScaleMode : uint8_t { none, per_tensor, per_row, per_block };

struct Signature {
  std::string op;
  std::array<TensorSignature, 3> operands;  // a, b, c
  DType accumulator = DType::f32;
  ScaleMode scale_mode = ScaleMode::none;
  uint16_t arch = 0;     // instruction set or compute capability, numbered by the owner of the candidates
  uint16_t classes = 1;  // how many the classifier tells apart
  uint16_t threads = 1;
  std::vector<EpilogueStep> epilogue;

  bool operator==(const Signature&) const = default;
  // Stable over processes and releases.
  uint64_t hash() const;
  // All of it as bytes: equal keys mean equal signatures.
  std::string key() const;
  // For people: "gemm a f32 [8, 16] ...".
  std::string text() const;
};

// Not noexcept on purpose: tables then keep the hash beside each entry instead of computing it again.
struct SignatureHash {
  size_t operator()(const Signature& signature) const { return static_cast<size_t>(signature.hash()); }
};

}  // namespace tutti::codegen::choice
