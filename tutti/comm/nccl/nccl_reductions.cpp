// Collectives with arithmetic. Several tensors of one call are one group of NCCL: one launch.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/nccl/nccl_backend.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Launch = NcclCommunicator::Launch;

size_t count_of(const Tensor& t) { return static_cast<size_t>(t.numel()); }

CallRecord record_of(CollectiveKind kind, const Tensor& t, const ReduceOp& reduce, int root = -1, size_t tensors = 1) {
  CallRecord record{.kind = kind, .reduce = reduce.kind(), .root = root, .tensors = static_cast<int32_t>(tensors)};
  record.describe_tensor(t.dtype(), t.extents());
  return record;
}

}  // namespace

Work NcclBackend::all_reduce_list(const char* op, CollectiveKind kind, Tensors tensors, const ReduceOp& reduce, const CallOptions& call) {
  TUTTI_CHECK(!tensors.empty(), "{}: no tensors", op);
  for (const Tensor& t : tensors) {
    check_write(op, "input", t);
    check_reducible(op, reduce, t.dtype());
  }
  return comm_->submit(record_of(kind, tensors[0], reduce, -1, tensors.size()), [&](const Launch& on) {
    NcclReduction reduction(on, reduce);
    for (const Tensor& t : tensors) {
      if (t.numel() == 0) continue;
      on.check(comm_->nccl().all_reduce(t.raw_data(), t.raw_data(), count_of(t), nccl_type(t.dtype()), reduction.op(t.dtype()), on.comm, on.stream),
               "ncclAllReduce");
    }
  }, {tensors.begin(), tensors.end()}, 0, call);
}

Work NcclBackend::all_reduce(const Tensor& tensor, const ReduceOp& op, const CallOptions& call) {
  return all_reduce_list("all_reduce", CollectiveKind::all_reduce, {&tensor, 1}, op, call);
}

Work NcclBackend::all_reduce_coalesced(Tensors tensors, const ReduceOp& op, const CallOptions& call) {
  return all_reduce_list("all_reduce_coalesced", CollectiveKind::all_reduce_coalesced, tensors, op, call);
}

Work NcclBackend::reduce(const Tensor& tensor, int root, const ReduceOp& op, const CallOptions& call) {
  checks::root("reduce", root, size());
  rank() == root ? check_write("reduce", "input", tensor) : check_read("reduce", "input", tensor);
  check_reducible("reduce", op, tensor.dtype());
  return comm_->submit(record_of(CollectiveKind::reduce, tensor, op, root), [&](const Launch& on) {
    if (tensor.numel() == 0) return;
    NcclReduction reduction(on, op);
    // Only root's memory is written.
    on.check(comm_->nccl().reduce(tensor.raw_data(), rank() == root ? tensor.raw_data() : nullptr, count_of(tensor), nccl_type(tensor.dtype()),
                                  reduction.op(tensor.dtype()), root, on.comm, on.stream), "ncclReduce");
  }, {tensor}, rank() == root ? 0 : 1, call);
}

// Lists may be uneven: each rank's part is a reduction to that rank.
Work NcclBackend::reduce_scatter(const Tensor& output, Tensors inputs, const ReduceOp& op, const CallOptions& call) {
  checks::list_length("reduce_scatter", "input", inputs.size(), size());
  check_write("reduce_scatter", "output", output);
  check_reducible("reduce_scatter", op, output.dtype());
  for (const Tensor& t : inputs) {
    check_read("reduce_scatter", "input", t);
    checks::same_dtype("reduce_scatter", output, t);
  }
  checks::same_numel("reduce_scatter", "output", output, "own input", inputs[static_cast<size_t>(rank())]);
  std::vector<Tensor> tensors(inputs.begin(), inputs.end());
  tensors.push_back(output);
  CallRecord record = record_of(CollectiveKind::reduce_scatter, output, op);
  record.same_sizes = false;
  return comm_->submit(record, [&](const Launch& on) {
    NcclReduction reduction(on, op);
    for (int p = 0; p < size(); ++p) {
      const Tensor& part = inputs[static_cast<size_t>(p)];
      if (part.numel() == 0) continue;
      on.check(comm_->nccl().reduce(part.raw_data(), p == rank() ? output.raw_data() : nullptr, count_of(part), nccl_type(part.dtype()),
                                    reduction.op(part.dtype()), p, on.comm, on.stream), "ncclReduce");
    }
  }, std::move(tensors), inputs.size(), call);
}

Work NcclBackend::reduce_scatter_pairs(const char* op, CollectiveKind kind, Tensors outputs, Tensors inputs, const ReduceOp& reduce,
                                       const CallOptions& call) {
  TUTTI_CHECK(!outputs.empty() && outputs.size() == inputs.size(), "{}: {} outputs for {} inputs; expected as many, at least one", op,
              outputs.size(), inputs.size());
  for (size_t t = 0; t < outputs.size(); ++t) {
    check_write(op, "output", outputs[t]);
    check_read(op, "input", inputs[t]);
    checks::same_dtype(op, outputs[t], inputs[t]);
    checks::numel_times(op, "input", inputs[t], "output", outputs[t], size());
    check_reducible(op, reduce, outputs[t].dtype());
  }
  std::vector<Tensor> tensors(inputs.begin(), inputs.end());
  tensors.insert(tensors.end(), outputs.begin(), outputs.end());
  return comm_->submit(record_of(kind, inputs[0], reduce, -1, inputs.size()), [&](const Launch& on) {
    NcclReduction reduction(on, reduce);
    for (size_t t = 0; t < outputs.size(); ++t) {
      if (outputs[t].numel() == 0) continue;
      on.check(comm_->nccl().reduce_scatter(inputs[t].raw_data(), outputs[t].raw_data(), count_of(outputs[t]), nccl_type(outputs[t].dtype()),
                                            reduction.op(outputs[t].dtype()), on.comm, on.stream), "ncclReduceScatter");
    }
  }, std::move(tensors), inputs.size(), call);
}

Work NcclBackend::reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op, const CallOptions& call) {
  return reduce_scatter_pairs("reduce_scatter_single", CollectiveKind::reduce_scatter_single, {&output, 1}, {&input, 1}, op, call);
}

Work NcclBackend::reduce_scatter_single_coalesced(Tensors outputs, Tensors inputs, const ReduceOp& op, const CallOptions& call) {
  return reduce_scatter_pairs("reduce_scatter_single_coalesced", CollectiveKind::reduce_scatter_single_coalesced, outputs, inputs, op, call);
}

}  // namespace tutti::comm
