#include "tests/package/support/packaged_cases.h"

#include <fstream>
#include <iterator>

#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"

namespace tutti::package_test {

Tensor values(uint64_t seed, const Extents& sizes, DType dtype) {
  return cast(facets::sample_tensor(static_cast<int>(seed), sizes), dtype);
}

Mlp::Mlp(DType dtype) : w(values(1, {16, 24}, dtype)), b(values(2, {24}, dtype)), v(values(3, {24, 8}, dtype)) {}

Tensor Mlp::operator()(const Tensor& x) const { return matmul(gelu(add(matmul(x, w), b)), v); }

Block::Block(DType dtype)
    : norm1(values(1, {16}, dtype)),
      norm2(values(2, {16}, dtype)),
      wq(values(3, {16, 16}, dtype)),
      wk(values(4, {16, 16}, dtype)),
      wv(values(5, {16, 16}, dtype)),
      wo(values(6, {16, 16}, dtype)),
      gate(values(7, {24, 16}, dtype)),
      up(values(8, {24, 16}, dtype)),
      down(values(9, {16, 24}, dtype)) {}

Tensor Block::operator()(const Tensor& x) const {
  const SymInt batch = x.size(0), tokens = x.size(1);
  const Tensor h = rms_norm(x, norm1);
  const auto heads = [&](const Tensor& w) { return transpose(reshape(linear(h, w), {batch, tokens, 2, 8}), 1, 2); };
  const Tensor attended = sdpa(heads(wq), heads(wk), heads(wv), {.causal = true});
  const Tensor y = add(x, linear(reshape(transpose(attended, 1, 2), {batch, tokens, 16}), wo));
  const Tensor g = rms_norm(y, norm2);
  return add(y, linear(swiglu(linear(g, gate), linear(g, up)), down));
}

PackageOptions for_this_processor(const std::string& name, std::vector<PackagedSize> dynamic) {
  return {.name = name, .dynamic = std::move(dynamic), .levels = {codegen::cpu_target()}};
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary).write(contents.data(), static_cast<std::streamsize>(contents.size()));
}

}  // namespace tutti::package_test
