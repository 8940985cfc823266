#include <algorithm>

#include "tutti/codegen/kernel_check.h"
#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/package_error.h"
#include "tutti/deploy/plan.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/touch.h"

namespace tutti::deploy {
namespace {

using graph::BlockStep;
using graph::Buffer;
using graph::CallStep;
using graph::KernelStep;
using graph::Value;

constexpr int64_t kMostBytes = int64_t{1} << 46;

// Whether the strides stay within kMostBytes elements of where they begin, and so does the number of elements: the
// arithmetic of addresses then cannot overflow.
bool is_bounded(const Extents& sizes, const Extents& strides) {
  if (sizes.ndim() != strides.ndim()) return false;
  __int128 points = 1, way = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || sizes[d] > kMostBytes || strides[d] < -kMostBytes || strides[d] > kMostBytes) return false;
    points *= std::max<int64_t>(sizes[d], 1);
    way += static_cast<__int128>(std::max<int64_t>(sizes[d] - 1, 0)) * (strides[d] < 0 ? -strides[d] : strides[d]);
    if (points > kMostBytes || way > kMostBytes) return false;
  }
  return true;
}

class Checker {
 public:
  Checker(const Plan& plan, const PlanMemory& memory) : plan_(plan), memory_(memory) {}

  void run() {
    for (const PlanSource& source : plan_.sources) check(source);
    for (const Buffer& b : plan_.buffers) check(b);
    std::vector<bool> is_called(plan_.controls.size(), false);
    for (const graph::Step& step : plan_.steps) {
      if (const auto* kernel = std::get_if<KernelStep>(&step)) check(*kernel, nullptr);
      if (const auto* batch = std::get_if<graph::BatchStep>(&step)) {
        TUTTI_CHECK_PACKAGE(!batch->kernels.empty(), "a plan of the package is wrong: a launch has no kernels");
        for (const KernelStep& kernel : batch->kernels) check(kernel, nullptr);
      }
      if (const auto* call = std::get_if<CallStep>(&step)) {
        check(*call);
        if (call->node >= 0) is_called[static_cast<size_t>(call->node)] = true;
      }
    }
    // Parts are checked where they are called.
    TUTTI_CHECK_PACKAGE(std::find(is_called.begin(), is_called.end(), false) == is_called.end(),
                        "a plan of the package is wrong: it has control flow that no step is");
    for (const Value& v : plan_.results) check(v, "a result", false);
  }

 private:
  const Buffer& buffer(int32_t b, const std::string& who) const {
    TUTTI_CHECK_PACKAGE(b >= 0 && static_cast<size_t>(b) < plan_.buffers.size(),
                        "a plan of the package is wrong: {} has a buffer {} of {}", who, b, plan_.buffers.size());
    return plan_.buffers[static_cast<size_t>(b)];
  }

  const std::vector<int64_t>& sizes_of(PlanSource::Kind kind) const {
    return kind == PlanSource::Kind::argument   ? memory_.arguments
           : kind == PlanSource::Kind::constant ? memory_.constants
                                                : memory_.state;
  }

  void check(const PlanSource& source) const {
    TUTTI_CHECK_PACKAGE(source.index >= 0 && static_cast<size_t>(source.index) < sizes_of(source.kind).size(),
                        "a plan of the package is wrong: it reads memory {} of {}", source.index,
                        sizes_of(source.kind).size());
  }

  void check(const Buffer& b) const {
    bool fits = b.nbytes >= 0 && b.nbytes <= kMostBytes;
    if (fits && b.kind == Buffer::Kind::given) {
      fits = b.source >= 0 && static_cast<size_t>(b.source) < plan_.sources.size();
      if (fits) {
        const PlanSource& source = plan_.sources[static_cast<size_t>(b.source)];
        fits = b.nbytes <= sizes_of(source.kind)[static_cast<size_t>(source.index)];
      }
    }
    TUTTI_CHECK_PACKAGE(fits, "a plan of the package is wrong: a buffer of {} bytes has no such memory", b.nbytes);
  }

  // Whether steps may write the buffer, which check(b) has accepted.
  bool may_be_written(const Buffer& b) const {
    if (b.kind != Buffer::Kind::given) return true;
    const PlanSource& source = plan_.sources[static_cast<size_t>(b.source)];
    return source.kind == PlanSource::Kind::state ||
           (source.kind == PlanSource::Kind::argument && memory_.written[static_cast<size_t>(source.index)]);
  }

  void check(const Value& v, const std::string& who, bool is_written) const {
    const Buffer& b = buffer(v.buffer, who);
    bool fits =
        is_bounded(v.sizes, v.strides) && v.offset >= 0 && v.offset <= kMostBytes && (!is_written || may_be_written(b));
    if (fits) {
      const auto [first, last] = reach(v);
      fits = first >= 0 && last <= b.nbytes;
    }
    TUTTI_CHECK_PACKAGE(fits, "a plan of the package is wrong: {} reaches beyond its {} bytes, or writes what is given",
                        who, b.nbytes);
  }

  // in_blocks: the operand that does not lie in memory; null: none.
  void check(const KernelStep& k, const size_t* in_blocks) const {
    const std::string who = "the kernel " + k.ops;
    codegen::check_kernel(k.spec);
    const LoopPlan& p = k.plan;
    const size_t inputs = k.spec.inputs.size(), operands = inputs + k.spec.outputs.size(), ndim = p.nest.sizes.size();
    bool fits = operands <= kMaxNestOperands && k.operands.size() == operands && p.nest.operands.size() == operands &&
                p.inputs == inputs && p.nest.logical.size() == ndim && p.kind == k.spec.kind && p.run.leaf > 0 &&
                p.run.chain > 0 && k.trace != nullptr && k.reporter < static_cast<int32_t>(plan_.reporters.size());
    // The loops are those of the nest, each once.
    const int loops = p.outer_end + (p.run.inner_dim >= 0) + (p.run.reduce_dim >= 0);
    const auto is_own = [&](int d) { return d >= p.outer_end && d < static_cast<int>(ndim); };
    fits = fits && p.outer_end >= 0 && loops == static_cast<int>(ndim) && is_own(p.run.inner_dim) &&
           p.run.n_inner == p.nest.sizes[static_cast<size_t>(p.run.inner_dim)] &&
           (p.run.reduce_dim < 0 ? p.run.n_reduce == 0
                                 : is_own(p.run.reduce_dim) && p.run.reduce_dim != p.run.inner_dim &&
                                       p.run.n_reduce == p.nest.sizes[static_cast<size_t>(p.run.reduce_dim)]);
    for (size_t i = 0; fits && i < operands; ++i) {
      const codegen::OperandSpec& spec = i < inputs ? k.spec.inputs[i] : k.spec.outputs[i - inputs];
      const NestOperand& o = p.nest.operands[i];
      const int64_t at = k.operands[i].byte_offset;
      fits = spec.index < 0 && o.itemsize == itemsize(spec.dtype) && is_bounded(p.nest.sizes, o.strides) &&
             at >= -kMostBytes && at <= kMostBytes && p.operand(i, spec.dtype).inner == spec.inner &&
             p.operand(i, spec.dtype).along_reduced == spec.along_reduced;
      fits = fits && (i < inputs || may_be_written(buffer(k.operands[i].buffer, who)));
    }
    for (const ExprNode& node : k.spec.nodes)
      fits = fits &&
             (node.op != ScalarOp::param || (node.index >= 0 && static_cast<size_t>(node.index) < k.params.size()));
    TUTTI_CHECK_PACKAGE(fits, "a plan of the package is wrong: {} is not called as its code expects", who);
    if (p.nest.count(0, static_cast<int>(ndim)) == 0) return;
    const std::vector<graph::Touch> touches = touches_of(k);
    for (size_t i = 0; i < touches.size(); ++i) {
      if (in_blocks != nullptr && *in_blocks == i) continue;
      const graph::Touch& t = touches[i];
      TUTTI_CHECK_PACKAGE(t.first >= 0 && t.last <= buffer(t.buffer, who).nbytes,
                          "a plan of the package is wrong: {} reaches bytes {} to {} of {}", who, t.first, t.last,
                          buffer(t.buffer, who).nbytes);
    }
  }

  void check(const BlockStep& block, const CallStep& call, const Value& of, bool is_input) const {
    const KernelStep& k = block.kernel;
    const bool fits = call.op->kernel_in_blocks != nullptr && block.block_operand < k.operands.size() &&
                      k.operands[block.block_operand].buffer == of.buffer && !(is_input && block.keeps_operand);
    TUTTI_CHECK_PACKAGE(fits, "a plan of the package is wrong: {} does not run on blocks of {}", k.ops, call.op->name);
    check(k, block.keeps_operand ? nullptr : &block.block_operand);
    const int64_t points = k.plan.nest.count(0, k.plan.nest.sizes.ndim());
    TUTTI_CHECK_PACKAGE(points == numel_of(of.sizes), "a plan of the package is wrong: {} has {} points for {}", k.ops,
                        points, of.sizes);
  }

  // Bytes that a part may read from where a given buffer of it begins.
  int64_t room_of(const PlanControl& control, const graph::ControlBody::Feed& feed, const CallStep& call) const {
    using Kind = graph::ControlBody::Kind;
    const std::string& who = control.text;
    TUTTI_CHECK_PACKAGE(feed.input >= 0 && static_cast<size_t>(feed.input) < call.inputs.size() &&
                            feed.first_byte >= -kMostBytes && feed.first_byte <= kMostBytes,
                        "a plan of the package is wrong: {} has no input {}", who, feed.input);
    const Value& v = call.inputs[static_cast<size_t>(feed.input)];
    const int64_t item = itemsize(v.dtype);
    const bool goes_round = control.kind == Kind::repeat || control.kind == Kind::walk;
    int64_t first = v.offset * item + feed.first_byte, last = first, end = buffer(v.buffer, who).nbytes;
    if (goes_round && feed.input < control.carried) {  // dense memory of its own from the second round on
      first = last = feed.first_byte, end = numel_of(v.sizes) * item;
    } else if (control.kind == Kind::walk && feed.input < control.carried + control.walked) {
      const int64_t way = std::max<int64_t>(control.steps - 1, 0) * v.strides[0] * item;
      (way < 0 ? first : last) += way;
    }
    TUTTI_CHECK_PACKAGE(first >= 0 && last <= end, "a plan of the package is wrong: {} reads beyond input {}", who,
                        feed.input);
    return end - last;
  }

  static bool is_alike(const Value& a, const Value& b) { return a.dtype == b.dtype && a.sizes == b.sizes; }
  static bool is_number(const Value& v) {
    return numel_of(v.sizes) == 1 && (v.dtype == DType::boolean || is_integral(v.dtype));
  }
  static bool go_round(const std::vector<Value>& next, const CallStep& call, size_t carried) {
    bool fits = carried <= call.inputs.size() && carried <= call.outputs.size() && carried <= next.size();
    for (size_t i = 0; fits && i < carried; ++i)
      fits = is_alike(next[i], call.inputs[i]) && is_alike(call.outputs[i], call.inputs[i]);
    return fits;
  }

  // Whether operands, results and parts are what the kind of control flow expects.
  static bool has_form(const PlanControl& c, const CallStep& call) {
    using Kind = graph::ControlBody::Kind;
    const std::vector<Value>&in = call.inputs, &out = call.outputs;
    if (c.parts.size() != c.plans.size() || c.carried < 0 || c.walked < 0 || c.steps < 0 || c.steps > kMostBytes)
      return false;
    const auto carried = static_cast<size_t>(c.carried), walked = static_cast<size_t>(c.walked);
    if (c.kind == Kind::check) return in.size() == 1 && in[0].dtype == DType::boolean && out.empty() && c.parts.empty();
    if (c.kind == Kind::choose) {
      bool fits =
          !in.empty() && is_number(in[0]) && !c.parts.empty() && (in[0].dtype != DType::boolean || c.parts.size() == 2);
      for (const Plan& part : c.plans) {
        fits = fits && part.results.size() == out.size();
        for (size_t k = 0; fits && k < out.size(); ++k) fits = is_alike(part.results[k], out[k]);
      }
      return fits;
    }
    if (c.kind == Kind::repeat) {
      return c.parts.size() == 2 && out.size() == carried && !c.plans[0].results.empty() &&
             is_number(c.plans[0].results[0]) && c.plans[1].results.size() == carried &&
             go_round(c.plans[1].results, call, carried);
    }
    bool fits = c.parts.size() == 1 && carried + walked <= in.size() && c.plans[0].results.size() == out.size() &&
                go_round(c.plans[0].results, call, carried);
    for (size_t i = carried; fits && i < carried + walked; ++i)
      fits = !in[i].sizes.empty() && in[i].sizes[0] >= c.steps;
    for (size_t k = carried; fits && k < out.size(); ++k) {
      const Value& each = c.plans[0].results[k];
      Extents row;
      for (size_t d = 1; d < out[k].sizes.size(); ++d) row.push_back(out[k].sizes[d]);
      fits = !out[k].sizes.empty() && out[k].sizes[0] >= c.steps && each.dtype == out[k].dtype && each.sizes == row;
    }
    return fits;
  }

  void check_control(const CallStep& call) const {
    TUTTI_CHECK_PACKAGE(static_cast<size_t>(call.node) < plan_.controls.size() && !call.prologue && !call.epilogue &&
                            !call.check_only && call.copy_first.empty(),
                        "a plan of the package is wrong: it has no control flow {}", call.node);
    const PlanControl& control = plan_.controls[static_cast<size_t>(call.node)];
    for (const Value& v : call.inputs) check(v, control.text, false);
    bool fits = true;
    for (const Value& v : call.outputs) {
      check(v, control.text, true);
      fits = fits && v.strides == contiguous_strides(v.sizes);
    }
    TUTTI_CHECK_PACKAGE(fits && has_form(control, call),
                        "a plan of the package is wrong: {} is not called as its parts expect", control.text);
    for (size_t p = 0; p < control.parts.size(); ++p) {
      PlanMemory memory;
      for (const graph::ControlBody::Feed& feed : control.parts[p].feeds)
        memory.arguments.push_back(room_of(control, feed, call));
      memory.written.assign(memory.arguments.size(), false);
      Checker(control.plans[p], memory).run();
    }
  }

  void check(const CallStep& call) const {
    if (call.node >= 0) return check_control(call);
    const OpDef& op = *call.op;
    const std::string who = op.name;
    for (const Value& v : call.inputs) check(v, who, false);
    for (const Value& v : call.outputs) check(v, who, !call.check_only);
    const bool is_called = (op.num_inputs < 0 || static_cast<size_t>(op.num_inputs) == call.inputs.size()) &&
                           (call.copy_first.empty() || call.copy_first.size() == call.inputs.size()) &&
                           static_cast<size_t>(op.num_outputs) == call.outputs.size() &&
                           (op.kernel != nullptr || op.recipe.build != nullptr) && !op.resizes && !op.keeps_inputs &&
                           op.becomes[0] < 0;
    TUTTI_CHECK_PACKAGE(is_called, "a plan of the package is wrong: {} is called with {} operands and {} results",
                        op.name, call.inputs.size(), call.outputs.size());
    if (op.ordered) {
      TUTTI_CHECK_PACKAGE(collective_attrs(op, call.attrs) != nullptr && !call.check_only,
                          "a plan of the package is wrong: {} is called in no group", op.name);
    }
    const graph::Graph buffers{.buffers = plan_.buffers, .nodes = {}, .results = {}};
    const std::vector<Tensor> inputs = stand_ins(call.inputs, buffers);
    OutputMetas metas;
    op.infer({op, inputs, call.attrs}, metas);
    bool fits = true;
    for (size_t k = 0; fits && k < call.outputs.size(); ++k) {
      const Value& out = call.outputs[k];
      if (op.writes[k] >= 0) {
        const Value& in = call.inputs[static_cast<size_t>(op.writes[k])];
        fits = in.buffer == out.buffer && in.offset == out.offset && in.sizes == out.sizes && in.dtype == out.dtype &&
               in.strides == out.strides;
      } else {
        fits = static_cast<int>(k) < metas.count && metas.meta[k].dtype == out.dtype &&
               concrete(metas.meta[k].sizes) == out.sizes && out.strides == contiguous_strides(out.sizes);
      }
    }
    TUTTI_CHECK_PACKAGE(fits, "a plan of the package is wrong: {} gives other results than it says", op.name);
    if (call.prologue) check(*call.prologue, call, call.inputs[0], true);
    if (call.epilogue) check(*call.epilogue, call, call.outputs[0], false);
  }

  const Plan& plan_;
  const PlanMemory& memory_;
};

}  // namespace

void check_plan(const Plan& plan, const PlanMemory& memory) {
  try {
    Checker(plan, memory).run();
  } catch (const UsageError& error) {
    refuse_damaged(fmt::format("a plan of the package is wrong: {}", error.what()));
  }
}

}  // namespace tutti::deploy
