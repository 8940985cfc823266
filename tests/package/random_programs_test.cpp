// Random programs of pointwise ops, reductions and products, packaged with a size that varies: packages have the bits
// of the calls, whatever fuses with what.
#include <gtest/gtest.h>

#include <random>

#include "tests/package/support/packaged_cases.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using package_test::for_this_processor;
using package_test::values;

// A function of x [rows, 6] and a held square matrix.
struct RandomProgram {
  uint32_t seed;
  Tensor held;
  std::vector<Tensor> operator()(const Tensor& x) const {
    std::mt19937 random(seed);
    std::vector<Tensor> all{x, tanh(x)};
    const auto pick = [&] { return all[random() % all.size()]; };
    for (uint32_t steps = 3 + random() % 8; steps > 0; --steps) {
      const Tensor p = pick(), q = pick();
      switch (random() % 9) {
        case 0:
          all.push_back(add(p, q));
          break;
        case 1:
          all.push_back(tanh(mul(p, q)));
          break;
        case 2:
          all.push_back(matmul(p, held));
          break;
        case 3:
          all.push_back(tanh(matmul(exp(neg(mul(p, p))), held)));
          break;
        case 4:
          all.push_back(sub(p, sum(q, {.dims = {1}, .keepdim = true})));
          break;
        case 5:
          all.push_back(mul(p, sum(q, {.dims = {0}, .keepdim = true})));
          break;
        case 6:
          all.push_back(softmax(p, -1));
          break;
        case 7:
          all.push_back(matmul(matmul(p, transpose(q, 0, 1)), p));
          break;
        default:
          all.push_back(mul(p, slice(q, 1, 2, 3)));
      }
    }
    return {all.back(), all[all.size() / 2]};
  }
};

TEST(Package, RandomProgramsWithAnyNumberOfRows) {
  const testing::TemporaryFolder folder;
  for (uint32_t seed = 0; seed < 25; ++seed) {
    const RandomProgram program{seed, values(seed, {6, 6})};
    package(folder / "f", program, for_this_processor("f", {{.name = "rows", .dims = {{0, 0}}, .least = 1, .most = 7}}),
            values(1, {3, 6}));
    const auto opened = deploy::Package::open(folder / "f");
    for (const int64_t rows : {1, 2, 6, 7}) {
      const Tensor x = values(100 + seed, {rows, 6});
      const std::vector<Tensor> expected = program(x), results = opened->run({{x}});
      for (size_t k = 0; k < expected.size(); ++k)
        expect_same_bits(results[k], expected[k], fmt::format("seed {}, {} rows, result {}", seed, rows, k));
    }
  }
}

}  // namespace
}  // namespace tutti
