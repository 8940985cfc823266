// The compiled kernel of a recipe for one class of operands.
#pragma once

#include <array>
#include <span>

#include "tutti/ops/engine/loop_plan.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti {

// The key that selects a kernel, which never includes a size. Operands are in the order of inputs, then outputs.
struct KernelKey {
  const OpDef* op;
  uint64_t variant;
  codegen::LoopKind kind;
  DeviceKind device;
  uint8_t count = 0;
  std::array<uint8_t, kMaxOperands> operands{};  // dtype * 4 + stride class

  void add(DType dtype, codegen::StrideClass c) {
    operands[count++] = static_cast<uint8_t>(static_cast<int>(dtype) * 4 + static_cast<int>(c));
  }
  DType dtype(size_t k) const { return static_cast<DType>(operands[k] / 4); }
  codegen::StrideClass stride_class(size_t k) const { return static_cast<codegen::StrideClass>(operands[k] & 3); }
  void set_stride_class(size_t k, codegen::StrideClass c) {
    operands[k] = static_cast<uint8_t>((operands[k] & ~3) | static_cast<int>(c));
  }
  // Byte by byte, as they were just written: a processor waits before it reads such bytes as one word.
  friend bool operator==(const KernelKey& a, const KernelKey& b) {
    bool same =
        a.op == b.op && a.variant == b.variant && a.kind == b.kind && a.device == b.device && a.count == b.count;
    for (size_t k = 0; same && k < a.count; ++k) same = a.operands[k] == b.operands[k];
    return same;
  }
  size_t hash() const;
};

// The key without operands.
KernelKey key_of(const OpCall& call, std::span<const Tensor> outputs, codegen::LoopKind kind);
// The key of a call whose operands are walked so.
KernelKey key_of(const OpCall& call, std::span<const Tensor> outputs, const LoopPlan& plan);

const codegen::Kernel& find_kernel(const OpCall& call, std::span<const Tensor> outputs, const KernelKey& key);

}  // namespace tutti
