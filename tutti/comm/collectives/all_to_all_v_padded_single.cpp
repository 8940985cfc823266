// all_to_all_v_padded_single: an all_to_all_v_single whose receivers need not know the splits. They have room for as
// many rows as may come, and get the number of rows from each rank along with the rows.
#include <algorithm>
#include <numeric>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/padded_move.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/functional/reference.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::comm {
namespace {

void check_sides(const char* op, const CallPart& part) {
  checks::split_tensor(op, "input", part.input(1), part.seat.ranks);
  checks::split_tensor(op, "output", part.output(1), part.seat.ranks);
  checks::splits_within(op, "input", part.input(), part.input(1));
  TUTTI_CHECK(part.output().ndim() > 0, "{}: the output tensor {} has no dim 0 for the rows", op,
              describe(part.output()));
  const auto row = [](const Tensor& t) {
    return std::accumulate(t.extents().begin() + 1, t.extents().end(), int64_t{1}, std::multiplies());
  };
  TUTTI_CHECK(row(part.input()) == row(part.output()),
              "{}: rows of the input {} have {} elements, those of the output {} have {}; expected the same", op,
              describe(part.input()), row(part.input()), describe(part.output()), row(part.output()));
}

}  // namespace
}  // namespace tutti::comm

TUTTI_COLLECTIVE(all_to_all_v_padded_single){
    .name = "all_to_all_v_padded_single",
    .outputs = Given::padded,
    .inputs = Given::padded,
    .evenness = Evenness::pairwise,
    .sizes = tutti::comm::check_sides,
    .make = [](const CallRecord& record, const CallPart& part) -> std::unique_ptr<Collective> {
      return std::make_unique<PaddedMove>(record, part);
    },
    .functional = {&functional::kAllToAllVPaddedSingle},
    // With splits of n elements each.
    .source = [](int64_t i, int64_t n, const Seat& seat,
                 int) { return Source{static_cast<int>(i / n), static_cast<int>(i / n) + 1, seat.rank * n + i % n}; },
    .wire = [](double ranks) { return (ranks - 1) / ranks; },
};

// ---- functional -----------------------------------------------------------------------------------------------------

namespace tutti::comm::functional {
namespace {

PaddedRows exchange(const Attrs& attrs, const Tensor& x, const Tensor& input_splits) {
  const Tensor inputs[] = {x, input_splits};
  Tensor outputs[2];
  apply(kAllToAllVPaddedSingle, inputs, attrs, outputs);
  return {outputs[0], outputs[1]};
}

// The rows of x that are sent, as far as the splits are right: a buffer of worst-case size is not copied whole.
Tensor sent_part(const Tensor& x, const Tensor& splits) {
  int64_t rows = 0;
  for (const int64_t split : checks::values_of(splits)) {
    if (split < 0 || split > x.extents()[0] - rows) return x;
    rows += split;
  }
  Extents sizes = x.extents();
  sizes[0] = rows;
  return x.view_as(sizes, x.strides(), x.offset());
}

// Between ranks p and q go p + 2 q rows of up to three dims; capacity and input have rows to spare.
std::vector<Sample> samples() {
  const GroupArgument world("0");
  const int64_t ranks = world->size(), most = ranks * 3 * ranks;
  std::vector<int64_t> splits;
  for (int64_t q = 0; q < ranks; ++q) splits.push_back(world->rank() + 2 * q);
  const Attrs attrs = Attrs::of(CallAttrs{.group = GroupRef::of(world), .rows = most + 1});
  std::vector<Sample> samples;
  for (const Extents& sizes : {Extents{most, 3}, Extents{most}, Extents{most, 2, 2}, Extents{most, 0}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::i64}) {
      samples.push_back({fmt::format("{} {}", sizes, name_of(dtype)),
                         {facets::sample_tensor(1, sizes, dtype), Tensor::of(splits)},
                         attrs});
    }
  }
  return samples;
}

}  // namespace

// Inputs: x, input splits.
const OpDef kAllToAllVPaddedSingle{
    .name = "all_to_all_v_padded_single",
    .num_inputs = 2,
    .num_outputs = 2,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          Shape sizes = call[0].sizes();
          sizes[0] = attrs_of(call).rows;
          out.add(call[0].dtype(), sizes);
          out.add(DType::i64, {attrs_of(call).group.ranks});
        },
    .reference = all_to_all_v_padded_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       CallAttrs attrs = attrs_of(c);
                       attrs.rows = c.input_metas[0].sizes[0];
                       grads[0] = wait_tensor(exchange(Attrs::of(attrs), c.grads[0], c.outputs[1]).output);
                     },
                 .saves_outputs = 0b10},
    .ordered = true,
    .transfer = {.starts_early = true},
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const Work work = group_of(call)->all_to_all_v_padded_single(
              target_of(outputs[0]), target_of(outputs[1]), snapshot(sent_part(call[0], call[1])), call[1], kStart);
          attach(outputs[0], work);
          attach(outputs[1], work);
        },
    // The output splits have none of the dims of the rows, so no rank may hold a part of them.
    .sharding =
        [](const OpCall& call) {
          std::string row;
          for (int d = 1; d < call[0].ndim(); ++d) row += static_cast<char>('A' + d);
          return fmt::format("#x[Y{0}] #s[V] -> y[Z{0}] #t[W]", row);
        },
    .cost = wire_cost,
    .samples = samples,
};

PaddedRows all_to_all_v_padded_single(const Tensor& x, const Tensor& input_splits, const SymInt& capacity,
                                      const GroupArgument& group) {
  return group->checked(CollectiveKind::all_to_all_v_padded_single, [&] {
    TUTTI_CHECK(x.defined() && x.ndim() > 0, "all_to_all_v_padded_single: the tensor {} has no dim 0 to split",
                describe(x));
    checks::split_tensor("all_to_all_v_padded_single", "input", input_splits, group->size());
    TUTTI_CHECK(capacity >= 0, "all_to_all_v_padded_single: a capacity of {} rows; expected 0 or more", capacity);
    return exchange(Attrs::of(CallAttrs{.group = GroupRef::of(group), .rows = capacity}), x, input_splits);
  });
}

}  // namespace tutti::comm::functional
