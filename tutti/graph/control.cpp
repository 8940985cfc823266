#include "tutti/graph/control.h"

#include <algorithm>

#include "tutti/graph/control_choice.h"
#include "tutti/graph/control_loop.h"
#include "tutti/graph/control_result.h"
#include "tutti/graph/control_trace.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/slice.h"
#include "tutti/plan/control_body.h"
#include "tutti/plan/control_step.h"

namespace tutti {
namespace {

using graph::Trace;

constexpr int64_t kWrittenOut = 16;  // steps of a scan that a trace writes out

void check_defined(const char* what, std::span<const Tensor> operands) {
  for (size_t i = 0; i < operands.size(); ++i)
    TUTTI_CHECK(operands[i].defined(), "{}: operand {} is undefined; expected a tensor", what, i);
}

std::vector<Tensor> as_results(const char* what, std::vector<Tensor> results) {
  check_defined(what, results);
  std::vector<Tensor> own;
  for (Tensor& t : results) own.push_back(graph::as_result(std::move(t), true));
  return own;
}

// What a scan without steps stacks: nothing, of the shapes that `f` would give.
std::vector<Tensor> nothing_stacked(const ScanFn& f, const std::vector<Tensor>& init, const std::vector<Tensor>& xs) {
  std::vector<Tensor> elements;
  for (const Tensor& x : xs) {
    Shape sizes = x.sizes();
    sizes.erase(0);
    elements.push_back(zeros(sizes, x.dtype()));
  }
  std::vector<Tensor> operands = init, stacked;
  operands.insert(operands.end(), elements.begin(), elements.end());
  Trace root("scan");
  Trace* outer = Trace::current();
  graph::PartTrace step(
      outer ? *outer : root, "body of scan", operands, operands.size(),
      [&](std::span<const Tensor> x) { return f(x.first(init.size()), x.subspan(init.size())).outputs; });
  for (OutputMeta m : graph::metas_of(step.results())) {
    m.sizes.insert(0, 0);
    stacked.push_back(zeros(m.sizes, m.dtype));
  }
  return stacked;
}

}  // namespace

std::vector<Tensor> cond(const Tensor& pred, const TensorFn& if_true, const TensorFn& if_false,
                         const std::vector<Tensor>& operands) {
  graph::check_predicate("cond", "the predicate", pred);
  check_defined("cond", operands);
  if (Trace* trace = Trace::current()) {
    const graph::Branch branches[] = {{"true branch", &if_true}, {"false branch", &if_false}};
    return graph::trace_choice(*trace, "cond", pred, branches, operands);
  }
  return as_results("cond", pred.item_int() != 0 ? if_true(operands) : if_false(operands));
}

std::vector<Tensor> switch_(const Tensor& index, const std::vector<TensorFn>& branches,
                            const std::vector<Tensor>& operands) {
  TUTTI_CHECK(index.defined() && is_integral(index.dtype()) && index.ndim() == 0,
              "switch_: the index is {}; expected an integer without dims", describe(index));
  TUTTI_CHECK(!branches.empty(), "switch_: there are no branches; expected at least one");
  check_defined("switch_", operands);
  if (Trace* trace = Trace::current()) {
    std::vector<graph::Branch> list;
    for (size_t i = 0; i < branches.size(); ++i) list.push_back({fmt::format("branch {}", i), &branches[i]});
    return graph::trace_choice(*trace, "switch_", index, list, operands);
  }
  const int64_t i = index.item_int();
  const auto count = static_cast<int64_t>(branches.size());
  TUTTI_CHECK(i >= 0 && i < count, "switch_: the index is {}; expected 0 to {}, one of the branches", i, count - 1);
  return as_results("switch_", branches[static_cast<size_t>(i)](operands));
}

std::vector<Tensor> while_loop(const TensorFn& again, const TensorFn& body, const std::vector<Tensor>& carried) {
  check_defined("while_loop", carried);
  if (Trace* trace = Trace::current()) return graph::trace_while(*trace, again, body, carried);
  const auto goes_on = [&](const std::vector<Tensor>& x) {
    const NoGradScope no_grad;
    const std::vector<Tensor> results = again(x);
    TUTTI_CHECK(results.size() == 1, "while_loop: the condition gives {} tensors; expected one boolean",
                results.size());
    graph::check_predicate("while_loop", "the condition", results[0]);
    return results[0].item_int() != 0;
  };
  std::vector<Tensor> current = carried;
  while (goes_on(current)) {
    std::vector<Tensor> next = body(current);
    graph::check_carried("while_loop", current, next);
    current = std::move(next);
  }
  return as_results("while_loop", std::move(current));
}

ScanStep scan(const ScanFn& f, const std::vector<Tensor>& init, const std::vector<Tensor>& xs) {
  check_defined("scan", init);
  check_defined("scan", xs);
  TUTTI_CHECK(!xs.empty(), "scan: there is nothing to walk over; expected at least one tensor in xs");
  for (size_t i = 0; i < xs.size(); ++i) {
    TUTTI_CHECK(xs[i].ndim() > 0 && xs[i].extent(0) == xs[0].extent(0),
                "scan: tensor {} of xs is {}, tensor 0 {}; expected the same size in dim 0", i, describe(xs[i]),
                describe(xs[0]));
  }
  const int64_t steps = xs[0].extent(0);
  if (steps == 0) return {as_results("scan", init), nothing_stacked(f, init, xs)};
  Trace* trace = Trace::current();
  if (trace != nullptr && steps > kWrittenOut) return graph::trace_scan(*trace, f, init, xs, steps);
  std::vector<Tensor> current = init;
  std::vector<std::vector<Tensor>> columns;
  for (int64_t t = 0; t < steps; ++t) {
    std::vector<Tensor> elements;
    for (const Tensor& x : xs) elements.push_back(select(x, 0, t));
    ScanStep made = f(current, elements);
    graph::check_carried("scan", current, made.carried);
    check_defined("scan", made.outputs);
    TUTTI_CHECK(t == 0 || made.outputs.size() == columns.size(),
                "scan: step {} gives {} outputs, step 0 gave {}; expected the same number", t, made.outputs.size(),
                columns.size());
    columns.resize(made.outputs.size());
    for (size_t k = 0; k < columns.size(); ++k) columns[k].push_back(std::move(made.outputs[k]));
    current = std::move(made.carried);
  }
  ScanStep result{as_results("scan", std::move(current)), {}};
  for (const std::vector<Tensor>& column : columns) result.outputs.push_back(stack(column));
  return result;
}

void check(const Tensor& condition, const std::string& message) {
  TUTTI_CHECK(condition.defined() && condition.dtype() == DType::boolean,
              "check: the condition is {}; expected a boolean tensor, e.g. gt(x, 0.0)", describe(condition));
  const std::string text = message.empty() ? "check: a condition without a message does not hold" : message;
  if (Trace* trace = Trace::current()) {
    auto body =
        std::make_shared<graph::ControlBody>(graph::ControlBody{.kind = graph::ControlBody::Kind::check, .text = text});
    body->ordered = true;
    trace->record_check(std::move(body), condition);
    return;
  }
  graph::require_all(condition, text);
}

}  // namespace tutti
