// Softmax and its relatives over any dim: the bits of the same rows laid along memory, whatever the threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/same_bits.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/dim_attrs.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/squeeze.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using Op = Tensor (*)(const Tensor&, int64_t);
Tensor kept_logsumexp(const Tensor& x, int64_t dim) { return unsqueeze(logsumexp(x, dim), dim); }
const std::pair<const char*, Op> kOps[] = {
    {"softmax", softmax}, {"log_softmax", log_softmax}, {"logsumexp", kept_logsumexp}};

struct Case {
  Extents sizes;
  int64_t dim;
};
const Case kCases[] = {{{600, 33}, 0},    {{1, 40}, 0},      {{40, 1}, 0},   {{37, 3}, 0},
                       {{5, 1030, 4}, 1}, {{3, 7, 1100}, 1}, {{9, 4, 5}, 0}, {{2, 3, 20, 18}, 2},
                       {{0, 8}, 0},       {{8, 0}, 0},       {{7, 0, 5}, 1}, {{64, 2500}, 0}};

// The rows copied to the last dim, and back.
Tensor along_memory(Op op, const Tensor& x, int64_t dim) {
  return transpose(op(contiguous(transpose(x, dim, -1)), -1), dim, -1);
}

Tensor specials(const Tensor& x) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor y = clone(x);
  for (int64_t i = 0; i < y.numel(); i += 97) facets::write_double(y, i, i % 2 ? infinity : -infinity);
  return y;
}

TEST(Softmax, OverAnyDimHasTheBitsOfRowsAlongMemory) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const Case& c : kCases) {
      const Tensor plain = facets::sample_tensor(1, c.sizes, dtype, -6.0, 6.0);
      for (const Tensor& x : {plain, specials(plain), facets::strided_copy(plain)}) {
        for (const auto& [name, op] : kOps) {
          const Tensor y = op(x, c.dim);
          EXPECT_TRUE(y.is_contiguous()) << name;
          expect_same_bits(y, along_memory(op, x, c.dim),
                           fmt::format("{} {} over {} of {}", name, name_of(dtype), c.dim, to_string(c.sizes)));
        }
      }
    }
  }
}

TEST(Softmax, OverAnyDimAgreesWithSumsInDouble) {
  for (const Case& c : kCases) {
    const Tensor x = facets::sample_tensor(2, c.sizes, DType::f32, -6.0, 6.0);
    const Tensor y = softmax(x, c.dim), rows = contiguous(transpose(x, c.dim, -1)),
                 results = contiguous(transpose(y, c.dim, -1));
    const int64_t n = rows.extents().back();
    for (int64_t r = 0; n > 0 && r < rows.numel() / n; ++r) {
      double sum = 0;
      for (int64_t i = r * n; i < r * n + n; ++i) sum += std::exp(static_cast<double>(rows.data<float>()[i]));
      for (int64_t i = r * n; i < r * n + n; ++i) {
        const double expected = std::exp(static_cast<double>(rows.data<float>()[i])) / sum;
        ASSERT_NEAR(results.data<float>()[i], expected, 3e-6 * expected) << to_string(c.sizes);
      }
    }
  }
}

TEST(Softmax, ANanStaysInItsRow) {
  const Tensor x = facets::sample_tensor(3, {50, 20});
  facets::write_double(x, 20 * 7 + 4, NAN);
  for (const auto& [name, op] : kOps) {
    const Tensor y = op(x, 0);
    for (int64_t i = 0; i < y.numel(); ++i)
      EXPECT_EQ(std::isnan(y.data<float>()[i]), i % 20 == 4) << name << " at " << i;
  }
}

TEST(SoftmaxGradient, OverAnyDimHasTheBitsOfRowsAlongMemory) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Case& c : kCases) {
      const Tensor y = facets::sample_tensor(4, c.sizes, dtype, -3.0, 3.0),
                   g = facets::sample_tensor(5, c.sizes, dtype);
      for (const char* name : {"softmax_backward", "log_softmax_backward"}) {
        const OpDef& op = find_op(name);
        const auto turned = [&](const Tensor& t) { return contiguous(transpose(t, c.dim, -1)); };
        const Tensor rows = call_op(op, Attrs::of(DimAttrs{y.ndim() - 1}), turned(g), turned(y));
        expect_same_bits(call_op(op, Attrs::of(DimAttrs{c.dim}), g, y), transpose(rows, c.dim, -1),
                         fmt::format("{} over {} of {}", name, c.dim, to_string(c.sizes)));
      }
    }
  }
}

TEST(Softmax, OverAnyDimHasTheBitsOfOneThread) {
  RankContext& context = RankContext::current();
  for (const Case& c : {Case{{1200, 333}, 0}, Case{{9, 300, 77}, 1}}) {
    const Tensor x = facets::sample_tensor(6, c.sizes, DType::f32, -6.0, 6.0);
    for (const auto& [name, op] : kOps) {
      context.set_threads(1);
      const Tensor alone = op(x, c.dim);
      for (const int threads : {2, 3, 7}) {
        context.set_threads(threads);
        expect_same_bits(op(x, c.dim), alone, fmt::format("{} on {} threads", name, threads));
      }
      context.set_threads(0);
    }
  }
}

}  // namespace
}  // namespace tutti
