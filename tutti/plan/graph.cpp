#include "tutti/plan/graph.h"

#include <algorithm>

#include "tutti/plan/control_body.h"

namespace tutti::graph {
namespace {

template <class List>
std::string joined(const List& values) {
  std::string text;
  for (const Value& v : values) text += (text.empty() ? "" : ", ") + to_string(v);
  return text;
}

}  // namespace

std::pair<int64_t, int64_t> reach(const Value& v) {
  int64_t first = v.offset, last = v.offset;
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] == 0) return {0, 0};
    (v.strides[d] < 0 ? first : last) += (v.sizes[d] - 1) * v.strides[d];
  }
  return {first * itemsize(v.dtype), (last + 1) * itemsize(v.dtype)};
}

std::string to_string(const Value& v) {
  if (v.buffer < 0) return "-";
  std::string text = fmt::format("b{}", v.buffer);
  if (v.version > 0) text += fmt::format(".{}", v.version);
  text += fmt::format(":{}{}", name_of(v.dtype), v.sizes);
  if (v.offset != 0 || v.strides != contiguous_strides(v.sizes)) text += fmt::format("@{}{}", v.offset, v.strides);
  return text;
}

std::string indented(const std::string& text, const char* prefix) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    out += prefix + text.substr(at, end - at);
    at = end;
  }
  return out;
}

std::string to_string(const Graph& graph) {
  std::string text;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    text += fmt::format("{:4}{} {} = {}({}){}{}\n", n, node.origin.phase == TracePhase::backward ? "'" : " ",
                        joined(node.outputs), node.op->name, joined(node.inputs), node.attrs.empty() ? "" : " ",
                        node.attrs.to_string());
    if (node.control) text += to_string(*node.control);
  }
  return text + fmt::format("     return {}\n", joined(graph.results));
}

bool is_ordered(const Node& node) { return node.op->ordered || (node.control && node.control->ordered); }

bool has_effect(const Node& node) {
  return is_ordered(node) ||
         std::any_of(std::begin(node.op->writes), std::end(node.op->writes), [](int8_t w) { return w >= 0; });
}

void check(const Graph& graph) {
  std::vector<int32_t> written(graph.buffers.size(), -1);  // newest version there is
  for (size_t b = 0; b < written.size(); ++b) {
    if (graph.buffers[b].kind == Buffer::Kind::given) written[b] = 0;
  }
  const auto check_value = [&](const Value& v, const std::string& where) {
    TUTTI_ASSERT(v.buffer >= 0 && static_cast<size_t>(v.buffer) < graph.buffers.size(), "{}: buffer {} of {}", where,
                 v.buffer, graph.buffers.size());
    const auto [first, last] = reach(v);
    TUTTI_ASSERT(first >= 0 && last <= graph.buffers[static_cast<size_t>(v.buffer)].nbytes,
                 "{}: {} reaches bytes {} to {} of {}", where, to_string(v), first, last,
                 graph.buffers[static_cast<size_t>(v.buffer)].nbytes);
  };
  const auto check_read = [&](const Value& v, const std::string& where) {
    check_value(v, where);
    TUTTI_ASSERT(written[static_cast<size_t>(v.buffer)] == v.version, "{}: reads {}, the newest version there is {}",
                 where, to_string(v), written[static_cast<size_t>(v.buffer)]);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const std::string where = fmt::format("node {} ({})", n, node.op->name);
    for (const Value& v : node.inputs) check_read(v, where);
    for (const Value& v : node.after) check_value(v, where);
    for (const Value& v : node.outputs) {
      check_value(v, where);
      int32_t& newest = written[static_cast<size_t>(v.buffer)];
      TUTTI_ASSERT(v.version == newest + 1, "{}: writes {} after version {}", where, to_string(v), newest);
      newest = v.version;
    }
  }
  for (const Value& v : graph.results) {
    if (v.buffer >= 0) check_read(v, "result");
  }
}

}  // namespace tutti::graph
