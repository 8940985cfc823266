#include "tutti/parallel/gradient_buckets.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/ops/copy.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kSmallest = (256 << 10) / sizeof(float), kLargest = (32 << 20) / sizeof(float);
constexpr int64_t kBucketsInAll = 8;

int64_t numel_of_parameter(const std::vector<Extents>& uses) { return uses.empty() ? 0 : numel_of(uses[0]); }

// Elements per index of a dim.
int64_t numel_of_index(const Extents& sizes, int dim) {
  int64_t numel = 1;
  for (int d = 0; d < sizes.ndim(); ++d) numel *= d == dim ? 1 : sizes[static_cast<size_t>(d)];
  return numel;
}

void add_large(std::vector<GradientBucket>& buckets, size_t p, int64_t numel, size_t uses, int64_t limit) {
  for (int64_t at = 0; at < numel; at += limit) {
    const int64_t end = std::min(numel, at + limit);
    buckets.push_back({.parts = {{.parameter = p, .numel = end - at}},
                       .uses = uses,
                       .numel = end - at,
                       .is_large = true,
                       .first = at,
                       .is_last = end == numel});
  }
}

// Each bucket has an equal share of what every shard keeps, so that all ranks send and add in each of them. The
// gradient lies in the order of the shards, and nothing is copied together.
void add_large_cut(std::vector<GradientBucket>& buckets, size_t p, const Extents& sizes, size_t uses, int64_t limit,
                   const GradientPlacements& placements) {
  const int64_t numel = numel_of(sizes), index = numel_of_index(sizes, 0), pieces = (numel + limit - 1) / limit;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    GradientBucket bucket{.parts = {{.parameter = p, .numel = numel}},
                          .uses = uses,
                          .numel = numel,
                          .is_large = true,
                          .is_last = piece + 1 == pieces};
    for (const dist::Range& range : placements.of(p).ranges) {
      const int64_t first = range.begin * index, all = range.size() * index;
      bucket.kept.push_back({first + all * piece / pieces, first + all * (piece + 1) / pieces});
    }
    buckets.push_back(std::move(bucket));
  }
}

// Lets what a shard keeps of all parameters lie together.
void order_by_shard(GradientBucket& bucket) {
  std::stable_sort(bucket.parts.begin(), bucket.parts.end(),
                   [](const auto& a, const auto& b) { return a.shard < b.shard; });
  int64_t at = 0, part = 0;
  for (size_t j = 0; j < bucket.kept.size(); ++j) {
    bucket.kept[j].begin = at;
    for (; part < std::ssize(bucket.parts) && bucket.parts[static_cast<size_t>(part)].shard == static_cast<int>(j);
         ++part)
      at += bucket.parts[static_cast<size_t>(part)].numel;
    bucket.kept[j].end = at;
  }
}

// Replicas add equal shares of what they keep, and hand them to each other.
void share_among_replicas(GradientBucket& bucket, const GradientPlacements& placements) {
  for (int i = 0; i < placements.replicas(); ++i) {
    for (const comm::NodeSlice& kept : bucket.kept) {
      const comm::NodeSlice share = comm::slice_of(kept.end - kept.begin, i, placements.replicas());
      bucket.slices.push_back({kept.begin + share.begin, kept.begin + share.end});
    }
  }
}

}  // namespace

UseLayout layout_of(const UseGradients& parameters) {
  UseLayout layout;
  for (const auto& uses : parameters) {
    layout.emplace_back();
    for (const Tensor& g : uses) layout.back().push_back(g.extents());
  }
  return layout;
}

uint64_t hash_of(const UseLayout& layout) {
  std::vector<int64_t> words;
  for (const auto& uses : layout) {
    words.push_back(static_cast<int64_t>(uses.size()));
    for (const Extents& sizes : uses) {
      words.push_back(static_cast<int64_t>(sizes.size()));
      words.insert(words.end(), sizes.begin(), sizes.end());
    }
  }
  return hash64(words.data(), words.size() * sizeof(int64_t), 0);
}

std::vector<GradientBucket> buckets_of(const UseLayout& layout, const GradientPlacements& placements) {
  int64_t total = 0;
  for (size_t p = 0; p < layout.size(); ++p) {
    for (const Extents& sizes : layout[p])
      TUTTI_CHECK(sizes == layout[p][0],
                  "Shards: the uses of parameter {} have gradients of {} and {}; expected one size", p, layout[p][0],
                  sizes);
    total += numel_of_parameter(layout[p]);
  }
  const int64_t limit = std::clamp(total / kBucketsInAll, kSmallest, kLargest);
  std::vector<GradientBucket> buckets;
  std::map<std::pair<size_t, bool>, size_t>
      open;  // by number of uses and whether parameters are cut, the bucket that takes further ones
  for (size_t p = layout.size(); p-- > 0;) {
    const size_t uses = layout[p].size();
    const int64_t numel = numel_of_parameter(layout[p]);
    const GradientPlacements::Cut& cut = placements.of(p);
    if (uses == 0) continue;
    if (numel > limit && (!cut.is_cut() || cut.dim == 0)) {
      if (cut.is_cut()) add_large_cut(buckets, p, layout[p][0], uses, limit, placements);
      else add_large(buckets, p, numel, uses, limit);
      continue;
    }
    const auto found = open.find({uses, cut.is_cut()});
    if (found == open.end() || buckets[found->second].numel + numel > limit) {
      open[{uses, cut.is_cut()}] = buckets.size();
      buckets.push_back({.parts = {}, .uses = uses});
      if (cut.is_cut()) buckets.back().kept.resize(static_cast<size_t>(placements.shards()));
    }
    GradientBucket& bucket = buckets[open[{uses, cut.is_cut()}]];
    bucket.numel += numel;
    if (!cut.is_cut()) bucket.parts.push_back({.parameter = p, .numel = numel});
    for (size_t j = 0; j < cut.ranges.size(); ++j) {
      const int64_t index = numel_of_index(layout[p][0], cut.dim);
      bucket.parts.push_back({.parameter = p, .shard = static_cast<int>(j), .numel = cut.ranges[j].size() * index});
    }
  }
  for (GradientBucket& bucket : buckets) {
    if (bucket.kept.empty()) continue;
    if (!bucket.is_large) order_by_shard(bucket);
    share_among_replicas(bucket, placements);
  }
  // One that takes parameters with another number of uses may wait for an early parameter.
  const auto earliest = [](const GradientBucket& bucket) {
    return std::min_element(bucket.parts.begin(), bucket.parts.end(),
                            [](const auto& a, const auto& b) { return a.parameter < b.parameter; })
        ->parameter;
  };
  std::stable_sort(buckets.begin(), buckets.end(),
                   [&](const GradientBucket& a, const GradientBucket& b) { return earliest(a) > earliest(b); });
  return buckets;
}

void take_use(UseGradients& uses, const GradientBucket& bucket, size_t use, const GradientPlacements& placements,
              const Tensor& out) {
  if (bucket.is_large) {
    const Tensor view = take_use(uses, bucket, use, placements);
    std::memcpy(out.data<float>(), view.data<float>(), static_cast<size_t>(bucket.numel) * sizeof(float));
    return;
  }
  int64_t at = 0;
  for (const GradientBucket::Part& part : bucket.parts) {
    const Tensor& g = uses[part.parameter][use];
    Extents sizes = g.extents();
    int64_t first = g.offset();
    if (part.shard >= 0) {
      const GradientPlacements::Cut& cut = placements.of(part.parameter);
      const dist::Range range = cut.ranges[static_cast<size_t>(part.shard)];
      sizes[static_cast<size_t>(cut.dim)] = range.size();
      first += range.begin * g.strides()[static_cast<size_t>(cut.dim)];
    }
    if (part.numel > 0)
      copy_(out.view_as(sizes, contiguous_strides(sizes), out.offset() + at), g.view_as(sizes, g.strides(), first));
    at += part.numel;
  }
  for (const GradientBucket::Part& part : bucket.parts) uses[part.parameter][use] = {};
}

Tensor take_use(UseGradients& uses, const GradientBucket& bucket, size_t use, const GradientPlacements& placements) {
  if (!bucket.is_large) {
    const Tensor flat = Tensor::empty({bucket.numel});
    take_use(uses, bucket, use, placements, flat);
    return flat;
  }
  Tensor& g = uses[bucket.parts[0].parameter][use];
  g = to_contiguous(g);
  const Tensor view = g.view_as({bucket.numel}, {1}, g.offset() + bucket.first);
  if (bucket.is_last) g = {};
  return view;
}

Tensor FinishedGradients::memory(const GradientBucket& bucket) {
  const size_t mine = static_cast<size_t>(placements_.shard());
  const auto sizes_of = [&](size_t p) { return placements_.part_sizes(p, layout_[p][0]); };
  if (bucket.is_large) {
    const size_t p = bucket.parts[0].parameter;
    Tensor& whole = gradients_[p];
    if (!whole.defined()) whole = Tensor::empty(sizes_of(p));
    if (!bucket.is_cut()) return whole.view_as({bucket.numel}, {1}, bucket.first);
    const comm::NodeSlice kept = bucket.kept[mine];
    const int64_t first = placements_.of(p).ranges[mine].begin * numel_of_index(layout_[p][0], 0);
    return whole.view_as({kept.end - kept.begin}, {1}, kept.begin - first);
  }
  const Tensor flat = Tensor::empty({bucket.is_cut() ? bucket.kept[mine].end - bucket.kept[mine].begin : bucket.numel});
  int64_t at = 0;
  for (const GradientBucket::Part& part : bucket.parts) {
    if (part.shard >= 0 && part.shard != placements_.shard()) continue;
    const Extents sizes = sizes_of(part.parameter);
    gradients_[part.parameter] = flat.view_as(sizes, contiguous_strides(sizes), at);
    at += part.numel;
  }
  return flat;
}

}  // namespace tutti::parallel
