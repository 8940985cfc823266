#include "tutti/ops/engine/op_def.h"

namespace tutti {

const OpDef& find_op(std::string_view name) {
  std::vector<std::string> names;
  for (const OpDef* op : op_table()) {
    if (op->name == name) return *op;
    names.emplace_back(op->name);
  }
  throw UsageError(unknown_name_message("op", name, names));
}

Cost cost_of(const OpCall& call) {
  if (call.op.cost) return call.op.cost(call);
  Cost cost;
  for (const Tensor& t : call.inputs) cost.bytes += static_cast<double>(t.nbytes());
  if (call.op.view) return {};
  OutputMetas metas;
  call.op.infer(call, metas);
  for (int k = 0; k < metas.count; ++k) {
    const double n = static_cast<double>(numel_of(concrete(metas.meta[k].sizes)));
    cost.flops += n;
    cost.bytes += n * static_cast<double>(itemsize(metas.meta[k].dtype));
  }
  return cost;
}

}  // namespace tutti
