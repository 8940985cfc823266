#include "tests/layouts/support/place.h"

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/parallel/shards.h"

namespace tutti::layouts {

Place::Place(World& world, const Layout& l, const RunConfig& run, int rank) : layout(l) {
  const int t = rank % l.tp, c = rank / l.tp % l.cp, f = rank / (l.tp * l.cp) % l.fsdp;
  const int d = rank / (l.tp * l.cp * l.fsdp) % l.dp, p = rank / (l.tp * l.cp * l.data());
  const int all = d * l.fsdp + f;  // place on the data axis
  // A group is named after its axis and the places of its ranks on all other axes.
  const auto axis = [&](const char* name, int place, int size, int a, int b, int e, int g) {
    return Axis(world, fmt::format("{} {} {} {} {}", name, a, b, e, g), place, size);
  };
  tp = axis("tp", t, l.tp, p, all, c, 0);
  cp = axis("cp", c, l.cp, p, all, t, 0);
  fsdp = axis("fsdp", f, l.fsdp, p, d, c, t);
  dp = axis("dp", d, l.dp, p, f, c, t);
  data = axis("data", all, l.data(), p, c, t, 0);
  pp = axis("pp", p, l.pp, all, c, t, 0);
  ep = axis("ep", all % l.ep, l.ep, p, all / l.ep, c, t);
  expert_data = axis("expert_data", all / l.ep, l.data() / l.ep, p, all % l.ep, c, t);
  const auto mailbox = [&](const char* what, int to) { return world.mailbox(fmt::format("{} {} {} {} {}", what, to, all, c, t)); };
  activations_in = mailbox("activation", p);
  activations_out = mailbox("activation", p + 1);
  gradients_in = mailbox("gradient", p);
  gradients_out = mailbox("gradient", p - 1);

  parallel::shards_of_rank(run.shards, all, l.data());  // refuses more ranks than shards
  TUTTI_CHECK(run.shards % l.data() == 0, "{} data ranks do not hold equal subtrees of {} shards", l.data(), run.shards);
  TUTTI_CHECK(l.cp == 1 || run.balance % l.cp == 0, "context parallelism over {} ranks needs a token order of at least {} "
              "head-tail pairs; this run has {}", l.cp, l.cp, run.balance);
  context_part = tree_cut(run.tokens, token_grain(), c, l.cp, "tokens over context parallel ranks");
  const int64_t tokens = context_part.size();
  const int parts = l.sequence ? l.tp : 1;
  for (int r = 0; r < parts; ++r) sequence_begins.push_back(tree_cut(tokens, token_grain(), r, parts, "tokens over sequence parallel ranks").begin);
  sequence_begins.push_back(tokens);
  const size_t mine = l.sequence ? static_cast<size_t>(t) : 0;
  sequence_part = {context_part.begin + sequence_begins[mine], context_part.begin + sequence_begins[mine + 1]};
}

double Place::wire_bytes() const {
  double sum = 0;
  for (const Axis* axis : {&tp, &cp, &fsdp, &dp, &data, &pp, &ep, &expert_data}) sum += axis->wire_bytes();
  return sum;
}

}  // namespace tutti::layouts
