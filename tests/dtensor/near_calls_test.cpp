// Sequences of calls that differ in one small argument. Plans, kernels and specs are kept by what a call is: a call
// that were taken for one like it would have that one's result. The tests run while all hashes collide, so that only
// whole keys tell calls apart.
#include <fmt/ranges.h>

#include <random>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/core/hash.h"
#include "tutti/dist/stage.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/clamp.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/diagonal.h"
#include "tutti/ops/einsum.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/flip.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/pad.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/topk.h"
#include "tutti/ops/unfold.h"
#include "tutti/ops/where.h"

namespace tutti::dist {
namespace {

struct NamedCall {
  std::string name;
  std::function<Tensor(const Tensor&)> run;
  Tensor expected = {};
};
struct Family {
  std::string name;
  Tensor operand;
  std::vector<NamedCall> calls;
};

// Every subset of the dims of a tensor, in both orders.
std::vector<Dims> dim_lists(int ndim) {
  std::vector<Dims> lists;
  for (int set = 1; set < 1 << ndim; ++set) {
    Dims up, down;
    for (int d = 0; d < ndim; ++d) {
      if ((set >> d & 1) != 0) up.push_back(d);
    }
    for (int i = up.ndim() - 1; i >= 0; --i) down.push_back(up[i]);
    lists.push_back(up);
    if (up.ndim() > 1) lists.push_back(down);
  }
  return lists;
}

Family over_dims(const std::string& name, const Tensor& operand,
                 const std::function<Tensor(const Tensor&, const Dims&)>& fn) {
  Family family{name, operand, {}};
  for (const Dims& dims : dim_lists(operand.ndim()))
    family.calls.push_back({fmt::format("{} over {}", name, dims), [=](const Tensor& x) { return fn(x, dims); }});
  return family;
}

Family of_shapes(const std::string& name, const Tensor& operand, const std::vector<Shape>& shapes,
                 const std::function<Tensor(const Tensor&, const Shape&)>& fn) {
  Family family{name, operand, {}};
  for (const Shape& shape : shapes)
    family.calls.push_back({fmt::format("{} to {}", name, shape), [=](const Tensor& x) { return fn(x, shape); }});
  return family;
}

// With the results of one rank, which are worked out while hashes differ.
std::vector<Family> families() {
  const Tensor x = sample({2, 4, 3, 5}), one = sample({1}), square = sample({6, 6}),
               whole = cast(sample({4, 6}), DType::i64);
  std::vector<Family> all;
  all.push_back(over_dims("flip", x, [](const Tensor& t, const Dims& dims) { return flip(t, dims); }));
  for (const bool keepdim : {false, true}) {
    const std::string kept = keepdim ? ", kept" : "";
    all.push_back(over_dims("sum" + kept, x, [=](const Tensor& t, const Dims& dims) {
      return sum(t, {.dims = dims, .keepdim = keepdim});
    }));
    all.push_back(over_dims("amax" + kept, x, [=](const Tensor& t, const Dims& dims) {
      return amax(t, {.dims = dims, .keepdim = keepdim});
    }));
    all.push_back(over_dims("mean" + kept, x, [=](const Tensor& t, const Dims& dims) {
      return mean(t, {.dims = dims, .keepdim = keepdim});
    }));
    all.push_back(over_dims("var" + kept, x, [=](const Tensor& t, const Dims& dims) {
      return var(t, {.dims = dims, .keepdim = keepdim});
    }));
  }
  all.push_back(of_shapes("reshape", one, {{1}, {}, {1, 1}, {1, 1, 1}},
                          [](const Tensor& t, const Shape& shape) { return reshape(t, shape); }));
  all.push_back(of_shapes("reshape", square, {{36}, {6, 6}, {2, 3, 6}, {6, 2, 3}, {3, 12}, {12, 3}, {6, 6, 1}},
                          [](const Tensor& t, const Shape& shape) { return reshape(t, shape); }));
  all.push_back(of_shapes("expand", one, {{5}, {2, 4}, {1}, {5, 1}, {1, 5}},
                          [](const Tensor& t, const Shape& shape) { return expand(t, shape); }));
  Family einsums{"einsum", square, {}};
  for (const char* equation : {"ab,ab->a", "ab,ab->", "ab,ab->b", "ab,ab->ab", "ab,ab->ba", "ab,bc->ac", "ab,bc->ca",
                               "ab,bc->a", "ab,ac->bc", "ab,cb->ac"}) {
    einsums.calls.push_back(
        {fmt::format("einsum {}", equation), [equation](const Tensor& t) { return einsum(equation, t, t); }});
  }
  all.push_back(einsums);

  Family numbers{"a number beside integers", whole, {}};
  for (const Scalar& s : {Scalar(1), Scalar(1.0), Scalar(1.5), Scalar(true), Scalar(0), Scalar(2), Scalar(-0.5)}) {
    numbers.calls.push_back({fmt::format("add {}", s.to_string()), [s](const Tensor& t) { return add(t, s); }});
    numbers.calls.push_back({fmt::format("mul {}", s.to_string()), [s](const Tensor& t) { return mul(t, s); }});
    numbers.calls.push_back({fmt::format("gt {}", s.to_string()), [s](const Tensor& t) { return gt(t, s); }});
    numbers.calls.push_back(
        {fmt::format("where {}", s.to_string()), [s](const Tensor& t) { return where(gt(t, 0), t, s); }});
  }
  all.push_back(numbers);

  Family one_dim{"one dim", x, {}};
  for (int64_t d = 0; d < 4; ++d) {
    one_dim.calls.push_back({fmt::format("softmax {}", d), [d](const Tensor& t) { return softmax(t, d); }});
    one_dim.calls.push_back({fmt::format("cumsum {}", d), [d](const Tensor& t) { return cumsum(t, d); }});
    one_dim.calls.push_back({fmt::format("unsqueeze {}", d), [d](const Tensor& t) { return unsqueeze(t, d); }});
    one_dim.calls.push_back({fmt::format("argmax {}", d), [d](const Tensor& t) { return argmax(t, {.dim = d}); }});
    for (const bool descending : {false, true})
      one_dim.calls.push_back(
          {fmt::format("argsort {} {}", d, descending), [=](const Tensor& t) { return argsort(t, d, descending); }});
    for (int64_t n = 0; n < 2; ++n) {
      one_dim.calls.push_back({fmt::format("select {} {}", d, n), [=](const Tensor& t) { return select(t, d, n); }});
      one_dim.calls.push_back({fmt::format("narrow {} {}", d, n), [=](const Tensor& t) { return narrow(t, d, n, 1); }});
      one_dim.calls.push_back(
          {fmt::format("slice {} {}", d, n), [=](const Tensor& t) { return slice(t, d, n, 2, n + 1); }});
      one_dim.calls.push_back({fmt::format("roll {} {}", d, n), [=](const Tensor& t) { return roll(t, n + 1, d); }});
      one_dim.calls.push_back(
          {fmt::format("unfold {} {}", d, n), [=](const Tensor& t) { return unfold(t, d, n + 1, 1); }});
      for (const double value : {0.0, 1.0})
        one_dim.calls.push_back(
            {fmt::format("pad {} {} {}", d, n, value), [=](const Tensor& t) { return pad(t, d, n, 1 - n, value); }});
    }
    for (int64_t e = 0; e < 4; ++e) {
      if (e == d) continue;
      one_dim.calls.push_back(
          {fmt::format("transpose {} {}", d, e), [=](const Tensor& t) { return transpose(t, d, e); }});
      one_dim.calls.push_back(
          {fmt::format("diagonal {} {}", d, e), [=](const Tensor& t) { return diagonal(t, 0, d, e); }});
    }
  }
  all.push_back(one_dim);

  Family options{"options", square, {}};
  options.calls.push_back({"clamp from below", [](const Tensor& t) { return clamp(t, {.min = 0.0}); }});
  options.calls.push_back({"clamp from above", [](const Tensor& t) { return clamp(t, {.max = 0.0}); }});
  options.calls.push_back({"clamp", [](const Tensor& t) { return clamp(t, {.min = 0.0, .max = 0.0}); }});
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::boolean}) {
    options.calls.push_back(
        {fmt::format("cast to {}", name_of(dtype)), [dtype](const Tensor& t) { return cast(t, dtype); }});
  }
  for (const int64_t correction : {0, 1, 2})
    options.calls.push_back({fmt::format("var {}", correction),
                             [=](const Tensor& t) { return var(t, {.correction = static_cast<double>(correction)}); }});
  all.push_back(options);
  for (Family& family : all) {
    for (NamedCall& call : family.calls) call.expected = call.run(family.operand);
  }
  return all;
}

class NearCalls : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, NearCalls,
                         ::testing::Values(std::vector<int64_t>{2}, std::vector<int64_t>{3}, std::vector<int64_t>{2, 1},
                                           std::vector<int64_t>{2, 2}));

void check_in_any_order(const std::vector<Family>& all, const std::vector<int64_t>& shape, uint32_t seed) {
  on_mesh(shape, [&](const Mesh& mesh) {
    std::mt19937 random(seed);
    for (const Family& family : all) {
      for (int d = shape.size() == 1 ? -1 : static_cast<int>(random() % 2); d < family.operand.ndim();
           d += static_cast<int>(shape.size())) {
        Placements placements(shape.size());
        if (d >= 0) placements[random() % shape.size()] = shard(d);
        const Tensor x = distribute_tensor(family.operand, mesh, placements, {.src_data_rank = -1});
        std::vector<const NamedCall*> calls;
        for (const NamedCall& call : family.calls) calls.push_back(&call), calls.push_back(&call);
        std::shuffle(calls.begin(), calls.end(), random);
        const NamedCall* before = nullptr;
        for (const NamedCall* call : calls) {
          const std::string about = fmt::format("{} of {} after {}", call->name, spec_of(x).to_string(),
                                                before == nullptr ? "nothing" : before->name);
          require_none(difference(full_tensor(call->run(x)), call->expected), about);
          before = call;
        }
      }
    }
  });
}

TEST_P(NearCalls, HaveResultsOfTheirOwnInAnyOrder) {
  const codegen::ContractionLeafForTests leaf(2);
  check_in_any_order(families(), GetParam(), 1);
}

TEST_P(NearCalls, HaveResultsOfTheirOwnWhereAllHashesCollide) {
  const codegen::ContractionLeafForTests leaf(2);
  const std::vector<Family> all = families();
  const CollidingHashesForTests colliding;
  check_in_any_order(all, GetParam(), 2);
}

// Compiled functions are kept by their arguments, whatever these are.
TEST_P(NearCalls, HaveResultsOfTheirOwnInCompiledFunctions) {
  const CollidingHashesForTests colliding;
  on_mesh(GetParam(), [](const Mesh& mesh) {
    const Tensor plain = sample({4, 6});
    const auto eager = [](const Tensor& t, int64_t dim, double factor, bool keepdim,
                          const std::vector<int64_t>& flipped) {
      return add(mul(softmax(t, dim), factor), sum(flip(t, Dims(flipped)), {.dims = {dim}, .keepdim = keepdim}));
    };
    const auto fn = compile(eager, {.recompile_limit = 1000});
    const Tensor x = distribute_tensor(plain, mesh, {}, {.src_data_rank = -1});
    const auto check = [&](int64_t dim, double factor, bool keepdim, const std::vector<int64_t>& flipped) {
      require_none(
          difference(full_tensor(fn(x, dim, factor, keepdim, flipped)), eager(plain, dim, factor, keepdim, flipped)),
          fmt::format("dim {}, factor {}, kept {}, flipped [{}]", dim, factor, keepdim, fmt::join(flipped, ", ")));
    };
    for (int round = 0; round < 2; ++round) {
      for (const std::vector<int64_t>& flipped : std::vector<std::vector<int64_t>>{{}, {1}, {0, 1}, {1, 0}, {0}}) {
        for (const double factor : {0.0, -0.0, 1.0, 2.0}) {
          check(0, factor, false, flipped);
          check(0, factor, true, flipped);
          check(1, factor, true, flipped);
        }
      }
    }
  });
}

// The sharding rule of a product over tokens names the leaf of its tree.
TEST(NearCallsOfOneRank, AnotherTokenGrainIsAnotherPlan) {
  const Tensor a = sample({4, 8}), b = sample({8, 3}, DType::f32, 2);
  on_mesh({2}, [&](const Mesh& mesh) {
    const Tensor x = distribute_tensor(a, mesh, {shard(1)}, {.src_data_rank = -1}),
                 y = distribute_tensor(b, mesh, {shard(0)}, {.src_data_rank = -1});
    for (const int64_t grain : {2, 8, 4, 2, 3, 8, 1}) {
      const TokenGrainScope scope(grain);
      const MatmulOptions over_tokens{.axis = ContractionAxis::tokens};
      require_none(difference(full_tensor(matmul(x, y, over_tokens)), matmul(a, b, over_tokens)),
                   fmt::format("a grain of {}", grain));
    }
  });
}

TEST(NearCallsOfOneRank, ARuleThatChangesIsAnotherPlan) {
  const Tensor plain = sample({4, 6});
  const OpDef& op = find_op("flip");
  on_mesh({2}, [&](const Mesh& mesh) {
    const Tensor x = distribute_tensor(plain, mesh, {shard(0)}, {.src_data_rank = -1});
    EXPECT_EQ(placements_of(flip(x, {1})), Placements{shard(0)});
    mesh->group()->barrier();
    if (mesh->rank() == 0) register_sharding(op, [](const OpCall&) { return std::string("x[AB] -> y[AB]"); });
    mesh->group()->barrier();
    EXPECT_EQ(placements_of(flip(x, {1})), Placements{replicate()});
    mesh->group()->barrier();
    if (mesh->rank() == 0) register_sharding(op, nullptr);
    mesh->group()->barrier();
    EXPECT_EQ(placements_of(flip(x, {1})), Placements{shard(0)});
  });
}

}  // namespace
}  // namespace tutti::dist
