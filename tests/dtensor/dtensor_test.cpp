// Distributed tensors as their users meet them: conversions, ops, gradients, errors.
#include <cmath>
#include <limits>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/autograd/tape.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/groups.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/stage.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/avg_pool.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/dropout.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/flip.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/max_pool.h"
#include "tutti/ops/median.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/random.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::dist {
namespace {

Tensor on(const Mesh& mesh, const Tensor& t, Placements p) { return distribute_tensor(t, mesh, std::move(p)); }

TEST(DTensor, KnowsWhatItIs) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor t = on(mesh, sample({5, 4}), {shard(-2)});
    EXPECT_TRUE(is_dtensor(t));
    EXPECT_EQ(t.sizes(), (Shape{5, 4}));
    EXPECT_EQ(to_local(t).extents()[0], mesh->rank() == 0 ? 3 : 2);
    EXPECT_EQ(spec_of(t).to_string(), "f32[5, 4]@[S(0)]");
    EXPECT_EQ(describe(t), "[5, 4] f32 cpu [S(0)] on mesh(2)");
    EXPECT_EQ(tutti::to_string(t).substr(0, 14), "DTensor(local=");
    EXPECT_USAGE_ERROR(t.data<float>()[0], "which its ranks hold; take to_local()");
    EXPECT_EQ(t.storage()->state(), StorageState::sharded);
  });
}

TEST(DTensor, SourceRankGivesTheElements) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor mine = sample({5, 3}, DType::f32, static_cast<uint64_t>(mesh->rank()));
    for (int source = 0; source < 4; ++source) {
      const Tensor t = distribute_tensor(mine, mesh, {shard(0), replicate()}, {.src_data_rank = source});
      EXPECT_EQ(difference(full_tensor(t), sample({5, 3}, DType::f32, static_cast<uint64_t>(source))), "");
    }
    EXPECT_EQ(
        difference(to_local(distribute_tensor(mine, mesh, {replicate(), replicate()}, {.src_data_rank = -1})), mine),
        "");
  });
}

TEST(DTensor, ColumnAndRowParallelMlpHasTheBitsOfOneRank) {
  const codegen::ContractionLeafForTests leaf(4);
  const Tensor x = sample({6, 8}), w1 = sample({8, 12}, DType::f32, 2), w2 = sample({12, 8}, DType::f32, 3);
  const auto forward = [](const Tensor& a, const Tensor& b, const Tensor& c) { return matmul(silu(matmul(a, b)), c); };
  const Tensor expected = forward(x, w1, w2);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2}, std::vector<int64_t>{2, 2}, std::vector<int64_t>{1}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      Placements columns(shape.size(), replicate()), rows = columns;
      columns.back() = shard(1), rows.back() = shard(0);
      CommCounter counter;
      const Tensor y = forward(on(mesh, x, {}), on(mesh, w1, columns), on(mesh, w2, rows));
      EXPECT_TRUE(placements_of(y).back().is_partial());
      EXPECT_EQ(counter.total().collectives, 0);
      EXPECT_EQ(difference(full_tensor(y), expected), "");
    });
  }
}

TEST(DTensor, GradientsHaveTheBitsOfOneRankAndLieAsTheirLeaves) {
  const codegen::ContractionLeafForTests leaf(2);
  const Tensor x = sample({6, 8}), w1 = sample({8, 12}, DType::f32, 2), w2 = sample({12, 8}, DType::f32, 3);
  const auto loss = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return sum(mul(matmul(silu(matmul(a, b)), c), 0.5));
  };
  Tensor p1 = requires_grad_(clone(w1)), p2 = requires_grad_(clone(w2)), px = requires_grad_(clone(x));
  backward(loss(px, p1, p2));
  on_mesh({2}, [&](const Mesh& mesh) {
    const Tensor d1 = requires_grad_(on(mesh, w1, {shard(1)})), d2 = requires_grad_(on(mesh, w2, {shard(0)})),
                 dx = requires_grad_(on(mesh, x, {}));
    backward(loss(dx, d1, d2));
    for (const auto& [leaf_of, plain] : {std::pair{d1, p1}, {d2, p2}, {dx, px}}) {
      const Tensor grad = grad_of(leaf_of);
      ASSERT_TRUE(is_dtensor(grad));
      EXPECT_EQ(placements_of(grad), placements_of(leaf_of));
      EXPECT_EQ(difference(full_tensor(grad), grad_of(plain)), "");
    }
  });
}

TEST(DTensor, VocabularyParallelEmbedding) {
  const Tensor table = sample({7, 4}), indices = Tensor::of<int64_t>({0, 6, 3, 2, 5, 1}, {2, 3});
  const Tensor expected = embedding(table, indices);
  for (const int ranks : {2, 3, 4}) {
    on_mesh({ranks}, [&](const Mesh& mesh) {
      const Tensor y = embedding(on(mesh, table, {shard(0)}), on(mesh, indices, {}));
      EXPECT_EQ(placements_of(y), Placements{partial()});
      EXPECT_EQ(difference(full_tensor(y), expected), "");
    });
  }
}

TEST(DTensor, ViewsFollowTheirTensor) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 6});
    const Tensor t = on(mesh, whole, {shard(0)});
    CommCounter counter;
    EXPECT_EQ(placements_of(transpose(t, 0, 1)), Placements{shard(1)});
    EXPECT_EQ(placements_of(reshape(t, {2, 2, 6})), Placements{shard(0)});
    EXPECT_EQ(placements_of(reshape(t, {24})), Placements{shard(0)});
    EXPECT_EQ(placements_of(select(t, 1, 2)), Placements{shard(0)});
    const Tensor merged = reshape(transpose(t, 0, 1), {24});
    EXPECT_EQ(placements_of(merged), (Placements{Placement::shard(0, 6)}));
    EXPECT_EQ(counter.total().collectives, 0);
    EXPECT_EQ(difference(full_tensor(merged), reshape(transpose(whole, 0, 1), {24})), "");
    EXPECT_EQ(difference(full_tensor(select(t, 0, 3)), select(whole, 0, 3)), "");
  });
}

TEST(DTensor, InPlaceKeepsTheLayout) {
  static const OpDef whole_copy = [] {
    OpDef without = find_op("copy_");
    without.sharding = nullptr;  // all of its tensors are whole
    return without;
  }();
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 3}), other = sample({4, 3}, DType::f32, 5);
    const Tensor t = on(mesh, whole, {shard(0)});
    const uint32_t version = t.version();
    add_(t, on(mesh, other, {shard(1)}));
    EXPECT_EQ(placements_of(t), Placements{shard(0)});
    EXPECT_GT(t.version(), version);
    EXPECT_EQ(difference(full_tensor(t), add(whole, other)), "");
    EXPECT_EQ(to_local(t).version(), t.version());
    const Tensor pending = from_local(clone(whole), mesh, {partial()});
    add_(pending, on(mesh, other, {}));
    EXPECT_EQ(placements_of(pending), Placements{partial()});
    EXPECT_EQ(difference(full_tensor(pending), add(add(whole, whole), other)), "");
    EXPECT_USAGE_ERROR(call_op(whole_copy, Attrs(), t, t), "is written in place, so its layout [S(0)] must stay");
  });
}

TEST(DTensor, ItemAndEqualSpeakForTheWhole) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({5});
    const Tensor t = on(mesh, whole, {shard(0)});
    EXPECT_EQ(amax(t).item(), amax(whole).item());
    EXPECT_EQ(sum(t).item(), sum(whole).item());
    EXPECT_TRUE(equal(t, on(mesh, whole, {})));
    Tensor changed = clone(whole);
    changed.data<float>()[4] += 1;
    EXPECT_FALSE(equal(t, on(mesh, changed, {})));
    EXPECT_FALSE(equal(t, on(mesh, sample({4}), {})));
  });
}

TEST(DTensor, DrawsTheNumbersOfOneRank) {
  const RandomKey key = random_key("w");
  const Tensor u = uniform({5, 6, 4}, key), n = normal({5, 6, 4}, key);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3}, std::vector<int64_t>{2, 2}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      for (const Placements& p : {Placements(shape.size(), shard(0)), Placements(shape.size(), shard(1)),
                                  Placements(shape.size(), shard(2)), Placements{}}) {
        EXPECT_EQ(difference(full_tensor(rand({5, 6, 4}, key, mesh, p)), u), "") << to_string(p);
        EXPECT_EQ(difference(full_tensor(randn({5, 6, 4}, key, mesh, p)), n), "");
      }
      const Placements inner = shape.size() == 2 ? Placements{shard(1), shard(2)} : Placements{shard(1)};
      EXPECT_EQ(difference(full_tensor(rand({5, 6, 4}, key, mesh, inner)), u), "");
      const Tensor x = sample({6, 8});
      EXPECT_EQ(difference(full_tensor(dropout(on(mesh, x, Placements(shape.size(), shard(0))), 0.5, key)),
                           dropout(x, 0.5, key)),
                "");
    });
  }
}

TEST(DTensor, FactoriesMakeOnlyTheirPart) {
  on_mesh({2}, [](const Mesh& mesh) {
    EXPECT_EQ(difference(full_tensor(ones({3, 2}, mesh, {shard(0)})), tutti::ones({3, 2})), "");
    EXPECT_EQ(to_local(empty({4, 2}, mesh, {shard(0)})).extents(), (Extents{2, 2}));
    EXPECT_EQ(full({2}, 7, mesh, {}, DType::i64).dtype(), DType::i64);
    EXPECT_USAGE_ERROR(zeros({2}, mesh, {partial()}), "make the tensor replicated, then redistribute()");
    EXPECT_USAGE_ERROR(zeros({2}, mesh, {shard(1)}), "S(1) shards a dim that a tensor of [2] does not have");
  });
}

TEST(DTensor, LocalMapRunsOnUnevenParts) {
  on_mesh({3}, [](const Mesh& mesh) {
    const Tensor whole = sample({7, 2});
    for (const Cut cut : {Cut::halving, Cut::chunk}) {
      const Tensor t = distribute_tensor(whole, mesh, {shard(0)}, {.layout = {.cut = cut}});
      const auto out =
          local_map([](std::span<const Tensor> in) { return std::vector<Tensor>{mul(in[0], 2.0), sum(in[0])}; },
                    std::vector<Tensor>{t}, {.out_placements = {{shard(0)}, {partial()}}});
      EXPECT_EQ(difference(full_tensor(out[0]), mul(whole, 2.0)), "");
      EXPECT_TRUE(placements_of(out[1])[0].is_partial());
    }
    EXPECT_USAGE_ERROR(local_map([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0]}; },
                                 std::vector<Tensor>{on(mesh, whole, {shard(0)})},
                                 {.out_placements = {{shard(0)}}, .in_placements = {{replicate()}}}),
                       "and in_placements say [R]");
  });
}

TEST(DTensor, ToLocalAndFromLocalAreDifferentiable) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 3});
    const Tensor t = requires_grad_(on(mesh, whole, {shard(0)}));
    backward(sum(mul(to_local(t), static_cast<double>(mesh->rank() + 1))));
    EXPECT_EQ(to_local(grad_of(t)).data<float>()[0], static_cast<float>(mesh->rank() + 1));
    const Tensor local = requires_grad_(sample({2, 3}));
    backward(sum(mul(from_local(local, mesh, {shard(0)}), 3.0)));
    EXPECT_EQ(grad_of(local).data<float>()[0], 3.0f);
    const Tensor term = requires_grad_(sample({2, 3}));
    backward(sum(from_local(term, mesh, {partial()})));
    EXPECT_EQ(grad_of(term).data<float>()[0], 1.0f);
  });
}

TEST(DTensor, WrongUsesAreRefusedBeforeAnythingIsSent) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 4});
    const Tensor t = on(mesh, whole, {shard(0), replicate()});
    EXPECT_USAGE_ERROR(add(t, whole),
                       "add(f32[4, 4][S(0), R], f32[4, 4] (plain)) on mesh(2, 2): input 1 is the plain tensor [4, 4] "
                       "f32 cpu beside a distributed one");
    {
      const ImplicitReplicationScope replicated;
      EXPECT_EQ(difference(full_tensor(add(t, whole)), add(whole, whole)), "");
    }
    EXPECT_EQ(difference(full_tensor(mul(t, Tensor::scalar(2.0f))), mul(whole, 2.0)), "");
    const Mesh flat = init_device_mesh("cpu", {4});
    EXPECT_USAGE_ERROR(add(t, on(flat, whole, {shard(0)})), "input 1 is on mesh(4), the others on mesh(2, 2)");
    EXPECT_USAGE_ERROR(distribute_tensor(whole, mesh, {shard(0)}), "1 placements [S(0)] for the 2 dims of the mesh");
    EXPECT_USAGE_ERROR(distribute_tensor(whole, mesh, {partial(), replicate()}), "a whole tensor has no terms");
    EXPECT_USAGE_ERROR(distribute_tensor(t, mesh, {shard(1), replicate()}), "use redistribute()");
    EXPECT_USAGE_ERROR(distribute_tensor(whole, mesh, {}, {.src_data_rank = 4}),
                       "src_data_rank 4 is not one of the 4 ranks");
    EXPECT_USAGE_ERROR(from_local(whole, mesh, {partial(PartialOp::max), partial()}),
                       "holds two kinds of partial values");
    EXPECT_USAGE_ERROR(from_local(sample({2, 4}), mesh, {shard(0), replicate()}, {.sizes = Extents{5, 4}}),
                       mesh->rank() < 2 ? "gives a part of [2, 4]" : "no error");
    EXPECT_USAGE_ERROR(to_local(t, Placements{shard(1), replicate()}), "shard another dim than the tensor");
    EXPECT_USAGE_ERROR(to_local(t, Placements{replicate(), replicate()}), "differ in what is sharded");
    EXPECT_USAGE_ERROR(to_local(whole), "is not distributed; make it so with distribute_tensor()");
    EXPECT_USAGE_ERROR(redistribute(t, {}), "no placements are given");
    EXPECT_USAGE_ERROR(placement_from_text("S(x)"), "expected R, S(dim), P or P(op)");
    const StrictPlacementScope strict;
    EXPECT_USAGE_ERROR(add(t, on(mesh, whole, {shard(1), replicate()})),
                       "and a StrictPlacementScope is open; move them yourself with redistribute()");
    EXPECT_EQ(placements_of(add(t, t)), placements_of(t));
  });
}

TEST(DTensor, RunCheckFindsReplicasThatDiffer) {
  on_mesh({2}, [](const Mesh& mesh) {
    EXPECT_USAGE_ERROR(
        from_local(sample({3}, DType::f32, static_cast<uint64_t>(mesh->rank())), mesh, {}, {.run_check = true}),
        "that of rank 1 differs from the first one");
    EXPECT_USAGE_ERROR(from_local(mesh->rank() == 0 ? sample({3}) : sample({3, 1}), mesh, {}, {.run_check = true}),
                       "the part of rank 0 makes the whole");
  });
}

TEST(DTensor, MovesBetweenMeshes) {
  comm::run_ranks(4, [](comm::ProcessGroup& world) {
    const Tensor whole = sample({7, 5});
    const Mesh square = init_device_mesh("cpu", {2, 2}), line = init_device_mesh("cpu", {3});
    const Tensor t = on(square, whole, {shard(0), shard(1)});
    const Tensor moved = redistribute(t, line, {shard(1)});
    EXPECT_EQ(mesh_of(moved), line);
    if (world.rank() < 3) require_none(difference(full_tensor(moved), whole), "square to line");
    const Tensor back = redistribute(moved, square, {replicate(), shard(0)});
    require_none(difference(full_tensor(back), whole), "line to square");
    EXPECT_USAGE_ERROR(redistribute(from_local(whole, square, {partial(), replicate()}), line, {shard(0)}),
                       "terms cannot change their mesh");
  });
}

TEST(DTensor, BitwiseTermsAreForIntegers) {
  on_mesh({3}, [](const Mesh& mesh) {
    const int64_t mine = int64_t{1} << mesh->rank();
    const Tensor bits = Tensor::of<int64_t>({mine, 7, -1});
    EXPECT_EQ(full_tensor(from_local(bits, mesh, {partial(PartialOp::bor)})).data<int64_t>()[0], 7);
    EXPECT_EQ(full_tensor(from_local(bits, mesh, {partial(PartialOp::band)})).data<int64_t>()[0], 0);
    EXPECT_EQ(full_tensor(from_local(bits, mesh, {partial(PartialOp::bxor)})).data<int64_t>()[1], 7);
    for (const PartialOp op : {PartialOp::band, PartialOp::bor, PartialOp::bxor}) {
      EXPECT_EQ(
          difference(full_tensor(redistribute(on(mesh, bits, {}), {partial(op)})), full_tensor(on(mesh, bits, {}))),
          "");
    }
    EXPECT_USAGE_ERROR(from_local(sample({3}), mesh, {partial(PartialOp::bor)}),
                       "P(bor) combines bits, and a tensor of f32 has numbers");
  });
}

// Batch and channels lie on ranks; the planes stay whole, and indices count within them.
TEST(DTensor, PoolingAndOrderStatisticsNeedNoCommunication) {
  const Tensor x = sample({4, 6, 8, 8});
  on_mesh({2, 2}, [&](const Mesh& mesh) {
    const Tensor t = on(mesh, x, {shard(0), shard(1)});
    CommCounter counter;
    const MaxPoolResult pooled = max_pool2d_with_indices(t, {.kernel = {2}});
    const Tensor averaged = avg_pool2d(t, {.kernel = {3}}), adaptive = adaptive_avg_pool2d(t, {2, 2});
    const auto middle = median(t, 3);
    const auto largest = cummax(t, 2);
    EXPECT_EQ(counter.total().collectives, 0);
    const MaxPoolResult plain = max_pool2d_with_indices(x, {.kernel = {2}});
    require_none(difference(full_tensor(pooled.values), plain.values), "max_pool");
    require_none(difference(full_tensor(pooled.indices), plain.indices), "indices of max_pool");
    require_none(difference(full_tensor(averaged), avg_pool2d(x, {.kernel = {3}})), "avg_pool");
    require_none(difference(full_tensor(adaptive), adaptive_avg_pool2d(x, {2, 2})), "adaptive_avg_pool");
    require_none(difference(full_tensor(middle.indices), median(x, 3).indices), "median");
    require_none(difference(full_tensor(largest.second), cummax(x, 2).second), "cummax");
  });
}

// What one rank finds wrong, all report: none waits for a rank that has given up.
TEST(DTensor, RunCheckReportsOnAllRanks) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor own = sample({2, 3}, DType::f32, mesh->rank() == 3 ? 2 : 1);
    EXPECT_USAGE_ERROR(from_local(own, mesh, {}, {.run_check = true}),
                       "mesh dim 0 is said to hold replicas, and that of rank 3 differs from the first one");
    const Tensor uneven = sample({mesh->rank() < 2 ? 3 : 2, 3});
    EXPECT_USAGE_ERROR(from_local(uneven, mesh, {shard(0), replicate()}, {.run_check = true}),
                       "where parts are unequal, give the sizes of the whole");
    EXPECT_USAGE_ERROR(
        from_local(sample({3, 3}), mesh, {shard(0), replicate()}, {.sizes = Extents{5, 3}, .run_check = true}),
        "gives a part of [3, 3]");
    EXPECT_EQ(from_local(uneven, mesh, {shard(0), replicate()}, {.sizes = Extents{5, 3}, .run_check = true}).sizes(),
              (Shape{5, 3}));
    EXPECT_USAGE_ERROR(from_local(own, nullptr), "the mesh is null");
    EXPECT_USAGE_ERROR(from_local(Tensor(), mesh), "an undefined one");
  });
}

TEST(DTensor, LocalMapRefusesPartsThatMakeNoWholeOnAllRanks) {
  on_mesh({2}, [](const Mesh& mesh) {
    const std::vector<Tensor> in{on(mesh, sample({4, 2}), {shard(0)})};
    const bool is_first = mesh->rank() == 0;
    const auto with = [&](const Tensor& result, Placements placements) {
      return local_map([&](std::span<const Tensor>) { return std::vector<Tensor>{result}; }, in,
                       {.out_placements = {std::move(placements)}});
    };
    EXPECT_USAGE_ERROR(with(is_first ? sample({}) : sample({2}), {replicate()}),
                       "it has 0 dims on rank 0 and 1 on rank 1");
    EXPECT_USAGE_ERROR(with(sample({is_first ? 2 : 3}), {replicate()}), "rank 1 gives [3] where [2] is its part");
    EXPECT_USAGE_ERROR(with(sample({is_first ? 1 : 4}), {shard(0)}), "together the parts are f32[5]@[S(0)]");
    EXPECT_USAGE_ERROR(with(sample({2}), {shard(0), shard(0)}), "2 placements [S(0), S(0)] for the 1 dims of the mesh");
    EXPECT_EQ(with(sample({2}), {shard(-1)})[0].sizes(), (Shape{4}));
  });
}

TEST(DTensor, GradPlacementsMayCountDimsFromTheEnd) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor t = requires_grad_(on(mesh, sample({4, 2}), {shard(1)}));
    backward(sum(to_local(t, Placements{shard(-1)})));
    EXPECT_EQ(difference(full_tensor(grad_of(t)), tutti::ones({4, 2})), "");
  });
}

// Cotangents of parts that are terms of the cotangent of the whole.
TEST(DTensor, CotangentsOfReplicasMayBeTerms) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    on_mesh({2}, [&](const Mesh& mesh) {
      const Tensor t = requires_grad_(on(mesh, sample({4}, dtype), {}));
      backward(sum(mul(to_local(t, Placements{partial()}), static_cast<double>(mesh->rank() + 1))));
      EXPECT_EQ(full_tensor(grad_of(t)).dtype(), DType::f32);
      EXPECT_EQ(full_tensor(grad_of(t)).data<float>()[0], 3.0f);
      const Tensor local = requires_grad_(sample({4}, dtype));
      backward(sum(mul(from_local(local, mesh, {}, {.grad_placements = Placements{partial()}}), 3.0)));
      EXPECT_EQ(full_tensor(from_local(grad_of(local), mesh, {partial()})).data<float>()[0], 3.0f);
    });
  }
}

TEST(DTensor, RanksOfAMeshMayStandInAnyOrder) {
  comm::run_ranks(4, [](comm::ProcessGroup&) {
    const Tensor whole = sample({7, 5});
    for (const std::vector<int>& ranks : {std::vector<int>{3, 1, 0, 2}, std::vector<int>{2, 3, 0, 1}}) {
      const Mesh mesh = make_device_mesh("cpu", ranks, {2, 2}, {.names = {"a", "b"}});
      const Mesh turned = mesh->slice({"b", "a"});
      for (const Mesh& m : {mesh, turned}) {
        const Tensor t = distribute_tensor(whole, m, {shard(0), shard(1)}, {.src_data_rank = 2});
        require_none(difference(full_tensor(t), whole), "whole");
        const Tensor moved = redistribute(t, {shard(1), shard(1)}, {.layout = LayoutOptions{.order = {1, 0}}});
        require_none(difference(full_tensor(moved), whole), "moved");
        const Tensor terms = from_local(mul(whole, static_cast<double>(1 << m->ranks()[0])), m, {partial(), partial()});
        require_none(difference(full_tensor(redistribute(terms, {shard(1), shard(0)})), full_tensor(terms)), "terms");
      }
      require_none(
          difference(full_tensor(redistribute(on(mesh, whole, {shard(0), shard(0)}), turned, {replicate(), shard(1)})),
                     whole),
          "to the turned mesh");
    }
  });
}

TEST(DTensor, MovesToAMeshOfOtherRanks) {
  comm::run_ranks(4, [](comm::ProcessGroup& world) {
    const Tensor whole = sample({5, 3});
    const Mesh low = make_device_mesh("cpu", {1, 0}, {2}), high = make_device_mesh("cpu", {2, 3}, {2}),
               middle = make_device_mesh("cpu", {1, 2}, {2});
    const Tensor t = on(low, whole, {shard(0)});
    const auto check = [&](const Tensor& moved) {
      const Tensor all = full_tensor(moved);
      if (mesh_of(moved)->has_coordinate()) require_none(difference(all, whole), spec_of(moved).to_string());
    };
    // Only the ranks of the two meshes take part.
    if (world.rank() != 3) check(redistribute(t, middle, {shard(1)}));
    const Tensor far = redistribute(t, high, {replicate()});
    check(far);
    if (world.rank() != 0) check(redistribute(far, middle, {shard(0)}));
    EXPECT_USAGE_ERROR(redistribute(far, nullptr, {shard(0)}), "the mesh is null");
  });
}

TEST(DTensor, TermsOfEveryKindAndDtypeCombineAlikeInEvenAndUnevenParts) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  on_mesh({2}, [&](const Mesh& mesh) {
    const bool is_first = mesh->rank() == 0;
    for (const int64_t n : {int64_t{4}, int64_t{5}}) {
      for (const PartialOp op : {PartialOp::max, PartialOp::min}) {
        Tensor own = sample({n}, DType::f32, static_cast<uint64_t>(mesh->rank() + 1));
        own.data<float>()[1] = is_first ? nan : 1.0f;
        own.data<float>()[2] = is_first ? 0.0f : -0.0f;
        const Tensor t = from_local(own, mesh, {partial(op)});
        const Tensor reduced = full_tensor(t), scattered = full_tensor(redistribute(t, {shard(0)}));
        EXPECT_TRUE(std::isnan(reduced.data<float>()[1])) << name_of(op);
        EXPECT_EQ(std::signbit(reduced.data<float>()[2]), op == PartialOp::min) << name_of(op);
        require_none(difference(scattered, reduced), std::string(name_of(op)));
        const int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
        const Tensor extremes = full({n}, 0, DType::i64);
        for (int64_t i = 0; i < n; ++i) extremes.data<int64_t>()[i] = is_first ? lowest : highest - i;
        const Tensor ints = from_local(extremes, mesh, {partial(op)});
        require_none(difference(full_tensor(redistribute(ints, {shard(0)})), full_tensor(ints)), "integers");
        EXPECT_EQ(full_tensor(ints).data<int64_t>()[0], op == PartialOp::max ? highest : lowest);
        const Tensor flags = full({n}, is_first ? 1 : 0, DType::boolean);
        const Tensor any = from_local(flags, mesh, {partial(op)});
        require_none(difference(full_tensor(redistribute(any, {shard(0)})), full_tensor(any)), "booleans");
        EXPECT_EQ(full_tensor(any).data<bool>()[0], op == PartialOp::max);
      }
      for (const PartialOp op : {PartialOp::sum, PartialOp::prod, PartialOp::avg}) {
        for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32}) {
          if (op == PartialOp::avg && !is_floating(dtype)) continue;
          const Tensor t = from_local(sample({n}, dtype, static_cast<uint64_t>(mesh->rank() + 1)), mesh, {partial(op)});
          require_none(difference(full_tensor(redistribute(t, {shard(0)})), full_tensor(t)), std::string(name_of(op)));
        }
      }
      EXPECT_USAGE_ERROR(from_local(sample({n}, DType::i32), mesh, {partial(PartialOp::avg)}), "P(avg) divides");
      EXPECT_USAGE_ERROR(from_local(full({n}, 1, DType::boolean), mesh, {partial()}), "P(sum)");
    }
  });
}

TEST(DTensor, NumbersAndEmptyTensorsAreTensorsToo) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor number = on(mesh, Tensor::scalar(3.0f), {});
    EXPECT_EQ(full_tensor(mul(number, number)).item(), 9.0);
    EXPECT_USAGE_ERROR(on(mesh, Tensor::scalar(3.0f), {shard(0), replicate()}), "does not have");
    const Tensor term = from_local(Tensor::scalar(1.0f), mesh, {partial(), partial()});
    EXPECT_EQ(term.item(), 4.0);
    for (const Extents& sizes : {Extents{0}, Extents{0, 3}, Extents{1}, Extents{3, 0, 2}}) {
      const Tensor t = on(mesh, sample(sizes), {shard(0), shard(0)});
      require_none(difference(full_tensor(add(t, t)), add(sample(sizes), sample(sizes))), "add");
      require_none(difference(full_tensor(sum(t)), sum(sample(sizes))), "sum");
      require_none(difference(full_tensor(softmax(t, -1)), softmax(sample(sizes), -1)), "softmax");
      EXPECT_TRUE(equal(t, t));
    }
  });
}

TEST(DTensor, SharedMemoryIsSeenByVersionChecks) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor x = requires_grad_(on(mesh, sample({4, 2}), {shard(0)}));
    const Tensor y = on(mesh, sample({4, 2}, DType::f32, 2), {shard(0)});
    const Tensor loss = sum(mul(x, y));
    mul_(select(y, 1, 0), 2.0);  // a view of a saved tensor
    EXPECT_USAGE_ERROR(backward(loss), "version");
    const Tensor again = sum(mul(x, y));
    mul_(to_local(y), 2.0);
    EXPECT_USAGE_ERROR(backward(again), "version");
    const Tensor local = sample({2, 2});
    const Tensor z = from_local(local, mesh, {shard(0)});
    const Tensor third = sum(mul(x, z));
    mul_(local, 2.0);
    EXPECT_USAGE_ERROR(backward(third), "version");
  });
}

// Leaves in terms, in chunk cuts and in other orders, narrow ones too; backward twice through one graph, and through a
// checkpointed region.
TEST(DTensor, GradientsOfLeavesInAnyLayoutThroughRecomputedRegions) {
  const codegen::ContractionLeafForTests leaf(2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = sample({8, 4}, dtype), w = sample({4, 8}, dtype, 2);
    const auto loss = [](const Tensor& a, const Tensor& b, const RandomKey& key) {
      const Tensor inputs[] = {a, b};
      const Tensor y = checkpoint(
          [key](std::span<const Tensor> in) { return dropout(matmul(silu(in[0]), in[1]), 0.5, key); }, inputs);
      return add(sum(mul(y, y)), sum(mul(a, 0.5)));
    };
    const RandomKey key = random_key("drop");
    const Tensor px = requires_grad_(clone(x)), pw = requires_grad_(clone(w));
    backward(loss(px, pw, key));
    on_mesh({2, 2}, [&](const Mesh& mesh) {
      const LayoutOptions turned{.order = {1, 0}, .cut = Cut::chunk};
      const Tensor dx = requires_grad_(distribute_tensor(x, mesh, {shard(0), shard(0)}, {.layout = turned}));
      const Tensor dw = requires_grad_(redistribute(on(mesh, w, {}), {partial(), shard(0)}));
      const Tensor l = loss(dx, dw, key);
      for (int times = 1; times <= 2; ++times) {
        backward(l, {}, {.retain_graph = true});
        require_none(difference(full_tensor(grad_of(dx)), times == 1 ? grad_of(px) : add(grad_of(px), grad_of(px))),
                     "x");
        require_none(difference(full_tensor(grad_of(dw)), times == 1 ? grad_of(pw) : add(grad_of(pw), grad_of(pw))),
                     "w");
        EXPECT_EQ(placements_of(grad_of(dx)), placements_of(dx));
        EXPECT_EQ(placements_of(grad_of(dw)), (Placements{replicate(), shard(0)}));
      }
    });
  }
}

TEST(DTensor, RulesOfOnesOwn) {
  const OpDef& op = find_op("flip");
  register_sharding(op, [](const OpCall& call) {
    return std::string(call[0].ndim() == 2 ? "x[aB] -> y[aB] | | id" : "x[A] -> y[A]");
  });
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 3});
    EXPECT_EQ(placements_of(flip(on(mesh, whole, {shard(0)}), {1})), Placements{shard(0)});
    EXPECT_EQ(difference(full_tensor(flip(on(mesh, whole, {shard(0)}), {1})), flip(whole, {1})), "");
  });
  register_sharding(op, [](const OpCall&) { return std::string("x[a] -> "); });
  on_mesh({2}, [](const Mesh& mesh) {
    EXPECT_USAGE_ERROR(flip(on(mesh, sample({2, 2, 2}), {shard(0)}), {1}), "sharding rule: expected");
  });
  register_sharding(op, nullptr);
}

TEST(DTensor, PlansAreRememberedAndBounded) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor t = on(mesh, sample({4}), {shard(0)});
    mul(t, 2.0);
    const PlanCounts before = plan_counts();
    for (int i = 0; i < 100; ++i) mul(t, 0.5 * i);
    EXPECT_EQ(plan_counts().made, before.made);
  });
}

// A zero in the place of terms adds nothing, another number does: their plans differ.
TEST(DTensor, NumbersThatARuleReadsTellPlansApart) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor mask = Tensor::of<bool>({true, false, true}),
                 mine = sample({3}, DType::f32, static_cast<uint64_t>(mesh->rank()));
    const Tensor terms = from_local(mine, mesh, {partial()}), sum = full_tensor(terms),
                 chosen = distribute_tensor(mask, mesh);
    for (const double value : {0.0, 5.0, -2.0, 0.0}) {
      require_none(difference(full_tensor(where(chosen, value, terms)), where(mask, value, sum)),
                   fmt::format("{}", value));
    }
  });
}

TEST(DTensor, TheOldestPlansMakeRoom) {
  on_mesh({1}, [](const Mesh& mesh) {
    for (int64_t n = 1; n <= static_cast<int64_t>(kMostPlans) + 100; ++n) neg(zeros({n}, mesh, {shard(0)}));
    EXPECT_EQ(plan_counts().held, static_cast<int64_t>(kMostPlans));
    const int64_t made = plan_counts().made;
    neg(zeros({static_cast<int64_t>(kMostPlans) + 100}, mesh, {shard(0)}));
    EXPECT_EQ(plan_counts().made, made);
    neg(zeros({1}, mesh, {shard(0)}));
    EXPECT_EQ(plan_counts().made, made + 1);
  });
}

TEST(DTensor, TenThousandStepsOfAnOptimizerMakeNoMorePlansThanTheFirst) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor p = on(mesh, sample({4}), {shard(0)}), g = on(mesh, sample({4}), {shard(0)}),
                 m = zeros({4}, mesh, {shard(0)}), v = zeros({4}, mesh, {shard(0)});
    adamw_step_(p, g, m, v, {.lr = 1e-3, .step = 1});
    const PlanCounts first = plan_counts();
    for (int64_t step = 2; step <= 10'000; ++step)
      adamw_step_(p, g, m, v, {.lr = 1e-3 / static_cast<double>(step), .step = step});
    EXPECT_EQ(plan_counts().made, first.made);
  });
}

TEST(DTensor, AnOpWithoutARuleGathersItsInputs) {
  static const OpDef op = [] {
    OpDef without = find_op("clone");
    without.sharding = nullptr;
    return without;
  }();
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({5, 3});
    const Tensor t = on(mesh, whole, {shard(0)});
    {
      const StrictPlacementScope strict;
      EXPECT_USAGE_ERROR(call_op(op, Attrs(), t), "the op has no sharding rule, and a StrictPlacementScope is open");
    }
    const Tensor y = call_op(op, Attrs(), t);
    EXPECT_EQ(placements_of(y), Placements{replicate()});
    EXPECT_EQ(difference(full_tensor(y), whole), "");
  });
}

TEST(DTensor, AViewThatHadToCommunicateIsNotWritten) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor t = on(mesh, sample({4, 3}), {shard(0)});
    const Tensor row = select(t, 0, 1);
    EXPECT_USAGE_ERROR(add_(row, 1.0), "is read-only memory and cannot be written; clone() it");
    EXPECT_EQ(difference(full_tensor(add(row, 1.0)), add(select(sample({4, 3}), 0, 1), 1.0)), "");
    add_(select(t, 1, 0), 1.0);
    EXPECT_EQ(full_tensor(t).data<float>()[0], sample({4, 3}).data<float>()[0] + 1.0f);
  });
}

TEST(DTensor, RanksOutsideOfTheMeshDoNothing) {
  comm::run_ranks(3, [](comm::ProcessGroup& world) {
    const Mesh mesh = init_device_mesh("cpu", {2});
    const Tensor t = on(mesh, sample({4}), {shard(0)});
    const Tensor y = full_tensor(mul(t, 2.0));
    EXPECT_EQ(y.numel(), world.rank() < 2 ? 4 : 0);
  });
}

}  // namespace
}  // namespace tutti::dist
