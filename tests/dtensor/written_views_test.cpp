// Views of distributed tensors that are written, and whose tensors are: every view op on every layout. What is written
// reaches all ranks that hold the element, or it is an error on all ranks; a view that is read has the elements that
// its tensor has, or reading it is an error on all ranks.
#include "tests/dtensor/support/layouts.h"
#include "tutti/dist/stage.h"
#include "tutti/ops/as_strided.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/diagonal.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/unfold.h"

namespace tutti::dist {
namespace {

struct NamedView {
  const char* name;
  std::function<Tensor(const Tensor& x)> take;  // of [4, 6]
};

const std::vector<NamedView>& views() {
  static const std::vector<NamedView> all = {
      {"alias", [](const Tensor& x) { return x.alias(); }},
      {"narrow of dim 0", [](const Tensor& x) { return narrow(x, 0, 1, 2); }},
      {"narrow of dim 1", [](const Tensor& x) { return narrow(x, 1, 1, 1); }},
      {"narrow to all", [](const Tensor& x) { return narrow(x, 1, 0, 6); }},
      {"narrow to nothing", [](const Tensor& x) { return narrow(x, 1, 2, 0); }},
      {"slice of dim 0", [](const Tensor& x) { return slice(x, 0, 0, 4, 2); }},
      {"slice of dim 1", [](const Tensor& x) { return slice(x, 1, 1, 6, 3); }},
      {"select of dim 0", [](const Tensor& x) { return select(x, 0, 3); }},
      {"select of dim 1", [](const Tensor& x) { return select(x, 1, 0); }},
      {"transpose", [](const Tensor& x) { return transpose(x, 0, 1); }},
      {"permute", [](const Tensor& x) { return permute(unsqueeze(x, 1), {2, 0, 1}); }},
      {"view as one dim", [](const Tensor& x) { return view(x, {24}); }},
      {"view as three dims", [](const Tensor& x) { return view(x, {2, 2, 6}); }},
      {"view as four dims", [](const Tensor& x) { return view(x, {4, 1, 3, 2}); }},
      {"view regrouped", [](const Tensor& x) { return view(x, {8, 3}); }},
      {"view without common factors", [](const Tensor& x) { return view(x, {6, 4}); }},
      {"flatten", [](const Tensor& x) { return flatten(x, 0, 1); }},
      {"unflatten", [](const Tensor& x) { return unflatten(x, 1, {3, 2}); }},
      {"unsqueeze", [](const Tensor& x) { return unsqueeze(x, 0); }},
      {"squeeze", [](const Tensor& x) { return squeeze(narrow(x, 0, 2, 1), 0); }},
      {"expand of nothing", [](const Tensor& x) { return expand(x, {1, 4, 6}); }},
      {"expand", [](const Tensor& x) { return expand(x, {2, 4, 6}); }},
      {"diagonal", [](const Tensor& x) { return diagonal(x, 1); }},
      {"unfold of dim 0", [](const Tensor& x) { return unfold(x, 0, 2, 2); }},
      {"unfold of dim 1", [](const Tensor& x) { return unfold(x, 1, 2, 3); }},
      {"second of split", [](const Tensor& x) { return split(x, 4, 1)[1]; }},
      {"first of chunk", [](const Tensor& x) { return chunk(x, 2, 0)[0]; }},
      {"as_strided", [](const Tensor& x) { return as_strided(x, {2, 3}, {6, 2}, 1); }},
      {"narrow of transpose", [](const Tensor& x) { return narrow(transpose(x, 0, 1), 0, 2, 3); }},
      {"select of narrow", [](const Tensor& x) { return select(narrow(x, 1, 1, 4), 0, 2); }},
      {"view of transpose", [](const Tensor& x) { return view(transpose(x, 0, 1), {2, 3, 4}); }},
      {"narrow of view", [](const Tensor& x) { return narrow(view(x, {2, 2, 6}), 1, 1, 1); }},
      {"two dims narrowed", [](const Tensor& x) { return narrow(narrow(x, 1, 1, 3), 0, 1, 2); }},
  };
  return all;
}

struct NamedWrite {
  const char* name;
  std::function<void(const Tensor& t)> run;
};

const std::vector<NamedWrite>& writes() {
  static const std::vector<NamedWrite> all = {
      {"mul_ by a number", [](const Tensor& t) { mul_(t, 10.0); }},
      {"fill_", [](const Tensor& t) { fill_(t, 0.1); }},
      {"copy_ of itself and add_", [](const Tensor& t) { add_(t, clone(t)); }},
  };
  return all;
}

struct Case {
  Mesh mesh;
  Placements placements;
  LayoutOptions layout;
  Tensor whole;

  Tensor base() const {
    Placements held = placements;
    for (Placement& p : held) {
      if (p.is_partial()) p = replicate();
    }
    const Tensor t = distribute_tensor(whole, mesh, held, {.layout = layout, .src_data_rank = -1});
    return held == placements ? clone(t) : redistribute(t, placements, {.layout = layout});
  }
  // "" where every rank holds of `t` what it should.
  static std::string fault(const Tensor& t, const Tensor& wanted) {
    return spec_of(t).has_partial() ? difference(full_tensor(t), wanted) : difference_of_part(t, wanted);
  }
};

// Whether taking the view moves elements between ranks.
bool communicates(const Tensor& t, const NamedView& view) {
  const StrictPlacementScope strict;
  return message_of([&] { view.take(t); }) != "no error";
}

void write_through(const Case& c, const NamedView& view, const NamedWrite& write, bool is_copy) {
  const Tensor whole = clone(c.whole), t = c.base();
  const std::string about =
      fmt::format("{} of {} of {} on {}", write.name, view.name, spec_of(t).to_string(), c.mesh->to_string());
  const bool is_legal = message_of([&] { write.run(view.take(whole)); }) == "no error";
  const Tensor shown = view.take(t);
  const std::string said = message_of([&] { write.run(shown); });
  if (agreed(c.mesh, said != "no error", about + ": " + said)) {
    require_none(is_legal && !is_copy ? "it was refused: " + said : "", about);
    return require_none(Case::fault(t, c.whole), "after the refused " + about);
  }
  require_none(is_legal && !is_copy ? "" : "it was not refused", about);
  require_none(Case::fault(t, whole), about);
  require_none(Case::fault(shown, view.take(whole)), "the view after " + about);
}

// The tensor is written while the view is there.
void write_below(const Case& c, const NamedView& view) {
  const Tensor whole = clone(c.whole), t = c.base();
  const std::string about = fmt::format("{} of {} on {}, which was written meanwhile", view.name,
                                        spec_of(t).to_string(), c.mesh->to_string());
  const Tensor shown = view.take(t);
  mul_(t, 3.0), mul_(whole, 3.0);
  Tensor read;
  const std::string said = message_of([&] { read = clone(shown); });
  if (agreed(c.mesh, said != "no error", about + ": " + said)) {
    require_none(said.find("has been written") != std::string::npos ? "" : said, about);
    return require_none(Case::fault(view.take(t), view.take(whole)), "taken anew: " + about);
  }
  require_none(Case::fault(read, view.take(whole)), about);
}

void write_all(const Case& c) {
  for (const NamedView& view : views()) {
    const bool is_copy = communicates(c.base(), view);
    for (const NamedWrite& write : writes()) write_through(c, view, write, is_copy);
  }
}

class WrittenViews : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, WrittenViews,
                         ::testing::Values(std::vector<int64_t>{1}, std::vector<int64_t>{2}, std::vector<int64_t>{3},
                                           std::vector<int64_t>{5}, std::vector<int64_t>{1, 1},
                                           std::vector<int64_t>{1, 2}, std::vector<int64_t>{2, 1},
                                           std::vector<int64_t>{3, 1}, std::vector<int64_t>{2, 2},
                                           std::vector<int64_t>{1, 2, 1}));

std::vector<Placements> layouts_on(size_t axes) {
  if (axes == 3)
    return {{replicate(), shard(0), shard(1)}, {shard(0), replicate(), shard(1)}, {shard(1), shard(1), replicate()}};
  return choices_of({replicate(), shard(0), shard(1), partial()}, axes);
}

TEST_P(WrittenViews, ReachEveryReplicaOrAreRefusedOnAllRanks) {
  on_mesh(GetParam(), [](const Mesh& mesh) {
    for (const Placements& placements : layouts_on(static_cast<size_t>(mesh->ndim()))) {
      write_all({mesh, placements, {}, sample({4, 6})});
    }
  });
}

TEST_P(WrittenViews, ShowWhatTheirTensorHasOrAreRefusedOnAllRanks) {
  on_mesh(GetParam(), [](const Mesh& mesh) {
    for (const Placements& placements : layouts_on(static_cast<size_t>(mesh->ndim()))) {
      for (const NamedView& view : views()) write_below({mesh, placements, {}, sample({4, 6})}, view);
    }
  });
}

TEST_P(WrittenViews, OfTermsOtherThanSums) {
  on_mesh(GetParam(), [](const Mesh& mesh) {
    for (const PartialOp op : {PartialOp::avg, PartialOp::max, PartialOp::min}) {
      const Case c{mesh, Placements(static_cast<size_t>(mesh->ndim()), partial(op)), {}, sample({4, 6})};
      if (mesh->ndim() < 3) write_all(c);
      for (const NamedView& view : views()) write_below(c, view);
    }
  });
}

TEST(WrittenViewsOf, LayoutsInAnyOrderAndBothCuts) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    for (const Cut cut : {Cut::halving, Cut::chunk}) {
      for (const Placements& placements :
           {Placements{shard(0), shard(0)}, Placements{shard(1), shard(1)},
            Placements{Placement::shard(0, 2), replicate()}, Placements{shard(0), Placement::shard(1, 3)}}) {
        for (const std::vector<int>& order : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
          const Case c{mesh, placements, {.order = order, .cut = cut}, sample({4, 6})};
          write_all(c);
          for (const NamedView& view : views()) write_below(c, view);
        }
      }
    }
  });
}

// The ranks of one line hold replicas; an axis of one rank shards what is narrowed.
TEST(WrittenViewsOf, ATensorThatAnAxisOfOneRankShards) {
  on_mesh({2, 1}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 3}), y = clone(distribute_tensor(whole, mesh, {replicate(), shard(1)}));
    mul_(narrow(y, 1, 1, 1), 10.0);
    const Tensor wanted = clone(whole);
    mul_(narrow(wanted, 1, 1, 1), 10.0);
    require_none(difference(to_local(y), wanted), "rows of this rank");
  });
}

TEST(WrittenViewsOf, AViewOfAViewThatCommunicated) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 6}), t = clone(distribute_tensor(whole, mesh, {shard(0)}));
    const Tensor rows = narrow(t, 0, 1, 2), row = select(rows, 0, 1), part = narrow(row, 0, 2, 2);
    for (const Tensor& view : {rows, row, part})
      EXPECT_USAGE_ERROR(mul_(view, 2.0),
                         "is read-only memory and cannot be written; clone() it, or redistribute() the tensor");
    require_none(difference(full_tensor(part), narrow(select(whole, 0, 2), 0, 2, 2)), "before");
    mul_(to_local(t), 2.0);  // a write that no op on distributed tensors makes
    for (const Tensor& view : {rows, row, part}) {
      EXPECT_USAGE_ERROR(add(view, view), "has been written since");
      EXPECT_USAGE_ERROR(full_tensor(view), "has been written since");
      EXPECT_USAGE_ERROR(to_local(view), "has been written since");
    }
    require_none(difference(full_tensor(clone(narrow(t, 0, 1, 2))), mul_(narrow(clone(whole), 0, 1, 2), 2.0)), "after");
  });
}

// Only a part that lies otherwise than its whole must be copied for a view.
TEST(WrittenViewsOf, PartsWithOtherStridesAreNotWrittenIntoACopy) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor whole = sample({4, 6});
    const Tensor local = transpose(clone(transpose(to_local(distribute_tensor(whole, mesh, {shard(0)})), 0, 1)), 0, 1);
    const Tensor t = from_local(local, mesh, {shard(0)});
    const Tensor flat = view(t, {24});
    require_none(difference(full_tensor(flat), view(whole, {24})), "read");
    EXPECT_USAGE_ERROR(mul_(flat, 2.0), "is read-only memory and cannot be written");
    mul_(t, 2.0);
    EXPECT_USAGE_ERROR(full_tensor(flat), "has been written since");
  });
}

// Strides of the parts of other ranks are not known: the rank whose part must be copied says why, before it writes
// anything.
TEST(WrittenViewsOf, TheRankWhosePartHasOtherStridesSaysSo) {
  for (const int64_t ranks : {2, 3}) {
    on_mesh({ranks}, [](const Mesh& mesh) {
      const bool is_strided = mesh->coordinate()[0] == 0;
      const Tensor whole = sample({3, 4}),
                   part = is_strided ? transpose(clone(transpose(whole, 0, 1)), 0, 1) : clone(whole);
      const Tensor x = from_local(part, mesh, {replicate()}), flat = view(x, {12});
      require_none(difference(to_local(flat), view(whole, {12})), "read");
      const std::string said = message_of([&] { mul_(flat, 2.0); });
      if (is_strided)
        EXPECT_TRUE(said.find("strides [1, 3]") != std::string::npos &&
                    said.find("give from_local() the contiguous() part") != std::string::npos)
            << said;
      else EXPECT_EQ(said, "no error");
      require_none(difference(part, is_strided ? whole : mul(whole, 2.0)), "the part");
    });
  }
}

// A rank without elements can see nothing in every way, others cannot: what decides is the whole.
TEST(ViewsOfTheWhole, AreRefusedOnAllRanksWhereOneRankWouldRefuse) {
  for (const int64_t ranks : {2, 3, 4, 5}) {
    for (const Placement& placement : {shard(0), shard(1), shard(2), replicate()}) {
      on_mesh({ranks}, [&](const Mesh& mesh) {
        const Tensor whole = sample({2, 3, 2});
        const Tensor x = transpose(distribute_tensor(whole, mesh, {placement}, {.src_data_rank = -1}), 0, 2);
        const bool refused = message_of([&] { view(x, {6, 2}); }) != "no error";
        for (const std::string& other : mesh->group()->all_gather_bytes(refused ? "refused" : "seen"))
          EXPECT_EQ(other, "refused");
        require_none(difference(full_tensor(reshape(x, {6, 2})), reshape(transpose(whole, 0, 2), {6, 2})),
                     "the reshape after it");
      });
    }
  }
}

}  // namespace
}  // namespace tutti::dist
