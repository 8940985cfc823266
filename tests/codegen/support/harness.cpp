#include "tests/codegen/support/harness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tutti/codegen/cpu_target.h"
#include "tutti/runtime/fp_environment.h"

namespace tutti::codegen::testing {
namespace {

// Kernels of the tests go to a cache of their own.
class OwnCache : public ::testing::Environment {
 public:
  void SetUp() override { setenv("TUTTI_CACHE_DIR", TUTTI_BINARY_DIR "/codegen_test_cache", 0); }
};
const ::testing::Environment* const kOwnCache = ::testing::AddGlobalTestEnvironment(new OwnCache);

constexpr unsigned char kGuardByte = 0xA5;

}  // namespace

Buffer::Buffer(DType dtype, int64_t count)
    : dtype_(dtype), count_(count), bytes_(static_cast<size_t>(2 * kGuard + count * itemsize(dtype)), kGuardByte) {
  std::memset(data(), 0, static_cast<size_t>(count * itemsize(dtype)));
}

uint64_t Buffer::bits(int64_t i) const {
  uint64_t bits = 0;
  std::memcpy(&bits, at(i), static_cast<size_t>(itemsize(dtype_)));
  return bits;
}

void Buffer::set_bits(int64_t i, uint64_t bits) {
  if (dtype_ == DType::boolean) bits &= 1;
  std::memcpy(at(i), &bits, static_cast<size_t>(itemsize(dtype_)));
}

ScalarValue Buffer::value(int64_t i) const {
  ScalarValue v{.dtype = compute_dtype(dtype_)};
  if (is_floating(dtype_)) v.f = load_as_double(at(i), dtype_);
  else v.i = load_as_int64(at(i), dtype_);
  return v;
}

void Buffer::set(int64_t i, const ScalarValue& value) {
  if (is_floating(dtype_)) store_from_double(at(i), dtype_, value.f);
  else store_from_int64(at(i), dtype_, value.i);
}

void Buffer::set(int64_t i, double value) { store_from_double(at(i), dtype_, value); }

bool Buffer::guards_intact() const {
  for (int64_t k = 0; k < kGuard; ++k) {
    if (bytes_[static_cast<size_t>(k)] != kGuardByte ||
        bytes_[bytes_.size() - 1 - static_cast<size_t>(k)] != kGuardByte)
      return false;
  }
  return true;
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void fill_with_variety(Buffer& buffer, uint64_t seed) {
  static constexpr double kSpecial[] = {
      0.0,          -0.0,          1.0,    -1.0,    0.5,   2.0,    -2.0,      3.0,      1e-40,     -1e-40,
      5e-324,       65504.0,       448.0,  464.0,   470.0, 1e38,   -3e38,     INFINITY, -INFINITY, NAN,
      2147483648.0, -2147483649.0, 9.3e18, -9.3e18, 1e300, 0x1p-9, 0x1.8p-10, 0x1p-24,  0x1.8p-25, 255.5};
  static constexpr int64_t kInteger[] = {0,
                                         1,
                                         -1,
                                         2,
                                         -2,
                                         3,
                                         7,
                                         -7,
                                         127,
                                         -128,
                                         128,
                                         255,
                                         32767,
                                         -32768,
                                         2147483647,
                                         -2147483647 - 1,
                                         std::numeric_limits<int64_t>::max(),
                                         std::numeric_limits<int64_t>::min(),
                                         10,
                                         -10};
  for (int64_t i = 0; i < buffer.count(); ++i) {
    const uint64_t r = mix(seed * 1000003 + static_cast<uint64_t>(i));
    if (is_floating(buffer.dtype())) {
      if (r % 3 == 0) buffer.set(i, kSpecial[(r >> 8) % std::size(kSpecial)]);
      else if (r % 3 == 1) buffer.set(i, (static_cast<double>(r >> 11) * 0x1p-53 - 0.5) * 16);
      else buffer.set_bits(i, r >> 3);
    } else if (r % 2 == 0) {
      store_from_int64(buffer.at(i), buffer.dtype(), kInteger[(r >> 8) % std::size(kInteger)]);
    } else {
      buffer.set_bits(i, r >> 3);
    }
  }
}

void fill_moderate(Buffer& buffer, uint64_t seed) {
  for (int64_t i = 0; i < buffer.count(); ++i) {
    const uint64_t r = mix(seed * 1000003 + static_cast<uint64_t>(i));
    if (is_floating(buffer.dtype())) buffer.set(i, (static_cast<double>(r >> 11) * 0x1p-53 - 0.5) * 16);
    else
      store_from_int64(buffer.at(i), buffer.dtype(),
                       static_cast<int64_t>(r % 17) - (buffer.dtype() == DType::u8 ? 0 : 8));
  }
}

std::vector<CpuTarget> targets() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return {CpuTarget::avx2, CpuTarget::avx512};
  return {CpuTarget::avx2};
}

Expr Recipe::input(DType dtype, StrideClass inner) {
  spec.inputs.push_back({dtype, inner});
  return pool.arg(static_cast<int>(spec.inputs.size()) - 1, dtype);
}

void Recipe::output(Expr value, DType dtype, StrideClass inner) {
  spec.outputs.push_back({dtype, inner});
  spec.results.push_back(value.id());
}

Expr Recipe::reduce(ReduceOp op, Expr value, TreeKind tree) {
  spec.reductions.push_back({op, tree, value.id()});
  const DType dtype = op == ReduceOp::argmax || op == ReduceOp::argmin ? DType::i64
                      : op == ReduceOp::any || op == ReduceOp::all     ? DType::boolean
                                                                       : value.dtype();
  return pool.leaf(ScalarOp::reduced, dtype, static_cast<int>(spec.reductions.size()) - 1);
}

const KernelSpec& Recipe::finish(const char* name) {
  spec.nodes = pool.nodes();
  spec.name = name;
  return spec;
}

uint32_t run(const KernelSpec& spec, CpuTarget target, const std::vector<Operand>& operands, const Sizes& sizes,
             const std::vector<ParamValue>& params, int64_t first_index, int64_t index_outer) {
  set_fp_environment();
  std::vector<OperandCall> calls;
  for (const Operand& o : operands) calls.push_back({o.buffer->data(), o.outer, o.inner, o.reduce, o.pick, o.extent});
  uint32_t error = 0;
  const KernelCall call{.operands = calls.data(),
                        .params = params.data(),
                        .n_outer = sizes.n_outer,
                        .n_inner = sizes.n_inner,
                        .n_reduce = sizes.n_reduce,
                        .leaf = sizes.leaf,
                        .first_index = first_index,
                        .index_outer = index_outer,
                        .error = &error};
  compile_for(spec, target).entry(&call);
  return error;
}

bool same_value(const ScalarValue& a, const ScalarValue& b) {
  if (a.dtype != b.dtype) return false;
  if (!is_floating(a.dtype)) return a.i == b.i;
  if (std::isnan(a.f) || std::isnan(b.f)) return std::isnan(a.f) && std::isnan(b.f);
  return std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f);
}

}  // namespace tutti::codegen::testing
