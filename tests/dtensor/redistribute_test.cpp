// Every layout of a tensor into every other: the elements stay, the bytes on the wire are those that a rank lacks.
#include <random>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/comm/groups.h"
#include "tutti/core/tree_cut.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/moves.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"

namespace tutti::dist {
namespace {

struct Layout {
  Placements placements;
  LayoutOptions options;
};

// All layouts of a tensor of `ndim` dims on a mesh of `axes` dims without pending values, in both orders and cuts where
// they differ.
std::vector<Layout> layouts(int ndim, size_t axes) {
  std::vector<Placements> all{{}};
  for (size_t axis = 0; axis < axes; ++axis) {
    std::vector<Placements> next;
    for (const Placements& p : all) {
      for (int d = -1; d < ndim; ++d) {
        next.push_back(p);
        next.back().push_back(d < 0 ? replicate() : shard(d));
      }
    }
    all = std::move(next);
  }
  std::vector<Layout> result;
  for (const Placements& p : all) {
    for (const Cut cut : {Cut::halving, Cut::chunk}) {
      result.push_back({p, {.order = {}, .cut = cut}});
      if (axes == 2 && p[0].is_shard() && p[0] == p[1]) result.push_back({p, {.order = {1, 0}, .cut = cut}});
    }
  }
  return result;
}

Tensor placed(const Tensor& whole, const Mesh& mesh, const Layout& layout) {
  return distribute_tensor(whole, mesh, layout.placements, {.layout = layout.options, .src_data_rank = -1});
}

class Redistribute : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, Redistribute,
                         ::testing::Values(std::vector<int64_t>{2}, std::vector<int64_t>{3}, std::vector<int64_t>{4},
                                           std::vector<int64_t>{2, 2}, std::vector<int64_t>{2, 3},
                                           std::vector<int64_t>{3, 2}));

TEST_P(Redistribute, EveryLayoutIntoEveryOther) {
  const std::vector<int64_t> shape = GetParam();
  for (const Extents& sizes : {Extents{5, 4}, Extents{1, 7}, Extents{0, 3}, Extents{8, 8}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      const Tensor whole = sample(sizes);
      for (const Layout& from : layouts(2, shape.size())) {
        const Tensor t = placed(whole, mesh, from);
        for (const Layout& to : layouts(2, shape.size())) {
          CommCounter counter;
          const Tensor moved = redistribute(t, to.placements, {.layout = to.options});
          const Tensor expected = placed(whole, mesh, to);
          EXPECT_EQ(&spec_of(moved), &spec_of(expected));
          require_none(difference(to_local(moved), to_local(expected)),
                       spec_of(t).to_string() + " to " + spec_of(moved).to_string());
          EXPECT_LE(counter.total().collectives, 1);
          EXPECT_DOUBLE_EQ(counter.total().bytes, 4 * lacking_elements(spec_of(t), spec_of(moved)));
        }
      }
    });
  }
}

// Terms of a sum, on every rank others.
Tensor terms(const Tensor& like, int rank) {
  return mul(sample(like.extents(), DType::f32, static_cast<uint64_t>(rank) + 10), std::ldexp(1.0, rank % 3 * 7));
}

Tensor tree(std::span<const Tensor> all) {
  if (all.size() == 1) return all[0];
  const size_t left = (all.size() + 1) / 2;
  return add(tree(all.first(left)), tree(all.subspan(left)));
}

TEST_P(Redistribute, PendingSumsAreAddedByHalvingNestedByAxis) {
  const std::vector<int64_t> shape = GetParam();
  on_mesh(shape, [&](const Mesh& mesh) {
    const Extents sizes{5, 6};
    const size_t axes = shape.size();
    const Tensor t = from_local(terms(sample(sizes), mesh->rank()), mesh, Placements(axes, partial()));
    std::vector<Tensor> all;
    for (int r = 0; r < mesh->size(); ++r) all.push_back(terms(sample(sizes), r));
    Tensor expected;
    if (axes == 1) {
      expected = tree(all);
    } else {
      std::vector<Tensor> outer;
      for (int64_t a = 0; a < shape[0]; ++a)
        outer.push_back(tree(std::span(all).subspan(static_cast<size_t>(a * shape[1]), static_cast<size_t>(shape[1]))));
      expected = tree(outer);
    }
    for (const Layout& to : layouts(2, axes)) {
      const Tensor moved = redistribute(t, to.placements, {.layout = to.options});
      require_none(difference(to_local(moved), to_local(placed(expected, mesh, to))), spec_of(moved).to_string());
    }
  });
}

TEST_P(Redistribute, ReplicatedValuesBecomeTermsExactly) {
  const std::vector<int64_t> shape = GetParam();
  on_mesh(shape, [&](const Mesh& mesh) {
    const Tensor whole = sample({3, 4});
    for (const PartialOp op : {PartialOp::sum, PartialOp::avg, PartialOp::max, PartialOp::min}) {
      const Placements pending(shape.size(), partial(op));
      const Tensor t = redistribute(distribute_tensor(whole, mesh), pending);
      EXPECT_EQ(placements_of(t), pending);
      if (op == PartialOp::avg && ranks_of(shape) % 3 == 0) continue;  // a third of three equal values is not exact
      EXPECT_EQ(difference(full_tensor(t), whole), "") << name_of(op);
    }
    EXPECT_USAGE_ERROR(redistribute(distribute_tensor(whole, mesh), Placements(shape.size(), partial(PartialOp::prod))),
                       "a value is no product of equal parts");
  });
}

TEST(RedistributeNarrow, TermsOfBf16AreAddedInF32AndRoundedOnce) {
  on_mesh({4}, [](const Mesh& mesh) {
    const Tensor mine = sample({7}, DType::bf16, static_cast<uint64_t>(mesh->rank()));
    const Tensor t = from_local(mine, mesh, {partial()});
    EXPECT_EQ(t.dtype(), DType::bf16);
    EXPECT_EQ(to_local(t).dtype(), DType::f32);
    const Tensor sum = full_tensor(t);
    std::vector<Tensor> terms;
    for (int r = 0; r < 4; ++r) terms.push_back(cast(sample({7}, DType::bf16, static_cast<uint64_t>(r)), DType::f32));
    EXPECT_EQ(difference(sum, cast(tree(terms), DType::bf16)), "");
  });
}

// Ranks whose own groups have different transports must choose the same plan.
TEST(RedistributePlan, PricesAreTheSameOnAllRanks) {
  comm::run_ranks(4, [](comm::ProcessGroup& world) {
    const int r = world.rank();
    const auto line = [&](std::vector<int> ranks, const char* transport) {
      return comm::new_group(ranks, {.transport = transport});
    };
    const auto outer = line(r % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3}, "threads");
    const auto inner = line(r < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}, r < 2 ? "threads" : "gloo");
    const Mesh mesh = mesh_from_groups({outer, inner}, "cpu", {0, 1, 2, 3}, {2, 2});
    const std::vector<std::string> prices =
        world.all_gather_bytes(std::to_string(cost_model_of(*mesh).latency(StepKind::gather, 2)));
    for (const std::string& price : prices) EXPECT_EQ(price, prices[0]);
  });
}

// Equally dear ways are told apart by the order in which the search finds them, not by ids, which ranks give out in
// their own order.
TEST(RedistributePlan, DoesNotDependOnTheOrderInWhichLayoutsWereFirstSeen) {
  const auto plan_of = [](uint32_t mesh_id, bool backwards) {
    const std::vector<int64_t> mesh{2, 1, 2};
    std::vector<Placements> all;
    for (const Placement& a : {partial(), replicate(), shard(0)}) {
      for (const Placement& b : {partial(), replicate(), shard(0)}) {
        for (const Placement& c : {partial(), replicate(), shard(1)}) all.push_back({a, b, c});
      }
    }
    if (backwards) std::reverse(all.begin(), all.end());
    for (const Placements& p : all)
      DTensorSpec::of({.mesh_id = mesh_id, .mesh_shape = mesh, .placements = p, .sizes = {4, 4}});
    std::string plans;
    for (const Placements& from :
         {Placements{partial(), partial(), partial()}, Placements{partial(), partial(), replicate()},
          Placements{replicate(), replicate(), replicate()}}) {
      for (const Placements& to :
           {Placements{replicate(), replicate(), replicate()}, Placements{shard(0), shard(0), replicate()},
            Placements{partial(), partial(), shard(1)}, Placements{partial(), partial(), partial()}}) {
        const auto spec = [&](const Placements& p) -> const DTensorSpec& {
          return DTensorSpec::of({.mesh_id = mesh_id, .mesh_shape = mesh, .placements = p, .sizes = {4, 4}});
        };
        plans += plan_redistribution(spec(from), spec(to)).to_string() + "\n";
      }
    }
    return plans;
  };
  EXPECT_EQ(plan_of(4242, false), plan_of(4243, true));
}

// The order of the target turns the axes of another dim around, which scattering the sums does not do.
TEST(RedistributePlan, ScatteringSumsLeavesTheOrderOfOtherDims) {
  on_mesh({2, 2, 2}, [](const Mesh& mesh) {
    const Tensor whole = sample({8, 6});
    const Tensor base = distribute_tensor(whole, mesh, {shard(1), shard(1), replicate()},
                                          {.layout = {.cut = Cut::chunk}, .src_data_rank = -1});
    const Tensor t = from_local(to_local(base), mesh, {shard(1), shard(1), partial()},
                                {.layout = {.cut = Cut::chunk}, .sizes = whole.extents()});
    const Tensor moved = redistribute(t, {Placement::shard(0, 2), Placement::shard(0, 2), shard(0)},
                                      {.layout = LayoutOptions{.order = {1, 2, 0}, .cut = Cut::chunk}});
    require_none(difference(full_tensor(moved), full_tensor(t)), "sums");
  });
}

// A rank on the diagonal already has what it needs, which a plan by gathers would send all the same.
TEST(RedistributePlan, SwappedAxesAreOneExchange) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor t = distribute_tensor(sample({8, 8}), mesh, {shard(0), shard(1)});
    const DTensorSpec& turned = spec_of(t).with({shard(1), shard(0)});
    const RedistributePlan plan = plan_redistribution(spec_of(t), turned);
    EXPECT_EQ(plan.collectives(), 1);
    EXPECT_EQ(plan.steps[0].kind, StepKind::exchange);
    EXPECT_DOUBLE_EQ(plan.bytes, 4 * 16 * 0.5);  // two ranks of four lack all of their 16 elements
    EXPECT_NE(plan.to_string().find("exchange over mesh dim 0, 1 -> [S(1), S(0)], 32 bytes"), std::string::npos)
        << plan.to_string();
  });
}

TEST(RedistributePlan, CutsBeforeItReduces) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor t = from_local(sample({8, 8}), mesh, {partial(), replicate()});
    const RedistributePlan plan = plan_redistribution(spec_of(t), spec_of(t).with({replicate(), shard(0)}));
    ASSERT_EQ(plan.steps.size(), 2u);
    EXPECT_EQ(plan.steps[0].kind, StepKind::cut);
    EXPECT_EQ(plan.steps[1].kind, StepKind::all_reduce);
    EXPECT_DOUBLE_EQ(plan.bytes, 2 * 4 * 32 * 0.5);
  });
}

// The rows of a flat cut over 4 ranks are not those of 2 ranks over 2: a gather over both axes at once must not lose
// one.
TEST(RedistributePlan, FiveRowsOnTwoByTwoKeepAllRows) {
  for (const Cut cut : {Cut::halving, Cut::chunk}) {
    on_mesh({2, 2}, [&](const Mesh& mesh) {
      const Tensor whole = sample({5, 3});
      const Tensor t = distribute_tensor(whole, mesh, {shard(0), shard(0)}, {.layout = {.cut = cut}});
      EXPECT_EQ(to_local(t).extents()[0], cut == Cut::chunk
                                              ? (std::vector<int64_t>{2, 1, 1, 1})[static_cast<size_t>(mesh->rank())]
                                              : tree_cut(5, 1, mesh->rank(), 4, "rows").size());
      EXPECT_EQ(difference(full_tensor(t), whole), "");
    });
  }
}

// The plan that goes mesh dim by mesh dim: from the inside out, gathering where an outer dim still has to change the
// same dim of the tensor, then from the outside in what is left. Bytes and collectives.
std::pair<double, int> greedy(const DTensorSpec& from, const DTensorSpec& to) {
  double bytes = 0;
  int collectives = 0;
  Placements now = from.placements();
  const auto step = [&](size_t axis, const Placement& wanted) {
    if (now[axis] == wanted) return;
    const DTensorSpec& before = from.with(now);
    now[axis] = wanted;
    const double lacking = lacking_elements(before, from.with(now));
    bytes += lacking;
    collectives += lacking > 0;
  };
  for (size_t axis = now.size(); axis-- > 0;) {
    Placement wanted = to.placements()[axis];
    for (size_t outer = 0; outer < axis && wanted.is_shard(); ++outer) {
      const bool sharded_now = now[outer] == wanted, sharded_then = to.placements()[outer] == wanted;
      if (sharded_now != sharded_then) wanted = replicate();
    }
    step(axis, wanted);
  }
  for (size_t axis = 0; axis < now.size(); ++axis) step(axis, to.placements()[axis]);
  return {bytes, collectives};
}

TEST(RedistributePlan, AThousandTransitionsNeverCostMoreThanGreedyOnes) {
  std::mt19937 random(11);
  double ours = 0, theirs = 0;
  int our_calls = 0, their_calls = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<int64_t> mesh = i % 2 == 0 ? std::vector<int64_t>{2, 2, 2} : std::vector<int64_t>{4, 2};
    const auto any = [&]() -> const DTensorSpec& {
      Placements p;
      for (size_t axis = 0; axis < mesh.size(); ++axis)
        p.push_back(random() % 4 == 0 ? replicate() : shard(static_cast<int>(random() % 3)));
      return DTensorSpec::of({.mesh_id = 0, .mesh_shape = mesh, .placements = p, .sizes = {16, 24, 8}});
    };
    const DTensorSpec &from = any(), &to = any();
    const RedistributePlan plan = plan_redistribution(from, to);
    const auto [bytes, calls] = greedy(from, to);
    ASSERT_LE(plan.bytes, 4 * bytes + 1e-9) << plan.to_string();
    ASSERT_LE(plan.collectives(), calls) << plan.to_string();
    ours += plan.bytes, theirs += 4 * bytes, our_calls += plan.collectives(), their_calls += calls;
  }
  RecordProperty("bytes_of_greedy_ones", std::to_string(ours / theirs));
  RecordProperty("collectives_of_greedy_ones", std::to_string(static_cast<double>(our_calls) / their_calls));
  EXPECT_LT(ours, 0.8 * theirs);
  EXPECT_LT(our_calls, 0.8 * their_calls);
}

TEST(RedistributePlan, RandomTransitionsNeverMoveMoreThanGathering) {
  on_mesh({2, 2, 2}, [](const Mesh& mesh) {
    std::mt19937 random(7);
    const Tensor whole = sample({6, 5, 4});
    int better = 0;
    for (int i = 0; i < 300; ++i) {
      const auto any = [&] {
        Placements p;
        for (int axis = 0; axis < 3; ++axis)
          p.push_back(random() % 4 == 0 ? replicate() : shard(static_cast<int>(random() % 3)));
        return p;
      };
      const Placements a = any(), b = any();
      const Tensor t = distribute_tensor(whole, mesh, a, {.src_data_rank = -1});
      CommCounter counter;
      const Tensor moved = redistribute(t, b);
      require_none(difference(to_local(moved), to_local(distribute_tensor(whole, mesh, b, {.src_data_rank = -1}))),
                   to_string(a) + " to " + to_string(b));
      const double gathered = 4 * lacking_elements(spec_of(t), spec_of(t).with(Placements(3)));
      EXPECT_LE(counter.total().bytes, gathered + 1e-9);
      better += counter.total().bytes < gathered;
    }
    EXPECT_GT(better, 200);
  });
}

}  // namespace
}  // namespace tutti::dist
