#include "tests/layouts/support/ring_attention.h"

#include <map>
#include <optional>
#include <utility>

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

// Chunks by halving: N3's tree over the keys, of which they are nodes of one level.
Tensor added(std::span<const Tensor> terms) {
  if (terms.size() == 1) return terms[0];
  const size_t left = terms.size() / 2;
  return add(added(terms.first(left)), added(terms.subspan(left)));
}

// Nodes of N10's tree over blocks of keys, which is anchored at key 0 and aligned: block a is the first of a node of
// 2^k blocks where 2^k divides a.
struct KeyNode {
  int64_t begin, blocks;
  auto operator<=>(const KeyNode&) const = default;
};

// The largest nodes that the blocks [begin, end) consist of.
std::vector<KeyNode> aligned_nodes(int64_t begin, int64_t end) {
  std::vector<KeyNode> nodes;
  while (begin < end) {
    int64_t blocks = 1;
    while (begin % (2 * blocks) == 0 && begin + 2 * blocks <= end) blocks *= 2;
    nodes.push_back({begin, blocks});
    begin += blocks;
  }
  return nodes;
}

// What a chunk of the keys adds to the tree. Nodes may come in any order: they are combined by key.
class KeyTree {
 public:
  void add_node(const KeyNode& node, SdpaPartial partial) { nodes_.emplace(node, std::move(partial)); }
  // The nodes cover `blocks` blocks, from the first on; what is absent adds nothing.
  SdpaPartial whole(int64_t blocks) const {
    int64_t root = 1;
    while (root < blocks) root *= 2;
    return *at({0, root});
  }

 private:
  std::optional<SdpaPartial> at(const KeyNode& node) const {
    if (const auto found = nodes_.find(node); found != nodes_.end()) return found->second;
    if (node.blocks == 1) return std::nullopt;
    const int64_t half = node.blocks / 2;
    const std::optional<SdpaPartial> left = at({node.begin, half}), right = at({node.begin + half, half});
    return left && right ? combine(*left, *right) : left ? left : right;
  }
  std::map<KeyNode, SdpaPartial> nodes_;
};

Tensor batched(const Tensor& t) { return reshape(t, {1, t.size(0), t.size(1), t.size(2)}); }
Tensor rows(const Tensor& t) { return reshape(t, {t.size(1), t.size(2), t.size(3)}); }

}  // namespace

Tensor ring_attention(const Place& place, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                      const std::vector<int64_t>& positions) {
  const int64_t mine = q_THE.extent(0), all = static_cast<int64_t>(positions.size());
  // Tokens of a chunk; every rank holds the same number of chunks, whatever the order is configured for.
  int64_t length = 1;
  while (length < mine && positions[static_cast<size_t>(length)] == positions[0] + length) ++length;
  // Borders of chunks are those of blocks, which the softmax takes apart (N10), and nodes of the sum over keys in the
  // gradient of the queries (N3).
  const int64_t block = key_block();
  TUTTI_CHECK(length % block == 0,
              "keys over chunks of a ring: {} keys in chunks of {}, and blocks have {}; the most chunks are {}", all,
              length, block, all / block);
  tree_cut(all, codegen::contraction_leaf(), 0, static_cast<int>(all / length), "keys over chunks of a ring");
  const std::vector<Visit> order = visits(place, positions, mine, length);
  const size_t chunks = order.size();

  // For keys of which the first is `key` of the row.
  const auto options_for = [=, &place](int64_t key) {
    std::vector<int32_t> last;
    for (int64_t i = 0; i < mine; ++i)
      last.push_back(static_cast<int32_t>(positions[static_cast<size_t>(place.context_part.begin + i)] - key));
    return SdpaOptions{.last_key = Tensor::of(last, {1, mine})};
  };
  const Tensor q = batched(detach(q_THE));
  std::vector<Tensor> keys, values;  // of each rank
  SdpaResult result;
  {
    const NoGradScope no_grad;
    keys.resize(static_cast<size_t>(place.cp.size()));
    values.resize(keys.size());
    KeyTree tree;
    Tensor key = detach(k_TKE), value = detach(v_TKE);
    for (const Visit& v : order) {
      const size_t owner = static_cast<size_t>(v.owner);
      if (v.local == 0 && v.owner != place.cp.rank()) {
        key = place.cp.from_next(key);
        value = place.cp.from_next(value);
      }
      keys[owner] = key;
      values[owner] = value;
      const int64_t first = v.chunk * length;
      for (const KeyNode& node : aligned_nodes(first / block, (first + length) / block)) {
        const int64_t begin = node.begin * block, local = v.local + begin - first, count = node.blocks * block;
        tree.add_node(node, sdpa_partial(q, batched(narrow(keys[owner], 0, local, count)),
                                         batched(narrow(values[owner], 0, local, count)), options_for(begin)));
      }
    }
    result = sdpa_of(tree.whole(all / block), q.dtype());
  }
  return function(
      "ring_attention", {q_THE, k_TKE, v_TKE}, [&] { return rows(result.output); },
      [=, &place](const Tensor& g) -> std::vector<Tensor> {
        std::vector<Tensor> dq(chunks), dk(chunks), dv(chunks);
        for (size_t i = 0; i < chunks; ++i) {
          const Visit& v = order[i];
          const size_t owner = static_cast<size_t>(v.owner),
                       at = static_cast<size_t>((v.owner * mine + v.local) / length);
          const SdpaGradients d = sdpa_partial_backward(batched(g), q, batched(narrow(keys[owner], 0, v.local, length)),
                                                        batched(narrow(values[owner], 0, v.local, length)), result,
                                                        options_for(v.chunk * length));
          dq[static_cast<size_t>(v.chunk)] = d.q;
          dk[at] = rows(d.k);
          dv[at] = rows(d.v);
        }
        // The partial gradients of all visits are added in rank order, which is not the order of the visits.
        const auto own = [&](const std::vector<Tensor>& parts) {
          return cast(place.cp.reduce_scatter(cat(parts, 0)), q.dtype());
        };
        return {cast(rows(added(dq)), q.dtype()), own(dk), own(dv)};
      });
}

}  // namespace tutti::layouts
