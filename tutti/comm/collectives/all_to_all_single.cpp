// all_to_all_single: dim 0 of the input is cut into one part for each rank. The parts are equal, or as long as the
// splits say, which is all_to_all_v_single.
#include <numeric>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/functional/reference.h"

namespace tutti::comm {
namespace {

// Without splits the parts are equal.
void exchange_parts(const char* op, Move& m, const CallPart& part) {
  const Tensor &input = part.input(), &output = part.output();
  const Splits input_splits = part.call.input_splits, output_splits = part.call.output_splits;
  const int ranks = part.seat.ranks;
  if (input_splits.empty()) m.offer_parts(DenseInput(input), input.nbytes() / ranks);
  else m.offer_parts(DenseInput(input), checks::split_bytes(op, "input", input, input_splits, ranks));
  if (output_splits.empty()) m.take_parts(DenseOutput(output), output.nbytes() / ranks);
  else m.take_parts(DenseOutput(output), checks::split_bytes(op, "output", output, output_splits, ranks));
}

void check_splits(const char* op, const char* role, const Tensor& t, Splits splits, int ranks) {
  if (splits.empty()) checks::equal_parts(op, role, t, ranks);
  else checks::split_bytes(op, role, t, splits, ranks);
}

void check_parts(const char* op, const CallPart& part) {
  check_splits(op, "input", part.input(), part.call.input_splits, part.seat.ranks);
  check_splits(op, "output", part.output(), part.call.output_splits, part.seat.ranks);
}

}  // namespace
}  // namespace tutti::comm

TUTTI_COLLECTIVE(all_to_all_single){
    .name = "all_to_all_single",
    .former_names = {"alltoall_base"},
    .outputs = Given::whole,
    .inputs = Given::whole,
    .sizes =
        [](const char* op, const CallPart& part) {
          checks::same_numel(op, "input", part.input(), "output", part.output());
          tutti::comm::check_parts(op, part);
        },
    .move = [](Move& m, const CallPart& part) { tutti::comm::exchange_parts("all_to_all_single", m, part); },
    .functional = {&functional::kAllToAllSingle},
    .source = [](int64_t i, int64_t n, const Seat& seat,
                 int) { return Source{static_cast<int>(i / n), static_cast<int>(i / n) + 1, seat.rank * n + i % n}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

TUTTI_COLLECTIVE(all_to_all_v_single){
    .name = "all_to_all_v_single",
    .outputs = Given::whole,
    .inputs = Given::whole,
    .has_splits = true,
    .evenness = Evenness::pairwise,
    .sizes = tutti::comm::check_parts,
    .move = [](Move& m, const CallPart& part) { tutti::comm::exchange_parts("all_to_all_v_single", m, part); },
    .functional = {&functional::kAllToAllVSingle},
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

// ---- functional -----------------------------------------------------------------------------------------------------

namespace tutti::comm::functional {
namespace {

Tensor as_tensor(Splits splits) { return Tensor::of(std::vector<int64_t>(splits.begin(), splits.end())); }

int64_t checked_sum(const char* role, Splits splits, int ranks) {
  TUTTI_CHECK_EQ(static_cast<int>(splits.size()), ranks,
                 "all_to_all_single: {} {} splits for a group of {} ranks; expected one per rank", splits.size(), role,
                 ranks);
  for (const int64_t split : splits)
    TUTTI_CHECK(split >= 0, "all_to_all_single: {} split {}; expected 0 or more", role, split);
  return std::accumulate(splits.begin(), splits.end(), int64_t{0});
}

}  // namespace

const OpDef kAllToAllSingle = op_of_row(
    "all_to_all_single",
    [](const VjpCall& c, std::span<Tensor> grads) {
      grads[0] = wait_tensor(all_to_all_single(c.grads[0], group_of(c)));
    },
    samples_of<kAllToAllSingle>);

// Inputs: x, output splits, input splits. They are tensors because a group may have any number of ranks.
const OpDef kAllToAllVSingle{
    .name = "all_to_all_v_single",
    .num_inputs = 3,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          Shape sizes = call[0].sizes();
          sizes[0] = attrs_of(call).rows;
          out.add(call[0].dtype(), sizes);
        },
    .reference = all_to_all_v_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       CallAttrs attrs = attrs_of(c);
                       attrs.rows = c.input_metas[0].sizes[0];
                       grads[0] = wait_tensor(call_op(c.op, Attrs::of(attrs), c.grads[0], c.inputs[2], c.inputs[1]));
                     },
                 .saves_inputs = 0b110},
    .ordered = true,
    .transfer = {.starts_early = true},
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          attach(outputs[0],
                 group_of(call)->all_to_all_v_single(target_of(outputs[0]), snapshot(call[0]),
                                                     checks::values_of(call[1]), checks::values_of(call[2]), kStart));
        },
    .sharding = row_sharding,
    .cost = wire_cost,
    .samples = samples_of<kAllToAllVSingle>,
};

Tensor all_to_all_single(const Tensor& x, const GroupArgument& group) {
  return group->checked(CollectiveKind::all_to_all_single, [&] {
    return call_op(kAllToAllSingle, Attrs::of(CallAttrs{.group = GroupRef::of(group)}), x);
  });
}

Tensor all_to_all_single(const Tensor& x, Splits output_splits, Splits input_splits, const GroupArgument& group) {
  return group->checked(CollectiveKind::all_to_all_v_single, [&] {
    TUTTI_CHECK(x.defined() && x.ndim() > 0, "all_to_all_single: the tensor {} has no dim 0 to split", describe(x));
    const int64_t rows = checked_sum("output", output_splits, group->size()),
                  given = checked_sum("input", input_splits, group->size());
    TUTTI_CHECK(x.sizes()[0] == given, "all_to_all_single: the input splits add up to {}; dim 0 of {} has {} rows",
                given, describe(x), x.sizes()[0]);
    return call_op(kAllToAllVSingle, Attrs::of(CallAttrs{.group = GroupRef::of(group), .rows = rows}), x,
                   as_tensor(output_splits), as_tensor(input_splits));
  });
}

Tensor all_to_all_single(const Tensor& x, const Tensor& output_splits, const Tensor& input_splits, const SymInt& rows,
                         const GroupArgument& group) {
  return group->checked(CollectiveKind::all_to_all_v_single, [&] {
    TUTTI_CHECK(x.defined() && x.ndim() > 0, "all_to_all_single: the tensor {} has no dim 0 to split", describe(x));
    checks::split_tensor("all_to_all_single", "output", output_splits, group->size());
    checks::split_tensor("all_to_all_single", "input", input_splits, group->size());
    TUTTI_CHECK(rows >= 0, "all_to_all_single: a result of {} rows; expected 0 or more, the sum of the output splits",
                rows);
    return call_op(kAllToAllVSingle, Attrs::of(CallAttrs{.group = GroupRef::of(group), .rows = rows}), x, output_splits,
                   input_splits);
  });
}

}  // namespace tutti::comm::functional
