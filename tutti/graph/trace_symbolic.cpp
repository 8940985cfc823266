// What a trace with symbolic sizes does before it records a call with those of the traced call.
#include <optional>
#include <vector>

#include "tutti/graph/held_wrappers.h"
#include "tutti/graph/trace.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {

bool traces_symbols() { return Trace::current() != nullptr && Trace::current()->program() != nullptr; }

namespace {

// A size that many numbers divide, for as many symbols as a trace may have.
const std::vector<int64_t>& bindings_for_choices() {
  static const std::vector<int64_t> bindings(1024, 5040);
  return bindings;
}

}  // namespace

int64_t size_for_choices(SymInt size) {
  const SymGraph* symbols = SymGraph::current();
  return symbols == nullptr || !symbols->has_name(size.raw()) ? size.value()
                                                              : symbols->evaluate(size, bindings_for_choices());
}

Attrs attrs_for_choices(const Attrs& attrs) {
  return with_values(attrs, Trace::current()->program()->symbols(), [](SymInt s) { return size_for_choices(s); });
}

void refuse_symbols(const std::string& reason) { Trace::current()->program()->refuse(reason); }

Attrs attrs_as_called(const Attrs& attrs) {
  const SymGraph& symbols = Trace::current()->program()->symbols();
  return with_values(attrs, symbols, [&](SymInt s) { return symbols.hint_of(s); });
}

Tensor Trace::add_cotangent(const Tensor& of) {
  std::optional<SymGraph::Scope> symbols;
  if (program_ != nullptr) symbols.emplace(program_->symbols());
  // A wrapper's cotangent has an inside of the sizes of its own.
  if (const std::shared_ptr<const WrapperForm> form = form_of(of))
    return form->of_cotangent()->around(add_cotangent_of(inside_of(of), of.dtype()));
  return add_cotangent_of(of, of.dtype());
}

Tensor Trace::add_cotangent_of(const Tensor& of, DType dtype) {
  if (program_ == nullptr) return add_later(of.extents(), dtype, of.device());
  const Tensor like = as_called(of);
  const Tensor made = program_->add(add_later(like.extents(), dtype, like.device()), of.sizes());
  program_->append(Program::Later{of.alias(), made.alias(), dtype});
  return made;
}

void Trace::record_symbolic(const OpCall& call, std::span<Tensor> outputs) {
  const OpDef& op = call.op;
  for (const int8_t input : op.becomes) {
    if (input >= 0) program_->refuse(fmt::format("{} gives a tensor other memory", op.name));
  }
  program_->note_guards(fmt::format("what leads to {}", op.name));
  OutputMetas metas;
  op.infer(call, metas);
  program_->note_guards(op.name);
  const SymGraph& symbols = program_->symbols();
  const Attrs attrs = with_values(call.attrs, symbols, [&](SymInt s) { return symbols.hint_of(s); });

  Program::Call item{.op = &op, .attrs = call.attrs, .inputs = {}, .outputs = {}, .origin = origin()};
  std::vector<Tensor> inputs, made(outputs.size());
  for (const Tensor& t : call.inputs) {
    if (is_traced(t) && t.impl()->traced < 0) program_->refuse(fmt::format("{} takes a view that no op made", op.name));
    item.inputs.push_back(is_traced(t) ? t.alias() : t);
    inputs.push_back(as_called(t));
  }
  // A view of a tensor that the function holds has symbolic sizes when its attrs have: it needs a place in the trace.
  if (op.view && !is_traced(inputs[0])) {
    const Value v = value_of(inputs[0]);
    inputs[0] = make_traced(v.buffer, v);
  }
  record({op, inputs, attrs}, made, &item.origin);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (const int written = op.writes[k]; written >= 0) {
      outputs[k] = call.inputs[static_cast<size_t>(written)];
      item.outputs.push_back({});
      continue;
    }
    const Shape& sizes = metas.meta[k].sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      TUTTI_ASSERT(symbols.hint_of(sizes[d]) == made[k].extents()[d],
                   "{}: dim {} of output {} is {} = {}, and {} when it is recorded", op.name, d, k, sizes[d],
                   symbols.hint_of(sizes[d]), made[k].extents()[d]);
    }
    outputs[k] = program_->add(made[k], sizes);
    item.outputs.push_back(outputs[k].alias());
  }
  program_->append(std::move(item));
}

}  // namespace tutti::graph
