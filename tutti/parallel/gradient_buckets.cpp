#include "tutti/parallel/gradient_buckets.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kSmallest = (256 << 10) / sizeof(float), kLargest = (32 << 20) / sizeof(float);
constexpr int64_t kBucketsInAll = 8;

int64_t numel_of_parameter(const std::vector<Extents>& uses) { return uses.empty() ? 0 : numel_of(uses[0]); }

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

std::vector<GradientBucket> buckets_of(const UseLayout& layout) {
  int64_t total = 0;
  for (size_t p = 0; p < layout.size(); ++p) {
    for (const Extents& sizes : layout[p])
      TUTTI_CHECK(sizes == layout[p][0], "Shards: the uses of parameter {} have gradients of {} and {}; expected one size", p, layout[p][0], sizes);
    total += numel_of_parameter(layout[p]);
  }
  const int64_t limit = std::clamp(total / kBucketsInAll, kSmallest, kLargest);
  std::vector<GradientBucket> buckets;
  std::map<size_t, size_t> open;  // by number of uses, the bucket that takes further parameters
  for (size_t p = layout.size(); p-- > 0;) {
    const size_t uses = layout[p].size();
    const int64_t numel = numel_of_parameter(layout[p]);
    if (uses == 0) continue;
    if (numel > limit) {
      for (int64_t at = 0; at < numel; at += limit) {
        const int64_t end = std::min(numel, at + limit);
        buckets.push_back({.parts = {{p, at, end}}, .uses = uses, .numel = end - at, .is_large = true});
      }
      continue;
    }
    const auto found = open.find(uses);
    if (found == open.end() || buckets[found->second].numel + numel > limit) {
      open[uses] = buckets.size();
      buckets.push_back({.parts = {}, .uses = uses});
    }
    GradientBucket& bucket = buckets[open[uses]];
    bucket.parts.push_back({p, 0, numel});
    bucket.numel += numel;
  }
  // One that takes parameters with another number of uses may wait for an early parameter.
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const GradientBucket& a, const GradientBucket& b) { return a.parts.back().parameter > b.parts.back().parameter; });
  return buckets;
}

void take_use(UseGradients& uses, const GradientBucket& bucket, size_t use, const Tensor& out) {
  float* to = out.data<float>();
  for (const GradientBucket::Part& part : bucket.parts) {
    Tensor& g = uses[part.parameter][use];
    g = to_contiguous(g);
    const int64_t count = part.end - part.begin;
    if (count > 0) std::memcpy(to, g.data<float>() + part.begin, static_cast<size_t>(count) * sizeof(float));
    to += count;
    if (part.end == g.numel()) g = {};
  }
}

Tensor take_use(UseGradients& uses, const GradientBucket& bucket, size_t use) {
  if (!bucket.is_large) {
    const Tensor flat = Tensor::empty({bucket.numel});
    take_use(uses, bucket, use, flat);
    return flat;
  }
  const GradientBucket::Part& part = bucket.parts[0];
  Tensor& g = uses[part.parameter][use];
  g = to_contiguous(g);
  const Tensor view = g.view_as({bucket.numel}, {1}, g.offset() + part.begin);
  if (part.end == g.numel()) g = {};
  return view;
}

Tensor FinishedGradients::memory(const GradientBucket& bucket) {
  const GradientBucket::Part& first = bucket.parts[0];
  if (bucket.is_large) {
    Tensor& whole = gradients_[first.parameter];
    if (!whole.defined()) whole = Tensor::empty(layout_[first.parameter][0]);
    return whole.view_as({bucket.numel}, {1}, first.begin);
  }
  const Tensor flat = Tensor::empty({bucket.numel});
  int64_t at = 0;
  for (const GradientBucket::Part& part : bucket.parts) {
    const Extents& sizes = layout_[part.parameter][0];
    gradients_[part.parameter] = flat.view_as(sizes, contiguous_strides(sizes), at);
    at += part.end;
  }
  return flat;
}

}  // namespace tutti::parallel
