// Collectives that only move data, as bytes. What NCCL has no call for is a group of its sends and receives.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/nccl/nccl_backend.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Launch = NcclCommunicator::Launch;

CallRecord record_of(CollectiveKind kind, const Tensor& t, int root = -1, bool same_sizes = true, size_t tensors = 1) {
  CallRecord record{.kind = kind, .root = root, .tensors = static_cast<int32_t>(tensors)};
  record.same_sizes = same_sizes;
  record.describe_tensor(t.dtype(), t.extents());
  return record;
}

void send_bytes(const Launch& on, const void* data, int64_t bytes, int peer) {
  if (bytes == 0) return;
  on.check(on.owner.nccl().send(data, static_cast<size_t>(bytes), NcclApi::kU8, peer, on.comm, on.stream), "ncclSend");
}
void recv_bytes(const Launch& on, void* data, int64_t bytes, int peer) {
  if (bytes == 0) return;
  on.check(on.owner.nccl().recv(data, static_cast<size_t>(bytes), NcclApi::kU8, peer, on.comm, on.stream), "ncclRecv");
}

std::vector<Tensor> listed(Tensors first, Tensors then) {
  std::vector<Tensor> all(first.begin(), first.end());
  all.insert(all.end(), then.begin(), then.end());
  return all;
}

void check_message(const char* op, int peer, uint32_t tag) {
  TUTTI_CHECK(peer != -1, "{}: NCCL takes messages from a named rank only; give the peer", op);
  TUTTI_CHECK(tag == 0, "{}: tag {}: messages of NCCL have no tags and come in the order they were sent; leave the tag 0", op, tag);
}

}  // namespace

Work NcclBackend::broadcast(const Tensor& tensor, int root, const CallOptions& call) {
  checks::root("broadcast", root, size());
  rank() == root ? check_read("broadcast", "input", tensor) : check_write("broadcast", "output", tensor);
  return comm_->submit(record_of(CollectiveKind::broadcast, tensor, root), [&](const Launch& on) {
    if (tensor.numel() == 0) return;
    on.check(comm_->nccl().broadcast(tensor.raw_data(), tensor.raw_data(), static_cast<size_t>(tensor.nbytes()), NcclApi::kU8, root, on.comm,
                                     on.stream), "ncclBroadcast");
  }, {tensor}, 0, call);
}

// Sizes may differ from rank to rank: each rank's part is a broadcast from it.
Work NcclBackend::all_gather(Tensors outputs, const Tensor& input, const CallOptions& call) {
  checks::list_length("all_gather", "output", outputs.size(), size());
  check_read("all_gather", "input", input);
  for (const Tensor& t : outputs) {
    check_write("all_gather", "output", t);
    checks::same_dtype("all_gather", input, t);
  }
  checks::same_numel("all_gather", "own output", outputs[static_cast<size_t>(rank())], "input", input);
  return comm_->submit(record_of(CollectiveKind::all_gather, input, -1, false), [&](const Launch& on) {
    for (int p = 0; p < size(); ++p) {
      const Tensor& part = outputs[static_cast<size_t>(p)];
      if (part.numel() == 0) continue;
      on.check(comm_->nccl().broadcast(p == rank() ? input.raw_data() : part.raw_data(), part.raw_data(), static_cast<size_t>(part.nbytes()),
                                       NcclApi::kU8, p, on.comm, on.stream), "ncclBroadcast");
    }
  }, listed({&input, 1}, outputs), 1, call);
}

Work NcclBackend::all_gather_pairs(const char* op, CollectiveKind kind, Tensors outputs, Tensors inputs, const CallOptions& call) {
  TUTTI_CHECK(!outputs.empty() && outputs.size() == inputs.size(), "{}: {} outputs for {} inputs; expected as many, at least one", op,
              outputs.size(), inputs.size());
  for (size_t t = 0; t < outputs.size(); ++t) {
    check_write(op, "output", outputs[t]);
    check_read(op, "input", inputs[t]);
    checks::same_dtype(op, outputs[t], inputs[t]);
    checks::numel_times(op, "output", outputs[t], "input", inputs[t], size());
  }
  return comm_->submit(record_of(kind, inputs[0], -1, true, inputs.size()), [&](const Launch& on) {
    for (size_t t = 0; t < outputs.size(); ++t) {
      if (inputs[t].numel() == 0) continue;
      on.check(comm_->nccl().all_gather(inputs[t].raw_data(), outputs[t].raw_data(), static_cast<size_t>(inputs[t].nbytes()), NcclApi::kU8, on.comm,
                                        on.stream), "ncclAllGather");
    }
  }, listed(inputs, outputs), inputs.size(), call);
}

Work NcclBackend::all_gather_single(const Tensor& output, const Tensor& input, const CallOptions& call) {
  return all_gather_pairs("all_gather_single", CollectiveKind::all_gather_single, {&output, 1}, {&input, 1}, call);
}

Work NcclBackend::all_gather_single_coalesced(Tensors outputs, Tensors inputs, const CallOptions& call) {
  return all_gather_pairs("all_gather_single_coalesced", CollectiveKind::all_gather_single_coalesced, outputs, inputs, call);
}

Work NcclBackend::gather(Tensors outputs, const Tensor& input, int root, const CallOptions& call) {
  checks::root("gather", root, size());
  check_read("gather", "input", input);
  TUTTI_CHECK(rank() == root || outputs.empty(), "gather: rank {} gives {} outputs; only root {} has any", rank(), outputs.size(), root);
  if (rank() == root) checks::list_length("gather", "output", outputs.size(), size());
  for (const Tensor& t : outputs) {
    check_write("gather", "output", t);
    checks::same_dtype("gather", input, t);
    checks::same_numel("gather", "output", t, "input", input);
  }
  return comm_->submit(record_of(CollectiveKind::gather, input, root), [&](const Launch& on) {
    send_bytes(on, input.raw_data(), input.nbytes(), root);
    for (size_t p = 0; p < outputs.size(); ++p) recv_bytes(on, outputs[p].raw_data(), outputs[p].nbytes(), static_cast<int>(p));
  }, listed({&input, 1}, outputs), 1, call);
}

Work NcclBackend::scatter(const Tensor& output, Tensors inputs, int root, const CallOptions& call) {
  checks::root("scatter", root, size());
  check_write("scatter", "output", output);
  TUTTI_CHECK(rank() == root || inputs.empty(), "scatter: rank {} gives {} inputs; only root {} has any", rank(), inputs.size(), root);
  if (rank() == root) checks::list_length("scatter", "input", inputs.size(), size());
  for (const Tensor& t : inputs) {
    check_read("scatter", "input", t);
    checks::same_dtype("scatter", output, t);
    checks::same_numel("scatter", "output", output, "input", t);
  }
  return comm_->submit(record_of(CollectiveKind::scatter, output, root), [&](const Launch& on) {
    for (size_t p = 0; p < inputs.size(); ++p) send_bytes(on, inputs[p].raw_data(), inputs[p].nbytes(), static_cast<int>(p));
    recv_bytes(on, output.raw_data(), output.nbytes(), root);
  }, listed(inputs, {&output, 1}), inputs.size(), call);
}

Work NcclBackend::all_to_all(Tensors outputs, Tensors inputs, const CallOptions& call) {
  checks::list_length("all_to_all", "output", outputs.size(), size());
  checks::list_length("all_to_all", "input", inputs.size(), size());
  for (size_t p = 0; p < outputs.size(); ++p) {
    check_write("all_to_all", "output", outputs[p]);
    check_read("all_to_all", "input", inputs[p]);
    checks::same_dtype("all_to_all", inputs[0], inputs[p]);
    checks::same_dtype("all_to_all", inputs[0], outputs[p]);
  }
  return comm_->submit(record_of(CollectiveKind::all_to_all, inputs[0], -1, false), [&](const Launch& on) {
    for (size_t p = 0; p < inputs.size(); ++p) {
      send_bytes(on, inputs[p].raw_data(), inputs[p].nbytes(), static_cast<int>(p));
      recv_bytes(on, outputs[p].raw_data(), outputs[p].nbytes(), static_cast<int>(p));
    }
  }, listed(inputs, outputs), inputs.size(), call);
}

Work NcclBackend::all_to_all_single(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                                    const CallOptions& call) {
  const bool uneven = !output_splits.empty() || !input_splits.empty();
  const char* op = uneven ? "all_to_all_v_single" : "all_to_all_single";
  check_write(op, "output", output);
  check_read(op, "input", input);
  checks::same_dtype(op, output, input);
  const std::vector<int64_t> to = checks::split_bytes(op, "input", input, input_splits, size());
  const std::vector<int64_t> from = checks::split_bytes(op, "output", output, output_splits, size());
  const auto kind = uneven ? CollectiveKind::all_to_all_v_single : CollectiveKind::all_to_all_single;
  return comm_->submit(record_of(kind, input, -1, !uneven), [&](const Launch& on) {
    const char* source = static_cast<const char*>(input.raw_data());
    char* target = static_cast<char*>(output.raw_data());
    for (size_t p = 0; p < to.size(); ++p) {
      send_bytes(on, source, to[p], static_cast<int>(p));
      recv_bytes(on, target, from[p], static_cast<int>(p));
      source += to[p];
      target += from[p];
    }
  }, {input, output}, 1, call);
}

Work NcclBackend::send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& call) {
  check_message("send", peer, tag);
  checks::peer("send", peer, rank(), size(), false);
  check_read("send", "input", tensor);
  return comm_->submit(record_of(CollectiveKind::send, tensor, peer), [&](const Launch& on) {
    send_bytes(on, tensor.raw_data(), tensor.nbytes(), peer);
  }, {tensor}, 1, call);
}

Work NcclBackend::recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& call) {
  check_message("recv", peer, tag);
  checks::peer("recv", peer, rank(), size(), false);
  check_write("recv", "output", tensor);
  return comm_->submit(record_of(CollectiveKind::recv, tensor, peer), [&](const Launch& on) {
    recv_bytes(on, tensor.raw_data(), tensor.nbytes(), peer);
  }, {tensor}, 0, call);
}

Work NcclBackend::batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& call) {
  TUTTI_CHECK(!operations.empty(), "batch_isend_irecv: no operations");
  std::vector<Tensor> sent, received;
  for (const PointToPoint& p : operations) {
    check_message("batch_isend_irecv", p.peer, p.tag);
    checks::peer("batch_isend_irecv", p.peer, rank(), size(), false);
    if (p.kind == PointToPoint::Kind::isend) {
      check_read("batch_isend_irecv", "input", p.tensor);
      sent.push_back(p.tensor);
    } else {
      check_write("batch_isend_irecv", "output", p.tensor);
      received.push_back(p.tensor);
    }
  }
  // The record is that of the first operation: a batch is one call.
  const bool sends = operations[0].kind == PointToPoint::Kind::isend;
  CallRecord record = record_of(sends ? CollectiveKind::send : CollectiveKind::recv, operations[0].tensor, operations[0].peer, false,
                                operations.size());
  const size_t first_output = sent.size();
  return comm_->submit(record, [&](const Launch& on) {
    for (const PointToPoint& p : operations) {
      if (p.kind == PointToPoint::Kind::isend) send_bytes(on, p.tensor.raw_data(), p.tensor.nbytes(), p.peer);
      else recv_bytes(on, p.tensor.raw_data(), p.tensor.nbytes(), p.peer);
    }
  }, listed(sent, received), first_output, call);
}

}  // namespace tutti::comm
