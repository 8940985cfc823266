// Functions that tests package, and what they compare.
#pragma once

#include <string>
#include <vector>

#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"
#include "tutti/deploy/package.h"
#include "tutti/package/package.h"

namespace tutti::package_test {

// matmul(gelu(x w + b), v), where v is used twice under two names.
struct Mlp {
  explicit Mlp(DType dtype = DType::f32);
  Tensor operator()(const Tensor& x) const;  // [batch, 16] -> [batch, 8]
  Tensor w, b, v;
};

// A transformer block: norms, attention of 2 heads, a gated product.
struct Block {
  explicit Block(DType dtype = DType::f32);
  Tensor operator()(const Tensor& x) const;  // [batch, tokens, 16]
  Tensor norm1, norm2, wq, wk, wv, wo, gate, up, down;
};

// Values of a seed, in f32 rounded to `dtype`.
Tensor values(uint64_t seed, const Extents& sizes, DType dtype = DType::f32);

// Packages of this processor only, which take less time to make.
PackageOptions for_this_processor(const std::string& name, std::vector<PackagedSize> dynamic = {});

// The text of the UsageError that fn() throws; "no error" when it throws none.
template <class Fn>
std::string usage_error_of(Fn fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_HAS(text, part) EXPECT_TRUE(::tutti::package_test::has(text, part)) << (text)

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& contents);

}  // namespace tutti::package_test
