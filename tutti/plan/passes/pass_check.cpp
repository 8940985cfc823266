#include "tutti/plan/passes/pass_check.h"

#include <algorithm>

#include "tutti/plan/dependencies.h"
#include "tutti/plan/failure.h"
#include "tutti/plan/touch.h"

namespace tutti::graph {
namespace {

// The nodes of a graph in the order in which groups or steps run them.
class NodeOrder {
 public:
  NodeOrder(const Graph& graph, const char* unit)
      : graph_(graph), unit_(unit), unit_of_(graph.nodes.size(), -1), position_(graph.nodes.size(), -1) {}

  void add(int32_t n, size_t unit) {
    TUTTI_ASSERT(n >= 0 && static_cast<size_t>(n) < position_.size(), "{} {} has node {} of {}", unit_, unit, n,
                 position_.size());
    TUTTI_ASSERT(!has(n), "{} is in {} {} and in {} {}", name_of(n), unit_, unit_of_[static_cast<size_t>(n)], unit_,
                 unit);
    position_[static_cast<size_t>(n)] = next_++;
    unit_of_[static_cast<size_t>(n)] = static_cast<int32_t>(unit);
  }
  bool has(int32_t n) const { return position_[static_cast<size_t>(n)] >= 0; }

  // Nodes that no unit has are passed over.
  void check_dependencies() const {
    const auto before = dependencies_of(graph_);
    for (size_t n = 0; n < before.size(); ++n) {
      for (const int32_t p : before[n]) {
        const auto q = static_cast<size_t>(p);
        TUTTI_ASSERT(position_[n] < 0 || position_[q] < position_[n],
                     "{} in {} {} runs before {} in {} {}, on which it depends", name_of(static_cast<int32_t>(n)),
                     unit_, unit_of_[n], name_of(p), unit_, unit_of_[q]);
      }
    }
  }

  std::string name_of(int32_t n) const {
    return fmt::format("node {} ({})", n, graph_.nodes[static_cast<size_t>(n)].op->name);
  }

 private:
  const Graph& graph_;
  const char* const unit_;  // what the nodes are in
  std::vector<int32_t> unit_of_, position_;
  int32_t next_ = 0;
};

class StepChecker {
 public:
  StepChecker(const Graph& graph, std::span<const Step> steps)
      : graph_(graph), steps_(steps), order_(graph, "step"), newest_(graph.buffers.size(), -1) {
    for (size_t b = 0; b < newest_.size(); ++b) {
      const bool is_given = graph.buffers[b].kind == Buffer::Kind::given;
      if (is_given) newest_[b] = 0;
      written_.push_back({0, is_given ? graph.buffers[b].nbytes : 0});
    }
  }

  void run() {
    for (at_ = 0; at_ < steps_.size(); ++at_) {
      if (const auto* kernel = std::get_if<KernelStep>(&steps_[at_])) add(*kernel);
      else if (const auto* batch = std::get_if<BatchStep>(&steps_[at_])) add(*batch);
      else add(std::get<CallStep>(steps_[at_]));
    }
    check_missing();
    order_.check_dependencies();
    for (const Value& v : graph_.results) {
      if (v.buffer >= 0) check_version(v, "a result");
    }
  }

 private:
  const Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  std::string here() const { return fmt::format("step {}", at_); }

  void add(const KernelStep& kernel, const Touch* in_blocks = nullptr) {
    for (const int32_t n : kernel.nodes) place(n);
    const std::vector<Touch> touches = touches_of(kernel);
    for (size_t k = 0; k < touches.size(); ++k) {
      if (!touches[k].written && !is_same(touches[k], in_blocks)) check_read(touches[k], kernel.ops);
    }
    for (const Touch& t : touches) {
      if (t.written && !is_same(t, in_blocks)) note_write(t, kernel.ops);
    }
  }

  static bool is_same(const Touch& t, const Touch* other) {
    return other != nullptr && t.buffer == other->buffer && t.written == other->written;
  }

  void add(const BatchStep& batch) {
    std::vector<Touch> others;
    const char* failing = nullptr;  // the kernel that may
    for (const KernelStep& kernel : batch.kernels) {
      const std::vector<Touch> own = touches_of(kernel);
      for (const Touch& t : own) {
        TUTTI_ASSERT(std::none_of(others.begin(), others.end(), [&](const Touch& other) { return t.meets(other); }),
                     "{}: {} touches buffer b{} at once with another kernel of the batch, and one of them writes it",
                     here(), kernel.ops, t.buffer);
        TUTTI_ASSERT(failing == nullptr || !t.written || !is_given(t.buffer),
                     "{}: {} writes b{} of the caller at once with {}, which can fail", here(), kernel.ops, t.buffer,
                     failing);
      }
      others.insert(others.end(), own.begin(), own.end());
      if (kernel.reporter >= 0) failing = kernel.ops.c_str();
    }
    for (const KernelStep& kernel : batch.kernels) add(kernel);
  }

  void add(const CallStep& call) {
    const std::string name = call.op->name;
    if (call.check_only) {
      for (const Value& v : call.inputs) {
        check_version(v, fmt::format("{}: the check of {}", here(), name));
        check_read(touch_of(v, false), name);
      }
      return;
    }
    if (call.prologue) add_block(*call.prologue, true);
    place(call.node);
    for (size_t i = call.prologue ? 1 : 0; i < call.inputs.size(); ++i)
      check_read(touch_of(call.inputs[i], false), name);
    if (!call.epilogue || call.epilogue->keeps_operand) {
      for (const Value& v : call.outputs) note_write(touch_of(v, true), name);
    }
    if (call.epilogue) add_block(*call.epilogue, false);
  }

  // An operand that exists only in blocks is not in memory.
  void add_block(const BlockStep& block, bool written) {
    const Touch in_blocks{block.kernel.operands[block.block_operand].buffer, 0, 0, written};
    add(block.kernel, block.keeps_operand ? nullptr : &in_blocks);
  }

  static Touch touch_of(const Value& v, bool written) {
    const auto [first, last] = reach(v);
    return {v.buffer, first, last, written};
  }

  // Runs a node in the order of the steps, on the versions that there are.
  void place(int32_t n) {
    order_.add(n, at_);
    const std::string where = fmt::format("{}: {}", here(), order_.name_of(n));
    for (const Value& v : node(n).inputs) check_version(v, where);
    for (const Value& v : node(n).outputs) {
      int32_t& newest = newest_[static_cast<size_t>(v.buffer)];
      TUTTI_ASSERT(v.version == newest + 1, "{} writes {} after version {}", where, to_string(v), newest);
      newest = v.version;
    }
  }

  void check_version(const Value& v, const std::string& where) const {
    const int32_t newest = newest_[static_cast<size_t>(v.buffer)];
    TUTTI_ASSERT(newest == v.version, "{} reads {}, and version {} was written last", where, to_string(v), newest);
  }

  void check_read(const Touch& t, const std::string& who) const {
    const auto [first, last] = written_[static_cast<size_t>(t.buffer)];
    TUTTI_ASSERT(t.first >= t.last || (t.first >= first && t.last <= last),
                 "{}: {} reads bytes {} to {} of b{}, of which {} to {} are written", here(), who, t.first, t.last,
                 t.buffer, first, last);
  }

  void note_write(const Touch& t, const std::string& who) {
    if (t.first >= t.last) return;
    const int64_t nbytes = graph_.buffers[static_cast<size_t>(t.buffer)].nbytes;
    TUTTI_ASSERT(t.first >= 0 && t.last <= nbytes, "{}: {} writes bytes {} to {} of b{}, which has {}", here(), who,
                 t.first, t.last, t.buffer, nbytes);
    auto& [first, last] = written_[static_cast<size_t>(t.buffer)];
    first = first == last ? t.first : std::min(first, t.first);
    last = std::max(last, t.last);
  }

  bool is_given(int32_t b) const { return graph_.buffers[static_cast<size_t>(b)].kind == Buffer::Kind::given; }

  void check_missing() const {
    std::vector<bool> wanted(graph_.buffers.size(), false);  // by somebody outside
    for (size_t b = 0; b < wanted.size(); ++b) wanted[b] = is_given(static_cast<int32_t>(b));
    for (const Value& v : graph_.results) {
      if (v.buffer >= 0) wanted[static_cast<size_t>(v.buffer)] = true;
    }
    std::vector<bool> checked(graph_.nodes.size(), false);  // by a step that does no more
    for (const Step& step : steps_) {
      const auto* call = std::get_if<CallStep>(&step);
      if (call != nullptr && call->check_only) checked[static_cast<size_t>(call->node)] = true;
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto number = static_cast<int32_t>(n);
      const std::vector<Value>& outputs = node(number).outputs;
      const bool must_run = (can_fail(node(number)) && !checked[n]) ||
                            std::any_of(outputs.begin(), outputs.end(),
                                        [&](const Value& v) { return wanted[static_cast<size_t>(v.buffer)]; });
      TUTTI_ASSERT(order_.has(number) || !must_run, "{} is in no step", order_.name_of(number));
    }
  }

  const Graph& graph_;
  const std::span<const Step> steps_;
  NodeOrder order_;
  std::vector<int32_t> newest_;                       // per buffer: the version that is there
  std::vector<std::pair<int64_t, int64_t>> written_;  // per buffer: the bytes that writes reached
  size_t at_ = 0;                                     // the step
};

}  // namespace

void check_groups(const Graph& graph, std::span<const Group> groups) {
  NodeOrder order(graph, "group");
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    TUTTI_ASSERT(!group.nodes.empty(), "group {} has no node", g);
    TUTTI_ASSERT(group.is_kernel || group.nodes.size() == 1, "group {} is a call of {} nodes", g, group.nodes.size());
    const size_t most = group.is_kernel ? 0 : 1;
    TUTTI_ASSERT(group.prologue.size() <= most && group.epilogue.size() <= most,
                 "group {} has {} prologues and {} epilogues", g, group.prologue.size(), group.epilogue.size());
    for_each_node(group, [&](int32_t n) { order.add(n, g); });
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    TUTTI_ASSERT(order.has(static_cast<int32_t>(n)), "{} is in no group", order.name_of(static_cast<int32_t>(n)));
  order.check_dependencies();
}

void check_steps(const Graph& graph, std::span<const Step> steps) { StepChecker(graph, steps).run(); }

}  // namespace tutti::graph
