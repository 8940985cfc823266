// In-place ops on every layout of what they write and of what stands beside it, on any number of ranks: the layout
// stays, replicas stay alike, and the elements are those of one rank.
#include "tests/dtensor/support/layouts.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/stage.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/tensor_operators.h"

namespace tutti::dist {
namespace {

struct NamedWrite {
  const char* name;
  std::function<Tensor(const Tensor& target, const Tensor& x)> run;
};

const std::vector<NamedWrite>& writes() {
  static const std::vector<NamedWrite> all = {
      {"add_", [](const Tensor& t, const Tensor& x) { return add_(t, x); }},
      {"mul_", [](const Tensor& t, const Tensor& x) { return mul_(t, x); }},
      {"sub_", [](const Tensor& t, const Tensor& x) { return sub_(t, x); }},
      {"truediv_", [](const Tensor& t, const Tensor& x) { return truediv_(t, x); }},
      {"copy_", [](const Tensor& t, const Tensor& x) { return copy_(t, x); }},
      {"add_ of a number", [](const Tensor& t, const Tensor&) { return add_(t, 0.3); }},
      {"mul_ by a number", [](const Tensor& t, const Tensor&) { return mul_(t, 1.7); }},
      {"sub_ of a number", [](const Tensor& t, const Tensor&) { return sub_(t, 0.3); }},
      {"truediv_ by a number", [](const Tensor& t, const Tensor&) { return truediv_(t, 1.7); }},
      {"mul_ by 2", [](const Tensor& t, const Tensor&) { return mul_(t, 2); }},
      {"fill_", [](const Tensor& t, const Tensor&) { return fill_(t, 0.1); }},
      {"zero_", [](const Tensor& t, const Tensor&) { return zero_(t); }},
      {"add_ of itself", [](const Tensor& t, const Tensor&) { return add_(t, t); }},
      {"mul_ by itself", [](const Tensor& t, const Tensor&) { return mul_(t, t); }},
  };
  return all;
}

std::vector<Placements> layouts_of(size_t axes, int ndim, DType dtype) {
  std::vector<Placement> each = {replicate(), partial(), partial(PartialOp::avg), partial(PartialOp::max),
                                 partial(PartialOp::min)};
  for (int d = 0; d < ndim; ++d) each.push_back(shard(d));
  std::vector<Placements> all = choices_of(each, axes);
  // Two kinds of terms have no value together, and whole numbers no average.
  std::erase_if(all, [&](const Placements& p) {
    for (const Placement& a : p) {
      if (a.is_partial() && a.op() == PartialOp::avg && !is_floating(dtype)) return true;
      for (const Placement& b : p) {
        const auto adds = [](const Placement& q) { return q.op() == PartialOp::sum || q.op() == PartialOp::avg; };
        if (a.is_partial() && b.is_partial() && a.op() != b.op() && !(adds(a) && adds(b))) return true;
      }
    }
    return false;
  });
  return all;
}

Tensor placed(const Tensor& whole, const Mesh& mesh, const Placements& placements) {
  Placements held = placements;
  for (Placement& p : held) {
    if (p.is_partial()) p = replicate();
  }
  const Tensor t = distribute_tensor(whole, mesh, held, {.src_data_rank = -1});
  return held == placements ? clone(t) : redistribute(t, placements);
}

std::string fault(const Tensor& t, const Tensor& wanted) {
  return spec_of(t).has_partial() ? difference(full_tensor(t), wanted) : difference_of_part(t, wanted);
}

// Every op on every pair of layouts; twice, so that the second meets what the first has left.
void compare(const Mesh& mesh, const Extents& sizes, const Extents& operand, DType dtype, bool all_operands = true) {
  const size_t axes = static_cast<size_t>(mesh->ndim());
  const Tensor whole = sample(sizes, dtype), x = sample(operand, dtype, 2);
  std::vector<Placements> beside = all_operands
                                       ? layouts_of(axes, static_cast<int>(operand.size()), dtype)
                                       : std::vector<Placements>{Placements(axes), Placements(axes, partial())};
  for (const Placements& of_target : layouts_of(axes, static_cast<int>(sizes.size()), dtype)) {
    for (const Placements& of_x : beside) {
      const Tensor dx = placed(x, mesh, of_x);
      for (const NamedWrite& write : writes()) {
        if (!is_floating(dtype) && std::string_view(write.name) != "mul_ by 2" &&
            std::string_view(write.name) != "add_" && std::string_view(write.name) != "zero_" &&
            std::string_view(write.name) != "copy_")
          continue;
        const Tensor plain = clone(whole), t = placed(whole, mesh, of_target);
        const std::string about = fmt::format("{} of {} and {} on {}", write.name, spec_of(t).to_string(),
                                              spec_of(dx).to_string(), mesh->to_string());
        for (int time = 0; time < 2; ++time) {
          const std::string said = message_of([&] { write.run(t, dx); });
          require_none(said == "no error" ? "" : "it was refused: " + said, about);
          write.run(plain, x);
        }
        require_none(placements_of(t) == of_target ? "" : "it is " + spec_of(t).to_string(), about);
        require_none(fault(t, plain), about);
      }
      require_none(fault(dx, x), "the operand of all ops");
    }
  }
}

class InPlace : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, InPlace,
                         ::testing::Values(std::vector<int64_t>{1}, std::vector<int64_t>{2}, std::vector<int64_t>{3},
                                           std::vector<int64_t>{4}, std::vector<int64_t>{5}, std::vector<int64_t>{7}));

TEST_P(InPlace, KeepsTheLayoutAndHasTheBitsOfOneRank) {
  on_mesh(GetParam(), [](const Mesh& mesh) {
    compare(mesh, {5, 3}, {5, 3}, DType::f32);
    compare(mesh, {5, 3}, {1, 3}, DType::bf16);
  });
}

// Some ranks have nothing.
TEST_P(InPlace, TakesDimsWithFewerElementsThanRanks) {
  on_mesh(GetParam(), [](const Mesh& mesh) {
    for (const int64_t size : {0, 1, 2, 3}) compare(mesh, {size}, {size}, DType::f32);
    compare(mesh, {2, 3}, {3}, DType::f64);
    compare(mesh, {2, 2}, {2, 2}, DType::i64);
  });
}

TEST(InPlaceOn, SeveralMeshDims) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 1}, std::vector<int64_t>{1, 3},
                                            std::vector<int64_t>{2, 2}, std::vector<int64_t>{3, 2}}) {
    on_mesh(shape, [](const Mesh& mesh) { compare(mesh, {3, 2}, {3, 2}, DType::f32, false); });
  }
}

TEST(InPlaceOn, PartsThatAreEqualInTwoLayouts) {
  on_mesh({3}, [](const Mesh& mesh) {
    const Tensor whole = sample({2}), x = sample({2}, DType::f32, 2);
    const Tensor t = distribute_tensor(whole, mesh, {shard(0)});
    add_(t, distribute_tensor(x, mesh));
    require_none(difference_of_part(t, add_(clone(whole), x)), "add_");
  });
}

TEST(InPlaceOn, OperandsInOtherCutsPiecesAndOrders) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 5}), x = sample({4, 5}, DType::f32, 2);
    const auto in = [&](const Tensor& t, const Placements& p, const std::vector<int>& order, Cut cut) {
      return distribute_tensor(t, mesh, p, {.layout = {.order = order, .cut = cut}, .src_data_rank = -1});
    };
    const std::vector<Placements> layouts = {{shard(0), shard(0)},
                                             {shard(1), shard(1)},
                                             {shard(0), shard(1)},
                                             {Placement::shard(0, 2), shard(1)},
                                             {replicate(), Placement::shard(0, 2)}};
    for (const Placements& of_target : layouts) {
      for (const Placements& of_x : layouts) {
        for (const std::vector<int>& order : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
          for (const Cut cut : {Cut::halving, Cut::chunk}) {
            for (const Cut other_cut : {Cut::halving, Cut::chunk}) {
              const Tensor t = clone(in(whole, of_target, order, cut)), dx = in(x, of_x, {0, 1}, other_cut);
              const std::string about =
                  fmt::format("add_ of {} and {}", spec_of(t).to_string(), spec_of(dx).to_string());
              const std::string said = message_of([&] { add_(t, dx); });
              require_none(said == "no error" ? "" : said, about);
              require_none(difference_of_part(t, add_(clone(whole), x)), about);
            }
          }
        }
      }
    }
  });
}

TEST(InPlaceOn, TermsThatAreOverwrittenSendsNothing) {
  on_mesh({3}, [](const Mesh& mesh) {
    const Tensor t = from_local(sample({4}), mesh, {partial()});
    CommCounter counter;
    zero_(t);
    fill_(t, 2.5);
    copy_(t, distribute_tensor(sample({4}, DType::f32, 3), mesh, {}, {.src_data_rank = -1}));
    EXPECT_EQ(counter.total().collectives, 0);
    require_none(difference(full_tensor(t), sample({4}, DType::f32, 3)), "copy_");
  });
}

TEST(InPlaceOn, TermsOfAProductIsRefused) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor t = from_local(sample({4}), mesh, {partial(PartialOp::prod)});
    EXPECT_USAGE_ERROR(add_(t, 1.0), "a value is no product of equal parts");
    const StrictPlacementScope strict;
    EXPECT_USAGE_ERROR(add_(from_local(sample({4}), mesh, {partial()}), 1.0), "its inputs would have to move");
  });
}

TEST(InPlaceOn, OperatorsOfDistributedTensors) {
  const auto program = [](const Tensor& t, const Tensor& x, const Tensor& row) {
    t += x;
    t *= 1.5;
    t[1] -= row;
    t[-1][2] /= 2;
    t /= t + 3;
    return std::vector<Tensor>{sum(t, 1), sum(t[0] * row, -1, true), cast((t > x) & ~(t < 0.25), DType::i32)};
  };
  on_mesh({2}, [&](const Mesh& mesh) {
    const Tensor whole = sample({3, 4}), x = sample({3, 4}, DType::f32, 2), row = sample({4}, DType::f32, 3);
    const auto on = [&](const Tensor& t, const Placements& p) {
      return distribute_tensor(t, mesh, p, {.src_data_rank = -1});
    };
    const Tensor plain = clone(whole);
    const std::vector<Tensor> wanted = program(plain, x, row);
    for (const Placements& of_x : {Placements{replicate()}, Placements{shard(0)}, Placements{shard(1)}}) {
      const Tensor t = clone(on(whole, {replicate()}));
      const std::vector<Tensor> got = program(t, on(x, of_x), on(row, {replicate()}));
      require_none(difference_of_part(t, plain), "what is written");
      for (size_t i = 0; i < got.size(); ++i)
        require_none(difference(full_tensor(got[i]), wanted[i]), fmt::format("result {}", i));
    }
    const Tensor columns = clone(on(whole, {shard(1)}));
    columns[1] += on(row, {shard(0)});
    EXPECT_EQ(placements_of(columns), Placements{shard(1)});
    const Tensor other = clone(whole);
    other[1] += row;
    require_none(difference_of_part(columns, other), "a row of divided columns");
  });
}

}  // namespace
}  // namespace tutti::dist
