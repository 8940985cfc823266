#include "tutti/plan/passes/more_cotangents.h"

#include <algorithm>
#include <optional>

#include "tutti/core/error.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/recipe_facts.h"

namespace tutti::graph {
namespace {

// The nodes that add the cotangents of a value: one, or several of which each adds the sum of the one before and a few
// more.
struct Fold {
  size_t first, last;
};

bool is_sum(const Node& node, const Graph& graph) {
  if (node.op->recipe.build == nullptr || node.op->recipe.pick != nullptr || node.outputs.size() != 1 ||
      node.inputs.size() < 2)
    return false;
  const DType dtype = node.outputs[0].dtype;
  return RecipeFacts(NodeCall(node, graph).call, {&dtype, 1}).adds(node.inputs.size());
}

bool is_alike(const Node& node) {
  const Value& sum = node.outputs[0];
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](const Value& v) { return v.dtype == sum.dtype && v.sizes == sum.sizes; });
}

std::optional<Fold> fold_of(const Graph& graph, const AddedCotangent& cotangent) {
  const auto reads = [&](const Value& v) { return v.buffer == cotangent.buffer; };
  if (std::any_of(graph.results.begin(), graph.results.end(), reads)) return {};
  std::optional<size_t> reader;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto count = std::count_if(node.inputs.begin(), node.inputs.end(), reads) +
                       std::count_if(node.after.begin(), node.after.end(), reads);
    if (count == 0) continue;
    if (reader || count > 1 || node.inputs.empty() || !reads(node.inputs.back())) return {};
    reader = n;
  }
  if (!reader) return {};
  Fold fold{*reader, *reader};
  for (size_t left = static_cast<size_t>(cotangent.consumers) + 1;;) {
    const Node& node = graph.nodes[fold.first];
    const bool fits = is_sum(node, graph) && is_alike(node) && node.inputs.size() <= left &&
                      graph.buffers[static_cast<size_t>(node.outputs[0].buffer)].versions == 1;
    if (!fits) return {};
    if (node.inputs.size() == left) return fold;
    left -= node.inputs.size() - 1;
    const auto makes = [&](const Node& other) {
      return std::any_of(other.outputs.begin(), other.outputs.end(),
                         [&](const Value& v) { return v.buffer == node.inputs[0].buffer; });
    };
    const auto before =
        std::find_if(graph.nodes.begin(), graph.nodes.begin() + static_cast<std::ptrdiff_t>(fold.first), makes);
    if (before == graph.nodes.begin() + static_cast<std::ptrdiff_t>(fold.first)) return {};
    fold.first = static_cast<size_t>(before - graph.nodes.begin());
  }
}

}  // namespace

bool is_added_last(const Graph& graph, const AddedCotangent& cotangent) {
  return fold_of(graph, cotangent).has_value();
}

std::vector<int32_t> add_cotangents(Graph& graph, const AddedCotangent& cotangent, bool in_front, int32_t behind,
                                    int32_t source) {
  const std::optional<Fold> fold = fold_of(graph, cotangent);
  TUTTI_ASSERT(fold, "a cotangent is added to others last");
  const Value given = graph.nodes[fold->last].inputs.back();
  const auto new_buffer = [&](const Buffer& like) {
    graph.buffers.push_back(like);
    return static_cast<int32_t>(graph.buffers.size()) - 1;
  };
  std::vector<int32_t> made;
  const auto further = [&] {
    Buffer buffer = graph.buffers[static_cast<size_t>(cotangent.buffer)];
    buffer.source = source++;
    Value v = given;
    v.buffer = new_buffer(buffer);
    made.push_back(v.buffer);
    return v;
  };
  // a + b as `like` adds.
  const auto sum_of = [&](const Node& like, const Value& a, const Value& b) {
    Node node = like;
    node.inputs = {a, b};
    node.after.clear();
    node.outputs[0].buffer = new_buffer(Buffer(graph.buffers[static_cast<size_t>(node.outputs[0].buffer)]));
    return node;
  };
  Node front;
  if (in_front) {
    Node& first = graph.nodes[fold->first];
    front = sum_of(first, further(), first.inputs[0]);
    first.inputs[0] = front.outputs[0];
  }
  std::vector<Node> chain;
  Value sum = graph.nodes[fold->last].outputs[0];
  const int32_t before = sum.buffer;
  for (int32_t i = 0; i < behind; ++i) {
    chain.push_back(sum_of(graph.nodes[fold->last], sum, further()));
    sum = chain.back().outputs[0];
  }
  const auto redirect = [&](std::vector<Value>& list) {
    for (Value& v : list) v.buffer = v.buffer == before ? sum.buffer : v.buffer;
  };
  for (size_t n = fold->last + 1; n < graph.nodes.size(); ++n)
    redirect(graph.nodes[n].inputs), redirect(graph.nodes[n].after);
  redirect(graph.results);
  graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(fold->last) + 1, chain.begin(), chain.end());
  if (in_front) graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(fold->first), std::move(front));
  return made;
}

}  // namespace tutti::graph
