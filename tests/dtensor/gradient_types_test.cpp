// What cotangents may be where plain code and distributed tensors meet, and what is refused.
#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/reduction.h"

namespace tutti::dist {
namespace {

Tensor on(const Mesh& mesh, const Tensor& whole, Placements placements) {
  return distribute_tensor(whole, mesh, std::move(placements), {.src_data_rank = -1});
}

TEST(GradientTypes, GradPlacementsThatNoGradientHasAreRefused) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 4}), cut = on(mesh, whole, {shard(0), replicate()}),
                 terms = from_local(whole, mesh, {partial(), replicate()});
    EXPECT_USAGE_ERROR(to_local(cut, Placements{shard(1), replicate()}), "shard another dim than the tensor");
    EXPECT_USAGE_ERROR(to_local(cut, Placements{partial(), replicate()}), "differ in what is sharded");
    EXPECT_USAGE_ERROR(to_local(cut, Placements{shard(0), shard(0)}), "differ in what is sharded");
    EXPECT_USAGE_ERROR(to_local(cut, Placements{shard(0)}), "for 2 mesh dims; give one per dim");
    EXPECT_USAGE_ERROR(
        to_local(terms, Placements{partial(), replicate()}),
        "mesh dim 0 holds terms, and the cotangent of each term is that of the whole; use Replicate there");
    EXPECT_USAGE_ERROR(to_local(cut, Placements{shard(0), partial(PartialOp::max)}),
                       "cotangents that ranks hold in terms add up; use P(sum) on mesh dim 1");
    EXPECT_USAGE_ERROR(
        from_local(whole, mesh, {partial(), replicate()}, {.grad_placements = Placements{partial(), replicate()}}),
        "mesh dim 0 holds terms");
    EXPECT_USAGE_ERROR(full_tensor(cut, Placements{partial(PartialOp::prod), replicate()}),
                       "cotangents that ranks hold in terms add up");
    const auto same = [](std::span<const Tensor> parts) { return std::vector<Tensor>{parts[0]}; };
    EXPECT_USAGE_ERROR(
        local_map(same, {{cut}},
                  {.out_placements = {{shard(0), replicate()}}, .in_grad_placements = {{replicate(), replicate()}}}),
        "differ in what is sharded");
  });
}

TEST(GradientTypes, TermsOfAverageGetTheirShare) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    on_mesh({2, 2}, [&](const Mesh& mesh) {
      const Tensor local = requires_grad_(sample({4}, dtype, static_cast<uint64_t>(mesh->rank())));
      backward(sum(mul(from_local(local, mesh, {partial(PartialOp::avg), partial()}), 3.0)));
      EXPECT_EQ(grad_of(local).data<float>()[0], 1.5f) << name_of(dtype);
    });
  }
}

TEST(GradientTypes, TermsOfOtherReductionsHaveNone) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor local = requires_grad_(sample({4}));
    for (const PartialOp op : {PartialOp::max, PartialOp::min, PartialOp::prod}) {
      EXPECT_USAGE_ERROR(from_local(local, mesh, {partial(op)}),
                         "have no gradient, and the part requires one; use comm::functional::all_reduce()");
      from_local(detach(local), mesh, {partial(op)});
      const NoGradScope no_grad;
      from_local(local, mesh, {partial(op)});
    }
  });
}

// Code on replicas that differs between ranks: each has a term of the gradient, which nothing but the values can tell.
TEST(GradientTypes, ReplicasOfACotangentThatDifferAreFound) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const auto gradient = [&](std::optional<Placements> grad_placements) {
      const Tensor t = requires_grad_(on(mesh, sample({4, 2}), {shard(0), replicate()}));
      const CheckGradientsScope checked;
      backward(sum(mul(to_local(t, std::move(grad_placements)), static_cast<double>(mesh->coordinate()[1] + 1))));
      return full_tensor(grad_of(t));
    };
    EXPECT_USAGE_ERROR(gradient({}),
                       "backward of to_local: the cotangent of the part of f32[4, 2]@[S(0), R]: mesh dim 1 is said to "
                       "hold replicas, and that of rank 1 differs from the first one; where the "
                       "code on the parts differs between ranks, to_local() takes grad_placements with P(sum)");
    EXPECT_EQ(gradient(Placements{shard(0), partial()}).data<float>()[0], 3.0f);
    const Tensor t = requires_grad_(on(mesh, sample({4, 2}), {shard(0), replicate()}));
    const CheckGradientsScope checked;
    backward(sum(mul(to_local(t), 2.0)));
    EXPECT_EQ(full_tensor(grad_of(t)).data<float>()[0], 2.0f);
  });
}

TEST(GradientTypes, CotangentsOfAnotherKindAreRefused) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 2}), x = requires_grad_(on(mesh, whole, {shard(0)})),
                 plain = requires_grad_(whole.alias());
    EXPECT_USAGE_ERROR(
        backward(mul(x, 2.0), whole),
        "backward: the tensor [4, 2] f32 cpu is not distributed; make it so with distribute_tensor() or from_local()");
    EXPECT_USAGE_ERROR(
        backward(mul(plain, 2.0), on(mesh, whole, {shard(0)})),
        "is distributed, and the output [4, 2] f32 cpu is a plain tensor; give the part of the cotangent (to_local())");
  });
}

}  // namespace
}  // namespace tutti::dist
