// Facets of functional collectives that follow from their rows.
#include <algorithm>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/core/error.h"
#include "tutti/deploy/collective_op.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/op_rooms.h"

namespace tutti::comm::functional {
namespace {

std::string_view partial_of(const CollectiveDef& row, ReduceKind reduce, DType dtype) {
  if (!row.reduces) return "id";
  switch (reduce) {
    case ReduceKind::sum:
    case ReduceKind::premul_sum:
      return "lin";
    case ReduceKind::avg:
      return is_floating(dtype) ? "lin" : "";  // integer averages are cut
    case ReduceKind::min:
    case ReduceKind::max:
      return "up";
    default:
      return "";
  }
}

Tensor sample_tensor(const Extents& sizes, DType dtype) {
  const Tensor t = Tensor::empty(sizes, dtype);
  for (int64_t i = 0; i < t.numel(); ++i) {
    if (is_floating(dtype)) facets::write_double(t, i, static_cast<double>(i * 7 % 11) - 4.75);
    else facets::write_int64(t, i, i * 7 % 11 - 5);
  }
  return t;
}

bool join() {
  join_op_table(ops());
  for (const OpDef* op : ops()) deploy::declare_collective(*op);
  return true;
}

// Whoever iterates over all ops meets the collectives, too, and packages may hold them.
[[maybe_unused]] const bool joined = join();

}  // namespace

const CollectiveDef& row_of(const OpDef& op) {
  for (const CollectiveDef* def : collective_table()) {
    if (std::find(def->functional.begin(), def->functional.end(), &op) != def->functional.end()) return *def;
  }
  throw InternalError(fmt::format("the op {} is not the functional form of any collective", op.name));
}

Cost wire_cost(const OpCall& call) {
  const CollectiveDef& row = row_of(call.op);
  const double ranks = attrs_of(call).group.ranks;
  double bytes = 0, elements = 0;
  for (const Tensor& x : call.inputs) {
    bytes += static_cast<double>(x.nbytes());
    elements += static_cast<double>(x.numel());
    if (row.has_splits || row.inputs == Given::padded) break;  // the others are the splits
  }
  const double whole = row.flow == Flow::gathers ? ranks * bytes : bytes;
  const auto wire = row.each == nullptr ? row.wire : row.each->wire;
  return {.flops = row.reduces ? (ranks - 1) / ranks * elements : 0, .bytes = wire(ranks) * whole};
}

OutputMeta row_result(const OpCall& call, size_t i) {
  const CollectiveDef& row = row_of(call.op);
  const CallAttrs& a = attrs_of(call);
  const Tensor& x = call[i];
  TUTTI_CHECK(x.defined(), "{}: a tensor is undefined", call.op.name);
  if (row.is_rooted) checks::root(call.op.name, a.peer, a.group.ranks);
  if (row.reduces) checks::reducible(row.name, a.reduce, x.dtype());
  if (row.flow == Flow::gathers) return {x.dtype(), gathered_sizes(call.op.name, x, a.group.ranks)};
  if (row.flow == Flow::scatters) return {x.dtype(), scattered_sizes(call.op.name, x, a.group.ranks)};
  if (row.inputs == Given::whole) scattered_sizes(call.op.name, x, a.group.ranks);  // checks
  return {x.dtype(), x.sizes()};
}

void row_infer(const OpCall& call, OutputMetas& out) {
  const OutputMeta meta = row_result(call, 0);
  out.add(meta.dtype, meta.sizes);
}

void run_row(const OpCall& call, std::span<const Tensor> targets, const Tensor& result) {
  const CollectiveDef& row = row_of(call.op);
  const GroupArgument group = group_of(call);
  std::vector<Tensor> inputs;
  CollectiveCall made{.kind = kind_of(row),
                      .outputs = targets,
                      .root = attrs_of(call).peer,
                      .reduce = attrs_of(call).reduce,
                      .options = kStart};
  for (size_t i = 0; i < targets.size(); ++i) {
    const Tensor& x = call[i];
    if (row.in_place != InPlace::no) {
      if (reads_outputs(row, made, group->rank())) facets::raw_copy(targets[i], x);
    } else if (row.flow == Flow::gathers) {
      // The own part is copied to where it belongs and sent from there, so the input needs no copy of its own.
      inputs.push_back(targets[i].view_as(x.extents(), contiguous_strides(x.extents()),
                                          targets[i].offset() + group->rank() * x.numel()));
      facets::raw_copy(inputs.back(), x);
    } else {
      inputs.push_back(snapshot(x));
    }
  }
  made.inputs = inputs;
  attach(result, group->run(made));
}

void row_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor target = target_of(outputs[0]);
  run_row(call, {&target, 1}, outputs[0]);
}

std::string rule_by_row(const OpCall& call, std::string_view partial) {
  const CollectiveDef& row = row_of(call.op);
  const bool is_cut = row.inputs == Given::whole || row.outputs == Given::whole;
  std::string in, out;
  for (int d = 0; d < call[0].ndim(); ++d) {
    in += d == 0 && is_cut ? 'Y' : static_cast<char>('a' + d);
    out += d == 0 && is_cut ? 'Z' : static_cast<char>('a' + d);
  }
  return fmt::format("x[{}]{} -> y[{}]{}{}", in, row.has_splits ? " #s[V] #t[W]" : "", out,
                     partial.empty() ? "" : " | | ", partial);
}

std::string row_sharding(const OpCall& call) {
  return rule_by_row(call, partial_of(row_of(call.op), attrs_of(call).reduce.kind(), call[0].dtype()));
}

std::vector<Sample> row_samples(const OpDef& op, ReduceKind reduce) {
  const GroupArgument world("0");
  const int64_t ranks = world->size();
  CallAttrs attrs{.group = GroupRef::of(world), .reduce = reduce, .peer = 0};
  std::vector<Sample> samples;
  for (const Extents& sizes : {Extents{2 * ranks, 3}, Extents{ranks}, Extents{0, 2}, Extents{ranks, 2, 2}}) {
    for (const DType dtype : {DType::f32, DType::i64}) {
      std::vector<Tensor> inputs{sample_tensor(sizes, dtype)};
      if (row_of(op).has_splits) {
        const Tensor splits = Tensor::of(std::vector<int64_t>(static_cast<size_t>(ranks), sizes[0] / ranks));
        inputs.insert(inputs.end(), {splits, splits});
        attrs.rows = sizes[0];
      }
      samples.push_back({fmt::format("{} {}", sizes, name_of(dtype)), std::move(inputs), Attrs::of(attrs)});
    }
  }
  return samples;
}

}  // namespace tutti::comm::functional
