#include "tests/layouts/support/place.h"

#include <algorithm>
#include <tuple>

#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"
#include "tutti/parallel/gradient_exchange.h"

namespace tutti::layouts {
namespace {

struct Coordinates {
  int tp, cp, fsdp, dp, pp;
  int data;  // on the data axis, which consists of dp and fsdp
};

Coordinates coordinates_of(const Layout& l, int rank) {
  const int data = rank / (l.tp * l.cp) % l.data();
  return {.tp = rank % l.tp,
          .cp = rank / l.tp % l.cp,
          .fsdp = data % l.fsdp,
          .dp = data / l.fsdp,
          .pp = rank / (l.tp * l.cp * l.data()),
          .data = data};
}

}  // namespace

Place::Place(comm::ProcessGroup& world, const Layout& l, const RunConfig& run) : layout(l) {
  TUTTI_CHECK_EQ(world.size(), l.ranks(), "layout {}: ranks", l.name());
  const Coordinates mine = coordinates_of(l, world.rank());
  parallel::shards_of_rank(run.shards, mine.data, l.data());  // refuses more ranks than shards
  TUTTI_CHECK(run.shards % l.data() == 0, "{} data ranks do not hold equal subtrees of {} shards", l.data(),
              run.shards);
  TUTTI_CHECK(l.cp == 1 || run.balance % l.cp == 0,
              "context parallelism over {} ranks needs a token order of at least {} "
              "head-tail pairs; this run has {}",
              l.cp, l.cp, run.balance);
  context_part = tree_cut(run.tokens, token_grain(), mine.cp, l.cp, "tokens over context parallel ranks");
  sequence_part = tree_cut(context_part.size(), token_grain(), l.sequence ? mine.tp : 0, l.sequence ? l.tp : 1,
                           "tokens over sequence parallel ranks");
  sequence_part.begin += context_part.begin;
  sequence_part.end += context_part.begin;

  // The ranks of an axis are those whose coordinates on all other axes are this rank's.
  const auto axis = [&](const auto& others) {
    std::vector<int> ranks;
    for (int r = 0; r < world.size(); ++r) {
      if (others(coordinates_of(l, r)) == others(mine)) ranks.push_back(r);
    }
    return Axis(world, ranks);
  };
  tp = axis([](const Coordinates& a) { return std::tuple(a.pp, a.data, a.cp); });
  cp = axis([](const Coordinates& a) { return std::tuple(a.pp, a.data, a.tp); });
  fsdp = axis([](const Coordinates& a) { return std::tuple(a.pp, a.dp, a.cp, a.tp); });
  dp = axis([](const Coordinates& a) { return std::tuple(a.pp, a.fsdp, a.cp, a.tp); });
  data = axis([](const Coordinates& a) { return std::tuple(a.pp, a.cp, a.tp); });
  pp = axis([](const Coordinates& a) { return std::tuple(a.data, a.cp, a.tp); });
  ep = axis([&](const Coordinates& a) { return std::tuple(a.pp, a.data / l.ep, a.cp, a.tp); });
  expert_data = axis([&](const Coordinates& a) { return std::tuple(a.pp, a.data % l.ep, a.cp, a.tp); });
}

int64_t largest_storage_part(int64_t numel, int ranks) { return (numel + ranks - 1) / ranks; }

TreeCut storage_part(int64_t numel, int rank, int ranks) {
  const int64_t part = largest_storage_part(numel, ranks);
  return {std::min(rank * part, numel), std::min((rank + 1) * part, numel)};
}

}  // namespace tutti::layouts
