// Collectives joined with the matrix products next to them in compiled functions: the bits of one after the other, on
// every transport.
#include <gtest/gtest.h>

#include "tests/comm/support/compiled_support.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/matmul_sum.h"
#include "tutti/ops/permute.h"

namespace tutti::comm::functional {
namespace {

using compiled_test::expect_same;
using compiled_test::values;

// Products of a gathered tensor, and one whose sum is scattered: what a tensor-parallel block computes.
TEST(JoinProducts, HaveTheBitsOfCollectivesAndProducts) {
  for (const std::string& transport : world_transports()) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        run_over(transport, ranks, [&](ProcessGroup& group) {
          const int64_t n = group.size();
          const auto fn = [&](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& c) {
            const Tensor whole = all_gather_single(x, 0, group);
            const Tensor left = matmul(whole, a), right = matmul(whole, b);
            const Tensor hidden = mul(left, right);
            const Tensor part = reduce_scatter_single(matmul(hidden, c, {.out_dtype = DType::f32}), "sum", 0, group);
            const Tensor terms[] = {hidden, left}, weights[] = {c, mul(c, 0.5)};
            const Tensor of_sum =
                reduce_scatter_single(matmul_sum(terms, weights, {.out_dtype = DType::f32}), "sum", 0, group);
            return std::vector<Tensor>{part, of_sum, matmul(whole, mul(a, 2.0)), mul(whole, 3.0)};
          };
          const auto f = compile(fn, {.collectives = {.join_products = true}});
          for (const int64_t rows : {5, 200, 0}) {
            const auto of = [&](const Extents& sizes, int seed) {
              return cast(values(sizes, group.rank(), seed), dtype);
            };
            const Tensor x = of({rows, 130}, 1), a = of({130, 33}, 2), b = of({130, 33}, 3), c = of({33, 17}, 4);
            const auto got = f(x, a, b, c), expected = fn(x, a, b, c);
            for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
          }
          TUTTI_CHECK(f.statistics().last.joined == 4, "{} products of {} ranks joined in\n{}",
                      f.statistics().last.joined, n, f.explain());
        });
      }
    }
  }
}

// What must not join: a product whose other operand comes later, one of another tree, terms that somebody else reads or
// that are rounded, and operands that are overwritten.
TEST(JoinProducts, LeaveWhatCannotJoinAsItIs) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto joined = [&](const auto& fn, const Tensor& x, const Tensor& w) {
      const auto f = compile(fn, {.collectives = {.join_products = true}});
      const auto got = f(clone(x), clone(w)), expected = fn(clone(x), clone(w));
      for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
      return f.statistics().last.joined;
    };
    const Tensor x = values({8, 8}, group.rank(), 1), w = values({8, 8}, group.rank(), 2);
    using Results = std::vector<Tensor>;
    const auto later = [&](const Tensor& a, const Tensor& b) {
      const Tensor whole = all_gather_single(a, 0, group);
      return Results{matmul(whole, matmul(b, matmul(transpose(whole, 0, 1), whole)))};
    };
    TUTTI_CHECK(joined(later, x, w) == 0, "the operand comes of the result");
    const auto tokens = [&](const Tensor& a, const Tensor& b) {
      return Results{matmul(all_gather_single(a, 0, group), b, {.axis = ContractionAxis::tokens})};
    };
    TUTTI_CHECK(joined(tokens, x, w) == 0, "another tree");
    const auto both = [&](const Tensor& a, const Tensor& b) {
      const Tensor terms = matmul(a, b);
      return Results{reduce_scatter_single(terms, "sum", 0, group), mul(terms, 2.0)};
    };
    TUTTI_CHECK(joined(both, x, w) == 0, "terms that are read elsewhere");
    const auto rounded = [&](const Tensor& a, const Tensor& b) {
      return Results{reduce_scatter_single(matmul(a, b), "sum", 0, group)};
    };
    TUTTI_CHECK(joined(rounded, cast(x, DType::bf16), cast(w, DType::bf16)) == 0, "rounded terms");
    const auto most = [&](const Tensor& a, const Tensor& b) {
      return Results{reduce_scatter_single(matmul(a, b), "max", 0, group)};
    };
    TUTTI_CHECK(joined(most, x, w) == 0, "no sum");
    const auto overwritten = [&](const Tensor& a, const Tensor& b) {
      const Tensor terms = matmul(a, b);
      mul_(b, 0.5);
      return Results{reduce_scatter_single(terms, "sum", 0, group), add(b, 1.0)};
    };
    TUTTI_CHECK(joined(overwritten, x, w) == 0, "an overwritten operand");
    const auto other_side = [&](const Tensor& a, const Tensor& b) {
      return Results{matmul(b, all_gather_single(a, 0, group))};
    };
    TUTTI_CHECK(joined(other_side, values({4, 8}, group.rank(), 3), w) == 0, "columns of the gathered tensor");
  });
}

}  // namespace
}  // namespace tutti::comm::functional
