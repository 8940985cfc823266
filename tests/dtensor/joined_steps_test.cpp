// Inputs of one op that have to move travel together where one collective can carry them.
#include "tutti/dist/joined_steps.h"
#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/add_in_order.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"

namespace tutti::dist {
namespace {

Tensor on(const Mesh& mesh, const Tensor& t, Placements p) { return distribute_tensor(t, mesh, std::move(p)); }
// Terms of a sum, another on each rank, and on all meshes of two ranks the same whole.
Tensor terms(const Mesh& mesh, const Extents& sizes, uint64_t seed, DType dtype = DType::f32) {
  return from_local(sample(sizes, dtype, seed + 100 * static_cast<uint64_t>(mesh->rank())), mesh, {partial()});
}

void require_count(const CommCounter& counter, int64_t wanted, const std::string& about) {
  if (counter.total().collectives != wanted)
    throw std::logic_error(fmt::format("{} collectives, expected {}; {}\n{}", counter.total().collectives, wanted,
                                       about, counter.to_string()));
}

TEST(JoinedSteps, PendingTermsOfASumTravelInOneCall) {
  for (const int64_t ranks : {2, 4}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Extents& sizes : {Extents{8, 4}, Extents{3, 5}}) {
        on_mesh({ranks}, [&](const Mesh& mesh) {
          const std::string about = fmt::format("{} ranks, {} {}", ranks, name_of(dtype), sizes);
          const Tensor list[] = {terms(mesh, sizes, 1, dtype), terms(mesh, sizes, 2, dtype),
                                 terms(mesh, sizes, 3, dtype), terms(mesh, sizes, 4, dtype)};
          const Tensor expected =
              add(add(add(full_tensor(list[0]), full_tensor(list[1])), full_tensor(list[2])), full_tensor(list[3]));
          const CommCounter counter;
          const Tensor sum = add_in_order(list);
          require_count(counter, 1, about);
          require_none(difference(full_tensor(sum), expected), about);
        });
      }
    }
  }
}

TEST(JoinedSteps, PendingTermsThatSeveralOpsReadTravelOnce) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor t = terms(mesh, {8, 4}, 1);
    const Tensor whole = full_tensor(t);
    const CommCounter counter;
    const Tensor a = exp(t), b = sin(t);
    require_count(counter, 1, "exp and sin of one tensor");
    require_none(difference(full_tensor(a), exp(whole)), "exp");
    require_none(difference(full_tensor(b), sin(whole)), "sin");
    // Terms that have changed since travel again.
    mul_(to_local(t), 2.0);
    require_none(difference(full_tensor(exp(t)), exp(mul(whole, 2.0))), "exp of other terms");
    EXPECT_EQ(placements_of(t), Placements{partial()});
  });
}

// A function that is compiled computes them anew at each call, also where they were there before it.
TEST(JoinedSteps, CompiledFunctionsReduceTheTermsOfEachCall) {
  const codegen::ContractionLeafForTests leaf(1);
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor held = terms(mesh, {8, 4}, 1);
    const Tensor before = exp(held);
    const auto fn = [&](const Tensor& x) {
      const Tensor pending = mul(held, x);  // reduces what is held
      const Tensor product = matmul(x, transpose(x, 0, 1));
      return add(sum(mul(exp(product), sin(product))), add(sum(pending), sum(exp(held))));
    };
    const auto f = compile(fn);
    for (const double factor : {1.0, 2.0, 0.5, 1.5}) {
      mul_(to_local(held), factor);
      const Tensor x = on(mesh, mul(sample({8, 4}, DType::f32, 7), 0.1 * factor), {shard(1)});
      require_none(difference(full_tensor(f(x)), full_tensor(fn(x))), fmt::format("factor {}", factor));
    }
  });
}

// The gradient of what several column-parallel products read: a term of each, from each rank.
TEST(JoinedSteps, TheGradientOfWhatColumnParallelProductsReadIsOneCall) {
  const codegen::ContractionLeafForTests leaf(1);
  for (const size_t products : {2, 3}) {  // gate and up; q, k and v
    const auto loss = [](const Tensor& x, const std::vector<Tensor>& weights) {
      Tensor y;
      for (const Tensor& w : weights) {
        const Tensor product = silu(matmul(x, w));
        y = y.defined() ? mul(y, product) : product;
      }
      return sum(y);
    };
    const Tensor whole = sample({8, 8});
    std::vector<Tensor> weights;
    for (size_t k = 0; k < products; ++k) weights.push_back(sample({8, 12}, DType::f32, 2 + k));
    const Tensor plain = requires_grad_(mul(whole, 1.0));
    backward(loss(neg(plain), weights));
    for (const int64_t ranks : {2, 4}) {
      on_mesh({ranks}, [&](const Mesh& mesh) {
        std::vector<Tensor> columns;
        for (const Tensor& w : weights) columns.push_back(on(mesh, w, {shard(1)}));
        const Tensor x = requires_grad_(on(mesh, whole, {}));
        const Tensor l = loss(neg(x), columns);
        const CommCounter counter;
        backward(l);
        const CommCount reductions{
            counter.of(StepKind::all_reduce).collectives + counter.of(StepKind::reduce_scatter).collectives, 0};
        if (reductions.collectives != 1)
          throw std::logic_error(
              fmt::format("{} reductions for {} products\n{}", reductions.collectives, products, counter.to_string()));
        require_none(difference(full_tensor(grad_of(x)), grad_of(plain)),
                     fmt::format("{} products on {} ranks", products, ranks));
      });
    }
  }
}

TEST(JoinedSteps, GathersOfSeveralInputsJoin) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor a = sample({4, 6}), b = sample({6, 8}, DType::f32, 2);
    const Tensor x = on(mesh, a, {shard(0)}), y = on(mesh, b, {shard(1)});
    Tensor parts[] = {to_local(x), to_local(y)};
    const PartMove moves[] = {{&spec_of(x), &spec_of(x).with({replicate()})},
                              {&spec_of(y), &spec_of(y).with({replicate()})}};
    const CommCounter counter;
    redistribute_parts(parts, moves, mesh);
    require_count(counter, 1, "two gathers");
    require_none(difference(parts[0], a), "a");
    require_none(difference(parts[1], b), "b");
  });
}

// Random transitions side by side are each what they are alone, on all ranks, whether or not their steps join.
TEST(JoinedSteps, AreWhatTheStepsAreAlone) {
  const std::vector<Placement> kinds = {replicate(), shard(0), shard(1), partial(), partial(PartialOp::max)};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 2}, {4}, {3}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      uint64_t state = 12345;  // the same on all ranks
      const auto draw = [&](size_t n) {
        state = state * 6364136223846793005 + 1442695040888963407;
        return static_cast<size_t>((state >> 33) % n);
      };
      for (int trial = 0; trial < 40; ++trial) {
        std::vector<PartMove> moves;
        std::vector<Tensor> parts, alone;
        for (size_t k = 0; k < 2 + draw(3); ++k) {
          const Extents sizes = draw(2) == 0 ? Extents{8, 4} : Extents{5, 3};
          const auto layout = [&](bool pending) -> const DTensorSpec* {
            Placements p;
            for (size_t axis = 0; axis < shape.size(); ++axis) p.push_back(kinds[draw(pending ? kinds.size() : 3)]);
            try {
              return &DTensorSpec::of(
                  {.mesh_id = mesh->id(), .mesh_shape = shape, .placements = p, .sizes = sizes, .dtype = DType::f32});
            } catch (const UsageError&) {
              return nullptr;  // terms of two kinds
            }
          };
          const DTensorSpec *from = layout(true), *to = layout(false);
          if (from == nullptr || to == nullptr) continue;
          moves.push_back({from, to});
          const Extents local = from->local_sizes(mesh->coordinate());
          // Copies are alike on all ranks, terms are not.
          Tensor part = sample(local, DType::f32, 7 + k);
          for (size_t axis = 0; axis < shape.size(); ++axis) {
            if (from->placements()[axis].is_partial())
              part = add(part, static_cast<double>(mesh->coordinate()[axis]) / 3);
          }
          parts.push_back(part);
          alone.push_back(redistributed_part(part, *from, *to, mesh));
        }
        redistribute_parts(parts, moves, mesh);
        for (size_t i = 0; i < parts.size(); ++i)
          require_none(
              difference(parts[i], alone[i]),
              fmt::format("trial {}: {} to {}", trial, moves[i].from->to_string(), moves[i].wanted->to_string()));
      }
    });
  }
}

TEST(JoinedSteps, TheOrderIsThatOfThePlansAndLosesNoStep) {
  const auto spec = [](Placements p) -> const DTensorSpec& {
    return DTensorSpec::of(
        {.mesh_id = 1, .mesh_shape = {2}, .placements = std::move(p), .sizes = {8, 4}, .dtype = DType::f32});
  };
  const RedistributePlan a = plan_redistribution(spec({partial()}), spec({replicate()})),
                         b = plan_redistribution(spec({shard(0)}), spec({replicate()})),
                         c = plan_redistribution(spec({partial()}), spec({replicate()}));
  const RedistributePlan* plans[] = {&a, &b, &c};
  const auto order = joined_steps(plans);
  ASSERT_EQ(order.size(), 2u);
  EXPECT_EQ(order[0], (std::vector<StepAt>{{0, 0}, {2, 0}}));
  EXPECT_EQ(order[1], (std::vector<StepAt>{{1, 0}}));
  EXPECT_EQ(saved_by_joining(plans, {.tabulated = {.latency = 3}}).collectives, 1);
  EXPECT_EQ(saved_by_joining(plans, {.tabulated = {.latency = 3}}).cost, 3);
}

}  // namespace
}  // namespace tutti::dist
