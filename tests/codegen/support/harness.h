// Small kernels and memory for the tests of the code generator.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/kernel.h"
#include "tutti/codegen/kernel_cache.h"
#include "tutti/core/scalar_eval.h"

namespace tutti::codegen::testing {

// Storage of `count` elements with room before and after that must stay untouched.
class Buffer {
 public:
  Buffer(DType dtype, int64_t count);
  DType dtype() const { return dtype_; }
  int64_t count() const { return count_; }
  void* data() { return bytes_.data() + kGuard; }
  void* at(int64_t i) { return bytes_.data() + kGuard + i * itemsize(dtype_); }
  const void* at(int64_t i) const { return bytes_.data() + kGuard + i * itemsize(dtype_); }
  uint64_t bits(int64_t i) const;
  void set_bits(int64_t i, uint64_t bits);
  ScalarValue value(int64_t i) const;  // in the compute dtype
  void set(int64_t i, const ScalarValue& value);
  void set(int64_t i, double value);
  bool guards_intact() const;

 private:
  static constexpr int64_t kGuard = 192;
  DType dtype_;
  int64_t count_;
  std::vector<unsigned char> bytes_;
};

// A deterministic spread of values of the dtype, extremes and specials included.
void fill_with_variety(Buffer& buffer, uint64_t seed);
// Moderate values: small integers, floats in [-8, 8].
void fill_moderate(Buffer& buffer, uint64_t seed);

uint64_t mix(uint64_t x);  // a hash, for test data

// The targets this machine can run.
std::vector<CpuTarget> targets();

// A spec whose outputs are `results`, with inputs of the given storage dtypes.
struct Recipe {
  ExprPool pool;
  KernelSpec spec;

  explicit Recipe(LoopKind kind = LoopKind::pointwise) { spec.kind = kind; }
  Expr input(DType dtype, StrideClass inner = StrideClass::contiguous);
  void output(Expr value, DType dtype, StrideClass inner = StrideClass::contiguous);
  Expr reduce(ReduceOp op, Expr value, TreeKind tree = TreeKind::halving);
  const KernelSpec& finish(const char* name);
};

struct Operand {
  Buffer* buffer;
  int64_t outer = 0, inner = 0, reduce = 0, pick = 0, extent = 0;
};

struct Sizes {
  int64_t n_outer = 1, n_inner = 0, n_reduce = 0, leaf = 512;
};

// Calls the kernel; returns the error flag.
uint32_t run(const KernelSpec& spec, CpuTarget target, const std::vector<Operand>& operands, const Sizes& sizes,
             const std::vector<ParamValue>& params = {}, int64_t first_index = 0, int64_t index_outer = 0);

// Bits of a float or double for messages and exact comparisons.
bool same_value(const ScalarValue& a, const ScalarValue& b);  // equal bits, or both NaN

}  // namespace tutti::codegen::testing
