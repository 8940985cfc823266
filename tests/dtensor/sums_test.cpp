// Ops whose sums are trees that ranks cut: what travels is terms of the result, and the bits are those of one rank.
#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/grouped_mm.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/statistics.h"

namespace tutti::dist {
namespace {

Tensor on(const Mesh& mesh, const Tensor& whole, Placements placements, Cut cut = Cut::halving) {
  return distribute_tensor(whole, mesh, std::move(placements), {.layout = {.cut = cut}, .src_data_rank = -1});
}

// Sums of rows have leaves of 512 elements: 4 ranks can cut 2,048 of them, and 3 ranks none.
TEST(DistributedMean, SendsTermsOfTheResultOnly) {
  for (const int64_t ranks : {int64_t{2}, int64_t{4}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      on_mesh({ranks}, [&](const Mesh& mesh) {
        const Tensor whole = sample({3, 2051}, dtype);
        for (const bool keepdim : {false, true}) {
          const CommCounter counter;
          const Tensor y = mean(on(mesh, whole, {shard(1)}), {.dims = {1}, .keepdim = keepdim});
          require_none(difference(full_tensor(y), mean(whole, {.dims = {1}, .keepdim = keepdim})),
                       fmt::format("{} on {} ranks", name_of(dtype), ranks));
          if (counter.total().bytes > 64)
            throw std::logic_error(counter.to_string());  // three numbers and their terms, and none of 6,153 elements
        }
      });
    }
  }
}

TEST(DistributedMean, HasTheBitsOfOneRankInEveryLayout) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2}, std::vector<int64_t>{3}, std::vector<int64_t>{4}, std::vector<int64_t>{2, 2}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i64}) {
        const Tensor whole = sample({4, 1100, 3}, dtype);
        for (const int dim : {-1, 0, 1, 2}) {
          for (const Cut cut : {Cut::halving, Cut::chunk}) {
            const Tensor x = on(mesh, whole, Placements(shape.size(), dim < 0 ? replicate() : shard(dim)), cut);
            for (const Dims& dims : {Dims{}, Dims{1}, Dims{0, 1}, Dims{2}, Dims{0}}) {
              require_none(difference(full_tensor(mean(x, {.dims = dims})), mean(whole, {.dims = dims})),
                           fmt::format("{}, S({}), dims [{}], on {}", name_of(dtype), dim, fmt::join(dims, ","),
                                       mesh->to_string()));
            }
          }
        }
      }
    });
  }
}

TEST(DistributedMean, HasTheGradientsOfOneRank) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor whole = sample({3, 2048}, dtype);
    const Tensor plain = requires_grad_(whole.alias());
    backward(sum(mul(mean(plain, {.dims = {1}}), 3.0)));
    on_mesh({4}, [&](const Mesh& mesh) {
      for (const Placement& p : {replicate(), shard(0), shard(1)}) {
        const Tensor x = requires_grad_(on(mesh, whole, {p}));
        backward(sum(mul(mean(x, {.dims = {1}}), 3.0)));
        require_none(difference(full_tensor(grad_of(x)), grad_of(plain)), tutti::to_string(p));
      }
    });
  }
}

TEST(DistributedMean, OfNoElementsIsNoNumber) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor y = full_tensor(mean(on(mesh, sample({2, 0}), {shard(1)}), {.dims = {1}}));
    if (y.extents() != Extents{2} || !std::isnan(y.data<float>()[0])) throw std::logic_error(tutti::to_string(y));
  });
}

// Experts whose hidden dim is cut: the products with their rows are terms, as those of a row-parallel layer are.
TEST(DistributedGroupedProducts, SendTermsOfTheResultOnly) {
  const codegen::ContractionLeafForTests leaf(2);
  const Tensor a = sample({11, 16}), b = sample({3, 16, 5}), offsets = Tensor::of<int64_t>({4, 4, 9});
  const Tensor plain_a = requires_grad_(a.alias()), plain_b = requires_grad_(b.alias());
  const Tensor cotangent = sample({11, 5}, DType::f32, 9);
  backward(grouped_mm(plain_a, plain_b, offsets), cotangent);
  for (const int64_t ranks : {int64_t{2}, int64_t{4}}) {
    on_mesh({ranks}, [&](const Mesh& mesh) {
      const Tensor cut_a = requires_grad_(on(mesh, a, {shard(1)})), cut_b = requires_grad_(on(mesh, b, {shard(1)})),
                   ends = on(mesh, offsets, {});
      const CommCounter counter;
      const Tensor y = grouped_mm(cut_a, cut_b, ends);
      if (!(placements_of(y) == Placements{partial()}) || counter.total().collectives != 0)
        throw std::logic_error(spec_of(y).to_string() + " after " + counter.to_string());
      require_none(difference(full_tensor(y), grouped_mm(a, b, offsets)), "result");
      backward(y, on(mesh, cotangent, {}));
      require_none(difference(full_tensor(grad_of(cut_a)), grad_of(plain_a)), "gradient of the rows");
      require_none(difference(full_tensor(grad_of(cut_b)), grad_of(plain_b)), "gradient of the weights");
      // The other half of an expert: columns are cut, and the gradient of the rows is what is summed.
      const Tensor rows = requires_grad_(on(mesh, a, {})),
                   columns = requires_grad_(on(mesh, sample({3, 16, 8}), {shard(2)}));
      const Tensor wide = grouped_mm(rows, columns, ends);
      if (!(placements_of(wide) == Placements{shard(1)})) throw std::logic_error(spec_of(wide).to_string());
      const CommCounter backward_counter;
      backward(wide, on(mesh, sample({11, 8}, DType::f32, 5), {shard(1)}));
      if (backward_counter.of(StepKind::gather).collectives + backward_counter.of(StepKind::exchange).collectives != 0)
        throw std::logic_error(backward_counter.to_string());
      const Tensor plain_rows = requires_grad_(a.alias());
      tutti::backward(grouped_mm(plain_rows, sample({3, 16, 8}), offsets), sample({11, 8}, DType::f32, 5));
      require_none(difference(full_tensor(grad_of(rows)), grad_of(plain_rows)), "gradient of whole rows");
    });
  }
}

}  // namespace
}  // namespace tutti::dist
