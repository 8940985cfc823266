#include "tutti/deploy/plan_words.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/kernel_key.h"
#include "tutti/deploy/op_schema.h"
#include "tutti/deploy/package_error.h"
#include "tutti/plan/control_step.h"
#include "tutti/runtime/trace/trace_event.h"

namespace tutti::deploy {
namespace {

using graph::BatchStep;
using graph::BlockStep;
using graph::CallStep;
using graph::KernelStep;
using graph::Value;

constexpr char kNumberHere = '\1';  // in a text: a number of its own stands there
constexpr int64_t kMostItems = 1 << 20;
constexpr int kMostNested = 16;  // plans in plans

// One list of fields serves both directions: `io` appends what it is given, or puts what it reads in its place.
class WordWriter {
 public:
  int depth = 0;  // of plans in plans
  static constexpr bool kReads = false;
  WordWriter(Words& words, TextTable& texts, KernelSpecs& specs) : words_(words), texts_(texts), specs_(specs) {}

  template <class T>
  void number(T& value) {
    words_.push_back(static_cast<int64_t>(value));
  }
  void text(std::string& value) { words_.push_back(texts_.number_of(value)); }
  // Runs of digits become numbers, where the same text comes out again.
  void text_of_sizes(std::string& value) {
    std::string rest;
    Words numbers;
    for (size_t i = 0; i < value.size();) {
      size_t end = i;
      while (end < value.size() && value[end] >= '0' && value[end] <= '9') ++end;
      if (end == i || end - i > 18 || (value[i] == '0' && end - i > 1)) {
        end = std::max(end, i + 1);
        rest += value.substr(i, end - i);
      } else {
        rest += kNumberHere;
        numbers.push_back(std::stoll(value.substr(i, end - i)));
      }
      i = end;
    }
    text(rest);
    words_.insert(words_.end(), numbers.begin(), numbers.end());
  }
  void spec(codegen::KernelSpec& spec) {
    std::string key = spec.key();
    text(key), text(spec.name);
    specs_.emplace(key, spec);
  }

 private:
  Words& words_;
  TextTable& texts_;
  KernelSpecs& specs_;
};

class WordReader {
 public:
  int depth = 0;
  static constexpr bool kReads = true;
  WordReader(const Words& words, std::span<const std::string> texts) : words_(words), texts_(texts) {}

  template <class T>
  void number(T& value) {
    const int64_t word = next();
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      TUTTI_CHECK_PACKAGE(std::in_range<T>(word), "a plan of the package holds {} where it does not fit", word);
    }
    value = static_cast<T>(word);
  }
  void text(std::string& value) {
    const int64_t at = next();
    TUTTI_CHECK_PACKAGE(at >= 0 && static_cast<size_t>(at) < texts_.size(), "the package has no text {}", at);
    value = texts_[static_cast<size_t>(at)];
  }
  void text_of_sizes(std::string& value) {
    std::string rest;
    text(rest);
    value.clear();
    for (const char c : rest) {
      if (c == kNumberHere) value += std::to_string(next());
      else value += c;
    }
  }
  void spec(codegen::KernelSpec& spec) {
    std::string key, name;
    text(key), text(name);
    spec = codegen::spec_of_key(key);
    spec.name = name;
  }
  size_t remaining() const { return words_.size() - at_; }
  void at_end() const {
    TUTTI_CHECK_PACKAGE(at_ == words_.size(), "a plan of the package has {} numbers too many", words_.size() - at_);
  }

 private:
  int64_t next() {
    TUTTI_CHECK_PACKAGE(at_ < words_.size(), "a plan of the package ends early");
    return words_[at_++];
  }
  const Words& words_;
  const std::span<const std::string> texts_;
  size_t at_ = 0;
};

template <class Io>
size_t count(Io& io, size_t now, int64_t most = kMostItems) {
  auto n = static_cast<int64_t>(now);
  io.number(n);
  if constexpr (Io::kReads) most = std::min(most, static_cast<int64_t>(io.remaining()));  // an item takes a word
  TUTTI_CHECK_PACKAGE(n >= 0 && n <= most, "a list in a plan of the package has {} items", n);
  return static_cast<size_t>(n);
}

template <class Io, class Item, class Each>
void list(Io& io, std::vector<Item>& items, Each each, int64_t most = kMostItems) {
  const size_t n = count(io, items.size(), most);
  if constexpr (Io::kReads) items.resize(n);
  for (size_t i = 0; i < n; ++i) each(items[i]);
}

template <class Io>
void pass(Io& io, Extents& values) {
  const size_t n = count(io, values.size(), kMaxDims);
  if constexpr (Io::kReads) values = Extents(n, 0);
  for (int64_t& v : values) io.number(v);
}

template <class Io, class Enum>
void choice(Io& io, Enum& value, Enum last) {
  auto n = static_cast<int64_t>(value);
  io.number(n);
  TUTTI_CHECK_PACKAGE(n >= 0 && n <= static_cast<int64_t>(last), "a plan of the package holds a choice {}", n);
  value = static_cast<Enum>(n);
}

template <class Io>
void bits(Io& io, double& value) {
  auto n = std::bit_cast<int64_t>(value);
  io.number(n);
  value = std::bit_cast<double>(n);
}

template <class Io>
void pass(Io& io, Value& v) {
  io.number(v.buffer), io.number(v.version), io.number(v.offset);
  choice(io, v.dtype, DType::boolean);
  pass(io, v.sizes), pass(io, v.strides);
}

template <class Io>
void pass(Io& io, KernelInfo& info) {
  io.text(info.kernel_id), io.text(info.graph_key);
  list(io, info.ops, [&](KernelOp& op) { io.text(op.name), io.number(op.node); });
  list(io, info.stack, [&](std::string& line) { io.text(line); });
  io.text(info.module_path);
  auto phase = info.phase.value_or(TracePhase::forward);
  choice(io, phase, TracePhase::optimizer);
  info.phase = phase;
  bits(io, info.bytes), bits(io, info.flops);
  io.text(info.choice);
  io.text_of_sizes(info.specialization);
}

// Null where there is none.
template <class Io>
void pass(Io& io, const TraceKernel*& trace) {
  bool has = trace != nullptr;
  io.number(has);
  if (!has) return;
  KernelInfo info = Io::kReads ? KernelInfo{} : trace->info;
  pass(io, info);
  if constexpr (Io::kReads) {
    if (info.choice.starts_with("generated "))
      info.choice = fmt::format("generated {}", codegen::name_of(codegen::cpu_target()));
    trace = &intern_kernel(info);
  }
}

template <class Io>
void pass(Io& io, LoopPlan& plan) {
  pass(io, plan.nest.sizes), pass(io, plan.nest.logical);
  list(io, plan.nest.operands, [&](NestOperand& o) {
    io.number(o.itemsize), pass(io, o.strides), io.number(o.pick), io.number(o.extent);
    if constexpr (Io::kReads) o.data = nullptr;
  });
  choice(io, plan.kind, codegen::LoopKind::scan);
  io.number(plan.outer_end), io.number(plan.inputs), io.number(plan.per_row);
  KernelRun& run = plan.run;
  io.number(run.n_inner), io.number(run.n_reduce), io.number(run.leaf), io.number(run.inner_dim);
  io.number(run.reduce_dim), io.number(run.split_inner), io.number(run.chain);
}

template <class Io>
void pass(Io& io, KernelStep& step) {
  io.spec(step.spec);
  pass(io, step.plan);
  list(io, step.operands, [&](graph::OperandPlace& place) { io.number(place.buffer), io.number(place.byte_offset); });
  list(io, step.params, [&](codegen::ParamValue& param) { io.number(param.i); });
  io.text(step.ops);
  io.number(step.reporter);
  bits(io, step.bytes);
  pass(io, step.trace);
}

template <class Io>
void pass(Io& io, std::optional<BlockStep>& block) {
  bool has = block.has_value();
  io.number(has);
  if (!has) return;
  if constexpr (Io::kReads) block.emplace();
  pass(io, block->kernel);
  io.number(block->block_operand), io.number(block->keeps_operand), io.number(block->is_transposed);
}

// What a batch knows besides its kernels follows from them: the runner makes it again.
template <class Io>
void pass(Io& io, BatchStep& batch) {
  list(io, batch.kernels, [&](KernelStep& kernel) { pass(io, kernel); });
}

template <class Io>
void pass_attrs(Io& io, const OpDef& op, Attrs& attrs) {
  bool has = !attrs.empty();
  io.number(has);
  if (!has) return;
  std::string text = text_of(attrs);
  io.text_of_sizes(text);
  if constexpr (Io::kReads) attrs = attrs_of(op, text);
}

template <class Io>
void pass(Io& io, CallStep& call) {
  io.number(call.node);
  if (call.node < 0) {  // else its op follows from the control flow
    std::string name = call.op ? call.op->name : "";
    io.text(name);
    if constexpr (Io::kReads) call.op = &find_op(name);
    pass_attrs(io, *call.op, call.attrs);
  }
  list(io, call.inputs, [&](Value& v) { pass(io, v); });
  list(io, call.outputs, [&](Value& v) { pass(io, v); }, call.node < 0 ? int64_t{kMaxOutputs} : kMostItems);
  const size_t copies = count(io, call.copy_first.size());
  if constexpr (Io::kReads) call.copy_first.resize(copies);
  for (size_t i = 0; i < copies; ++i) {
    bool copy = call.copy_first[i];
    io.number(copy);
    call.copy_first[i] = copy;
  }
  io.number(call.check_only);
  choice(io, call.origin.phase, TracePhase::optimizer);
  std::string line = call.origin.place && !call.origin.place->stack.empty() ? call.origin.place->stack.front() : "";
  io.text(line);
  if constexpr (Io::kReads) call.origin.place = place_with_line(nullptr, line);
  pass(io, call.prologue), pass(io, call.epilogue);
  pass(io, call.trace);
}

template <class Io>
void pass(Io& io, graph::Step& step) {
  auto which = static_cast<int64_t>(step.index());
  io.number(which);
  TUTTI_CHECK_PACKAGE(which >= 0 && which <= 2, "the package has a step of kind {}", which);
  if constexpr (Io::kReads) {
    if (which == 0) step = KernelStep{};
    else if (which == 1) step = BatchStep{};
    else step = CallStep{.node = -1, .op = nullptr, .attrs = {}, .inputs = {}, .outputs = {}, .copy_first = {}};
  }
  std::visit([&](auto& s) { pass(io, s); }, step);
}

template <class Io>
void pass(Io& io, Plan& plan);

template <class Io>
void pass(Io& io, PlanControl& control) {
  choice(io, control.kind, graph::ControlBody::Kind::walk);
  io.text(control.text);
  io.number(control.carried), io.number(control.walked), io.number(control.steps);
  list(io, control.parts, [&](PlanControl::Part& part) {
    io.text(part.name);
    list(io, part.feeds, [&](graph::ControlBody::Feed& feed) { io.number(feed.input), io.number(feed.first_byte); });
  });
  if constexpr (Io::kReads) control.plans.resize(control.parts.size());
  for (Plan& plan : control.plans) pass(io, plan);
}

template <class Io>
void pass(Io& io, Plan& plan) {
  TUTTI_CHECK_PACKAGE(++io.depth <= kMostNested, "control flow of the package is nested {} times", io.depth);
  list(io, plan.buffers, [&](graph::Buffer& b) {
    choice(io, b.kind, graph::Buffer::Kind::made);
    io.number(b.source), io.number(b.nbytes), io.number(b.versions);
  });
  list(io, plan.sources, [&](PlanSource& s) { choice(io, s.kind, PlanSource::Kind::state), io.number(s.index); });
  list(io, plan.steps, [&](graph::Step& step) { pass(io, step); });
  list(io, plan.results, [&](Value& v) { pass(io, v); });
  list(io, plan.reporters, [&](std::string& text) { io.text(text); });
  list(io, plan.controls, [&](PlanControl& control) { pass(io, control); });
  if constexpr (Io::kReads) {
    for (graph::Step& step : plan.steps) {
      auto* call = std::get_if<CallStep>(&step);
      if (call == nullptr || call->node < 0) continue;
      TUTTI_CHECK_PACKAGE(static_cast<size_t>(call->node) < plan.controls.size(),
                          "a plan of the package has {} control flows, and calls number {}", plan.controls.size(),
                          call->node);
      call->op = &control_op(plan.controls[static_cast<size_t>(call->node)].kind);
    }
  }
  --io.depth;
}

}  // namespace

Words to_words(Plan plan, TextTable& texts, KernelSpecs& specs) {
  Words words;
  WordWriter io(words, texts, specs);
  pass(io, plan);
  return words;
}

Plan plan_of_words(const Words& words, std::span<const std::string> texts) {
  try {
    Plan plan;
    WordReader io(words, texts);
    pass(io, plan);
    io.at_end();
    return plan;
  } catch (const UsageError& error) {
    refuse_damaged(fmt::format("a plan of the package cannot be read: {}", error.what()));
  }
}

}  // namespace tutti::deploy
