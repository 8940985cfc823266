#include "tests/layouts/support/ring_attention.h"

#include "tests/layouts/support/function.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"

namespace tutti::layouts {
namespace {

// The two chunks of every rank in the order in which `rank` meets them, and where each lies in the row.
struct Visit {
  int owner;
  int64_t local;  // first token among those of the owner
  int64_t chunk;  // number in the order of positions
};
std::vector<Visit> visits(const Place& place, const std::vector<int64_t>& positions, int64_t mine, int64_t length) {
  std::vector<Visit> list;
  const int ranks = place.cp.size();
  for (int i = 0; i < ranks; ++i) {
    const int owner = (place.cp.rank() + i) % ranks;
    for (int64_t local = 0; local < mine; local += length)
      list.push_back({owner, local, positions[static_cast<size_t>(owner * mine + local)] / length});
  }
  return list;
}

// The nodes of all chunks by halving, which is the aligned tree: their number is a power of two.
template <class Node, class Join>
Node by_halving(std::vector<Node> nodes, Join join) {
  for (; nodes.size() > 1; nodes.resize(nodes.size() / 2)) {
    for (size_t i = 0; i < nodes.size() / 2; ++i) nodes[i] = join(nodes[2 * i], nodes[2 * i + 1]);
  }
  return nodes[0];
}

Tensor batched(const Tensor& t) { return reshape(t, {1, t.size(0), t.size(1), t.size(2)}); }
Tensor rows(const Tensor& t) { return reshape(t, {t.size(1), t.size(2), t.size(3)}); }

}  // namespace

Tensor ring_attention(const Place& place, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                      const std::vector<int64_t>& positions) {
  const int64_t mine = q_THE.extent(0), all = static_cast<int64_t>(positions.size());
  // Tokens of a chunk; every rank holds the same number of chunks, whatever the order is configured for.
  int64_t length = 1;
  while (length < mine && positions[static_cast<size_t>(length)] == positions[0] + length) ++length;
  for (const int64_t leaf : {key_block(), static_cast<int64_t>(codegen::contraction_leaf())})
    tree_cut(all, leaf, 0, static_cast<int>(all / length), "keys over chunks of a ring");
  const std::vector<Visit> order = visits(place, positions, mine, length);
  const size_t chunks = order.size();

  const auto options_for = [=, &place](int64_t chunk) {
    std::vector<int32_t> last;
    for (int64_t i = 0; i < mine; ++i)
      last.push_back(static_cast<int32_t>(positions[static_cast<size_t>(place.context_part.begin + i)] - chunk * length));
    return SdpaOptions{.last_key = Tensor::of(last, {1, mine})};
  };
  const Tensor q = batched(detach(q_THE));
  std::vector<Tensor> keys, values;  // of each rank
  SdpaResult result;
  {
    const NoGradScope no_grad;
    keys.resize(static_cast<size_t>(place.cp.size()));
    values.resize(keys.size());
    std::vector<SdpaPartial> nodes(chunks);
    Tensor key = detach(k_TKE), value = detach(v_TKE);
    for (const Visit& v : order) {
      const size_t owner = static_cast<size_t>(v.owner);
      if (v.local == 0 && v.owner != place.cp.rank()) {
        key = place.cp.from_next(key);
        value = place.cp.from_next(value);
      }
      keys[owner] = key;
      values[owner] = value;
      nodes[static_cast<size_t>(v.chunk)] = sdpa_partial(q, batched(narrow(keys[owner], 0, v.local, length)),
                                                         batched(narrow(values[owner], 0, v.local, length)), options_for(v.chunk));
    }
    result = sdpa_of(by_halving(nodes, [](const SdpaPartial& a, const SdpaPartial& b) { return combine(a, b); }), q.dtype());
  }
  return function(
      "ring_attention", {q_THE, k_TKE, v_TKE}, [&] { return rows(result.output); },
      [=, &place](const Tensor& g) -> std::vector<Tensor> {
        std::vector<Tensor> dq(chunks), dk(chunks), dv(chunks);
        for (size_t i = 0; i < chunks; ++i) {
          const Visit& v = order[i];
          const size_t owner = static_cast<size_t>(v.owner), at = static_cast<size_t>((v.owner * mine + v.local) / length);
          const SdpaGradients d = sdpa_partial_backward(batched(g), q, batched(narrow(keys[owner], 0, v.local, length)),
                                                        batched(narrow(values[owner], 0, v.local, length)), result, options_for(v.chunk));
          dq[static_cast<size_t>(v.chunk)] = d.q;
          dk[at] = rows(d.k);
          dv[at] = rows(d.v);
        }
        // The partial gradients of all visits are added in rank order, which is not the order of the visits.
        const auto own = [&](const std::vector<Tensor>& parts) { return cast(place.cp.reduce_scatter(cat(parts, 0)), q.dtype()); };
        const Tensor sum = by_halving(dq, [](const Tensor& a, const Tensor& b) { return add(a, b); });
        return {cast(rows(sum), q.dtype()), own(dk), own(dv)};
      });
}

}  // namespace tutti::layouts
