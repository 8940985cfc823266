// The ops of collectives in the runtime of packages, which has no process groups: their sizes, for the checks of plans.
// Their calls run in the groups of the program (tutti_collectives.h). Opening a package compares schemas with those of
// the full library, comm/functional/, which made it.
#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/core/number.h"
#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/runtime_only/collective_ops.h"
#include "tutti/ops/engine/op_rooms.h"

namespace tutti::deploy {
namespace {

int64_t ranks_of(const OpCall& call) { return call.attrs.as<CallAttrs>().group.ranks; }

Shape sizes_of(const OpCall& call) {
  TUTTI_CHECK(call[0].ndim() > 0, "{}: the tensor {} has no dims", call.op.name, describe(call[0]));
  return call[0].sizes();
}
void check_parts(const OpCall& call, const Shape& sizes) {
  TUTTI_CHECK(remainder(sizes[0], ranks_of(call)) == 0, "{}: dim 0 of {} is not divided by {} ranks", call.op.name,
              describe(call[0]), ranks_of(call));
}
void check_reduction(const OpCall& call) {
  const std::string why = comm::why_not_reducible(call.attrs.as<CallAttrs>().reduce.kind(), call[0].dtype());
  TUTTI_CHECK(why.empty(), "{}: {}", call.op.name, why);
}

void infer_reduced(const OpCall& call, OutputMetas& out) {
  check_reduction(call);
  out.add(call[0].dtype(), call[0].sizes());
}
void infer_broadcast(const OpCall& call, OutputMetas& out) {
  const int32_t root = call.attrs.as<CallAttrs>().peer;
  TUTTI_CHECK(root >= 0 && root < ranks_of(call), "{}: rank {} of {}", call.op.name, root, ranks_of(call));
  out.add(call[0].dtype(), call[0].sizes());
}
void infer_gathered(const OpCall& call, OutputMetas& out) {
  Shape sizes = sizes_of(call);
  sizes[0] *= ranks_of(call);
  out.add(call[0].dtype(), sizes);
}
void infer_scattered(const OpCall& call, OutputMetas& out) {
  check_reduction(call);
  Shape sizes = sizes_of(call);
  check_parts(call, sizes);
  sizes[0] = floordiv(sizes[0], ranks_of(call));
  out.add(call[0].dtype(), sizes);
}
void infer_exchanged(const OpCall& call, OutputMetas& out) {
  check_parts(call, sizes_of(call));
  out.add(call[0].dtype(), call[0].sizes());
}

void refuse(const OpCall& call, std::span<const Tensor>) {
  throw InternalError(fmt::format("{} ran outside of a group", call.op.name));
}

constexpr OpDef collective(const char* name, void (*infer)(const OpCall&, OutputMetas&)) {
  return {.name = name, .num_inputs = 1, .infer = infer, .ordered = true, .kernel = refuse};
}
const OpDef kAllReduce = collective("all_reduce", infer_reduced);
const OpDef kAllReduceExtremum = collective("all_reduce_extremum", infer_reduced);
const OpDef kBroadcast = collective("broadcast", infer_broadcast);
const OpDef kAllGatherSingle = collective("all_gather_single", infer_gathered);
const OpDef kReduceScatterSingle = collective("reduce_scatter_single", infer_scattered);
const OpDef kAllToAllSingle = collective("all_to_all_single", infer_exchanged);

}  // namespace

bool join_collective_ops() {
  static const OpDef* const ops[] = {&kAllReduce,       &kAllReduceExtremum,   &kBroadcast,
                                     &kAllGatherSingle, &kReduceScatterSingle, &kAllToAllSingle};
  join_op_table(ops);
  std::for_each(std::begin(ops), std::end(ops), [](const OpDef* op) { declare_collective(*op); });
  return true;
}

}  // namespace tutti::deploy
