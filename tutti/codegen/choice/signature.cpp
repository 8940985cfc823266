#include "tutti/codegen/choice/signature.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::codegen::choice {
namespace {

constexpr uint64_t kLargestAlignment = 64;

struct Scalars {
  DType accumulator;
  ScaleMode scale_mode;
  uint16_t arch, classes, threads;
};
static_assert(sizeof(Scalars) == sizeof(uint64_t) && std::has_unique_object_representations_v<Scalars>);

uint64_t scalars_of(const Signature& s) {
  return std::bit_cast<uint64_t>(Scalars{s.accumulator, s.scale_mode, s.arch, s.classes, s.threads});
}

template <class T>
void append(std::string& bytes, const T* values, size_t count) {
  bytes.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

// With its length in front, so that no two lists of texts have the same bytes.
void append_text(std::string& bytes, const std::string& text) {
  const uint64_t size = text.size();
  append(bytes, &size, 1);
  bytes += text;
}

std::string text_of(const TensorSignature& t) {
  const size_t n = t.ndim;
  return fmt::format("{} [{}] strides [{}] aligned {}", name_of(t.dtype),
                     fmt::join(t.sizes.begin(), t.sizes.begin() + n, ", "),
                     fmt::join(t.strides.begin(), t.strides.begin() + n, ", "), t.alignment);
}

}  // namespace

TensorSignature tensor_signature(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                                 const void* data) {
  TUTTI_CHECK(sizes.size() <= kMaxDims,
              "choice: an operand has {} dims; at most {} can be described. Merge its batch dims first", sizes.size(),
              kMaxDims);
  TUTTI_CHECK_EQ(sizes.size(), strides.size(), "choice: an operand has another number of strides than of sizes");
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(data));
  TensorSignature t{
      .dtype = dtype,
      .ndim = static_cast<uint8_t>(sizes.size()),
      .alignment = static_cast<uint16_t>(address == 0 ? 0 : std::min(address & (~address + 1), kLargestAlignment))};
  std::copy(sizes.begin(), sizes.end(), t.sizes.begin());
  std::copy(strides.begin(), strides.end(), t.strides.begin());
  return t;
}

uint64_t Signature::hash() const {
  uint64_t value = hash64(operands.data(), sizeof(operands), scalars_of(*this));
  value = hash64(op, value);
  for (const EpilogueStep& step : epilogue) {
    value = hash64(step.op, value);
    value = hash64(step.tensors.data(), step.tensors.size() * sizeof(TensorSignature), value);
  }
  return place_of(value);
}

std::string Signature::key() const {
  std::string bytes;
  append_text(bytes, op);
  const uint64_t scalars = scalars_of(*this), steps = epilogue.size();
  append(bytes, &scalars, 1);
  append(bytes, operands.data(), operands.size());
  append(bytes, &steps, 1);
  for (const EpilogueStep& step : epilogue) {
    append_text(bytes, step.op);
    const uint64_t tensors = step.tensors.size();
    append(bytes, &tensors, 1);
    append(bytes, step.tensors.data(), step.tensors.size());
  }
  return bytes;
}

std::string Signature::text() const {
  std::string line =
      fmt::format("{} a {}; b {}; c {}; accumulated in {}; {} thread{}", op, text_of(operands[0]), text_of(operands[1]),
                  text_of(operands[2]), name_of(accumulator), threads, threads == 1 ? "" : "s");
  for (const EpilogueStep& step : epilogue) {
    line += "; then " + step.op;
    for (const TensorSignature& t : step.tensors) line += " with " + text_of(t);
  }
  return line;
}

}  // namespace tutti::codegen::choice
