#include "tutti/comm/reduce_nodes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tutti/codegen/combine.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

// Elements per pass over all additions: what they read and write stays in the second-level cache.
constexpr int64_t kBlock = 8192;

// values[into] += values[from], in the order of the list.
struct Addition {
  size_t into, from;
};

// Appends the additions that make the sum of the shards [begin, begin + size) of the nodes [first, last), all of which
// lie in it. Returns the value that holds it.
size_t plan_sum(std::span<const ShardNode> nodes, size_t first, size_t last, int64_t begin, int64_t size,
                std::vector<Addition>& additions) {
  if (last - first == 1) return first;  // what is absent adds nothing
  const int64_t middle = begin + size / 2;
  const auto border =
      std::find_if(nodes.begin() + static_cast<ptrdiff_t>(first), nodes.begin() + static_cast<ptrdiff_t>(last),
                   [&](const ShardNode& node) { return node.begin >= middle; });
  const auto split = static_cast<size_t>(border - nodes.begin());
  if (split == last) return plan_sum(nodes, first, last, begin, size / 2, additions);
  if (split == first) return plan_sum(nodes, first, last, middle, size / 2, additions);
  const size_t left = plan_sum(nodes, first, split, begin, size / 2, additions);
  const size_t right = plan_sum(nodes, split, last, middle, size / 2, additions);
  additions.push_back({left, right});
  return left;
}

void check_nodes(std::span<const ShardNode> nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ShardNode node = nodes[i];
    const int64_t size = node.end - node.begin;
    TUTTI_CHECK(
        node.begin >= 0 && size > 0 && std::has_single_bit(static_cast<uint64_t>(size)) && node.begin % size == 0,
        "reduce_nodes: [{}, {}) is no node of a tree over shards; expected a power of two of shards that begins at a "
        "multiple of it",
        node.begin, node.end);
    TUTTI_CHECK(i == 0 || nodes[i - 1].end <= node.begin,
                "reduce_nodes: [{}, {}) follows [{}, {}); expected disjoint nodes in ascending order", node.begin,
                node.end, nodes[i - 1].begin, nodes[i - 1].end);
  }
}

// One node of some rank, and the owner's slice of it.
using Part = std::pair<ShardNode, float*>;

// The elements [slice.begin, slice.end) of a contiguous tensor, in place.
Tensor part_of(const Tensor& tensor, NodeSlice slice) {
  return tensor.view_as({slice.end - slice.begin}, {1}, tensor.offset() + slice.begin);
}

// Ranks with other plans would take bytes for what they are not.
uint64_t key_of(const NodePlan& plan, uint64_t agreement) {
  uint64_t key = agreement;
  for (const auto& of_rank : plan) {
    const uint64_t count = of_rank.size();
    key = hash64(&count, sizeof count, key);
    key = hash64(of_rank.data(), of_rank.size() * sizeof(ShardNode), key);
  }
  return key;
}

// The nodes of all ranks, ascending. Returns how many the rank with the most brings.
size_t check_plan(const ProcessGroup& group, const NodePlan& plan, std::vector<ShardNode>& all) {
  TUTTI_CHECK(static_cast<int>(plan.size()) == group.size(),
              "reduce_nodes: the plan is for {} ranks and the group has {}", plan.size(), group.size());
  size_t most = 0;
  for (const auto& of_rank : plan) {
    all.insert(all.end(), of_rank.begin(), of_rank.end());
    most = std::max(most, of_rank.size());
  }
  TUTTI_CHECK(!all.empty(), "reduce_nodes: no rank of the plan brings a node");
  std::sort(all.begin(), all.end());
  check_nodes(all);
  return most;
}

void check_output(const Tensor& output) {
  TUTTI_CHECK(output.defined() && output.dtype() == DType::f32 && output.is_contiguous() && output.ndim() == 1,
              "reduce_nodes: the output is {}; expected contiguous f32, 1-d", describe(output));
}

void sum_parts(std::vector<Part> parts, const Tensor& output) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.first < b.first; });
  std::vector<ShardNode> nodes;
  std::vector<float*> values;
  for (const auto& [node, slice] : parts) {
    nodes.push_back(node);
    values.push_back(slice);
  }
  sum_nodes(nodes, values, output.numel(), output.data<float>());
}

// `numel` is -1 on a rank that brings no node.
void check_slices(std::span<const NodeSlice> slices, int ranks, int64_t numel) {
  TUTTI_CHECK(slices.empty() || std::ssize(slices) == ranks, "reduce_nodes: {} slices for {} ranks", slices.size(),
              ranks);
  for (size_t r = 0; r < slices.size(); ++r) {
    const NodeSlice& s = slices[r];
    TUTTI_CHECK(s.begin >= 0 && s.begin <= s.end && (numel < 0 || s.end <= numel),
                "reduce_nodes: the slice of rank {} is [{}, {}) of {} elements", r, s.begin, s.end, numel);
  }
}

// The number of elements of this rank's nodes; -1 when it brings none.
int64_t check_own(const ProcessGroup& group, Tensors nodes, const NodePlan& plan) {
  const auto me = static_cast<size_t>(group.rank());
  TUTTI_CHECK(nodes.size() == plan[me].size(), "reduce_nodes: rank {} gives {} tensors; the plan expects {} of it", me,
              nodes.size(), plan[me].size());
  for (const Tensor& node : nodes) {
    TUTTI_CHECK(node.defined() && node.dtype() == DType::f32 && node.is_contiguous(),
                "reduce_nodes: a node is {}; expected contiguous f32", describe(node));
    TUTTI_CHECK(node.numel() == nodes[0].numel(), "reduce_nodes: nodes have {} and {} elements; expected one number",
                nodes[0].numel(), node.numel());
  }
  return nodes.empty() ? -1 : nodes[0].numel();
}

}  // namespace

std::vector<ShardNode> maximal_nodes(int64_t begin, int64_t end) {
  std::vector<ShardNode> nodes;
  while (begin < end) {
    const auto room = std::bit_floor(static_cast<uint64_t>(end - begin));
    const uint64_t aligned = begin == 0 ? room : uint64_t{1} << std::countr_zero(static_cast<uint64_t>(begin));
    const auto size = static_cast<int64_t>(std::min(room, aligned));
    nodes.push_back({begin, begin + size});
    begin += size;
  }
  return nodes;
}

NodeSlice slice_of(int64_t numel, int rank, int ranks) {
  const int64_t each = (numel + ranks - 1) / ranks;
  return {std::min(numel, rank * each), std::min(numel, (rank + 1) * each)};
}

void sum_nodes(std::span<const ShardNode> nodes, std::span<float* const> values, int64_t count, float* out) {
  check_nodes(nodes);
  TUTTI_CHECK(!nodes.empty() && nodes.size() == values.size(),
              "sum_nodes: {} nodes and the values of {}; expected as many, and at least one", nodes.size(),
              values.size());
  std::vector<Addition> additions;
  const auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(nodes.back().end)));
  const size_t result = plan_sum(nodes, 0, nodes.size(), 0, size, additions);
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    for (const Addition& add : additions) {
      const std::byte* const both[] = {reinterpret_cast<const std::byte*>(values[add.into] + at),
                                       reinterpret_cast<const std::byte*>(values[add.from] + at)};
      combine(ReduceKind::sum, DType::f32, both, {}, n, reinterpret_cast<std::byte*>(values[add.into] + at));
    }
    std::memcpy(out + at, values[result] + at, static_cast<size_t>(n) * sizeof(float));
  }
}

NodeReduction::NodeReduction(ProcessGroup& group, const Tensor& output, Tensors nodes, const NodePlan& plan,
                             const CallOptions& options, std::span<const NodeSlice> slices)
    : output_(output) {
  group.checked(CollectiveKind::all_to_all, [&] {
    const int ranks = group.size(), me = group.rank();
    std::vector<ShardNode> all;
    const size_t rounds = check_plan(group, plan, all);
    const int64_t numel = check_own(group, nodes, plan);
    check_output(output);
    check_slices(slices, ranks, numel);
    const auto slice = [&](int r) {
      return slices.empty() ? slice_of(numel, r, ranks) : slices[static_cast<size_t>(r)];
    };
    const NodeSlice own = slice(me);
    TUTTI_CHECK(numel < 0 || own.end - own.begin == output.numel(),
                "reduce_nodes: the output of rank {} has {} elements; its slice of {} has {}", me, output.numel(),
                numel, own.end - own.begin);
    CallOptions agreed = options;
    agreed.agreement = key_of(plan, options.agreement);
    if (!slices.empty()) agreed.agreement = hash64(slices.data(), slices.size_bytes(), agreed.agreement);
    // In round i every rank sends the slices of its i-th node, if it has one, without copying them first.
    for (size_t round = 0; round < rounds; ++round) {
      std::vector<Tensor> outputs, inputs;
      for (int r = 0; r < ranks; ++r) {
        const auto& theirs = plan[static_cast<size_t>(r)];
        const bool brings = round < theirs.size();
        outputs.push_back(Tensor::empty({brings ? output.numel() : 0}));
        if (brings) parts_.emplace_back(theirs[round], outputs.back().data<float>());
        inputs.push_back(round < nodes.size() ? part_of(nodes[round], slice(r)) : Tensor::empty({0}));
      }
      works_.push_back(group.all_to_all(outputs, inputs, agreed));
      held_.insert(held_.end(), outputs.begin(), outputs.end());
    }
  });
}

bool NodeReduction::is_done() const {
  return std::all_of(works_.begin(), works_.end(), [](const Work& work) { return work.is_done(); });
}

void NodeReduction::finish() {
  for (const Work& work : works_) work.wait();
  sum_parts(std::move(parts_), output_);
  held_.clear();
}

void reduce_nodes(ProcessGroup& group, const Tensor& output, Tensors nodes, const NodePlan& plan, uint64_t agreement) {
  NodeReduction(group, output, nodes, plan, {.agreement = agreement}).finish();
}

void reduce_nodes(ProcessGroup& group, const Tensor& output, const SymmetricBuffer& nodes, int64_t numel,
                  const NodePlan& plan, uint64_t agreement) {
  group.checked(CollectiveKind::barrier, [&] {
    const int ranks = group.size(), me = group.rank();
    std::vector<ShardNode> all;
    const auto most = static_cast<int64_t>(check_plan(group, plan, all));
    check_output(output);
    const Tensor& memory = nodes.tensor();
    TUTTI_CHECK(memory.dtype() == DType::f32 && memory.is_contiguous() && numel >= 0 && memory.numel() >= most * numel,
                "reduce_nodes: the buffer is {}; expected contiguous f32 with {} nodes of {} elements",
                describe(memory), most, numel);
    const NodeSlice own = slice_of(numel, me, ranks);
    TUTTI_CHECK(own.end - own.begin == output.numel(),
                "reduce_nodes: the output of rank {} has {} elements; its slice of {} has {}", me, output.numel(),
                numel, own.end - own.begin);
    if (!nodes.is_direct()) {
      std::vector<Tensor> views;
      for (size_t i = 0; i < plan[static_cast<size_t>(me)].size(); ++i) {
        const auto begin = static_cast<int64_t>(i) * numel;
        views.push_back(part_of(memory, {begin, begin + numel}));
      }
      return reduce_nodes(group, output, views, plan, agreement);
    }
    std::vector<Part> parts;
    for (int r = 0; r < ranks; ++r) {
      float* theirs = reinterpret_cast<float*>(nodes.handle()->data(r)) + own.begin;
      for (const ShardNode& node : plan[static_cast<size_t>(r)]) {
        parts.emplace_back(node, theirs);
        theirs += numel;
      }
    }
    // Between the barriers each slice belongs to its owner, on all ranks.
    group.barrier({.agreement = hash64(&numel, sizeof numel, key_of(plan, agreement))});
    sum_parts(std::move(parts), output);
    group.barrier();
  });
}

void all_reduce_nodes(ProcessGroup& group, const Tensor& output, Tensors nodes, const NodePlan& plan,
                      uint64_t agreement) {
  group.checked(CollectiveKind::all_to_all, [&] {
    TUTTI_CHECK(output.defined() && output.dtype() == DType::f32 && output.is_contiguous(),
                "reduce_nodes: the output is {}; expected contiguous f32", describe(output));
    const int64_t numel = output.numel();
    std::vector<ShardNode> all;
    check_plan(group, plan, all);
    const int64_t given = check_own(group, nodes, plan);
    TUTTI_CHECK(given < 0 || given == numel, "reduce_nodes: the output has {} elements and the nodes {}", numel, given);
    std::vector<Tensor> slices;
    for (int r = 0; r < group.size(); ++r) slices.push_back(part_of(output, slice_of(numel, r, group.size())));
    const Tensor mine = Tensor::empty(slices[static_cast<size_t>(group.rank())].extents());
    reduce_nodes(group, mine, nodes, plan, agreement);
    group.all_gather_v(slices, mine);
  });
}

}  // namespace tutti::comm
