// Messages, which NCCL moves as bytes and without tags.
#include "tutti/comm/call_checks.h"
#include "tutti/comm/nccl/nccl_backend.h"
#include "tutti/comm/nccl/nccl_calls.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Launch = NcclCommunicator::Launch;

CallRecord record_of(CollectiveKind kind, const Tensor& t, int peer, size_t tensors = 1) {
  CallRecord record{.kind = kind, .root = peer, .tensors = static_cast<int32_t>(tensors)};
  record.same_sizes = tensors == 1;
  record.describe_tensor(t.dtype(), t.extents());
  return record;
}

void check_message(const char* op, int peer, uint32_t tag) {
  TUTTI_CHECK(peer != -1, "{}: NCCL takes messages from a named rank only; give the peer", op);
  TUTTI_CHECK(tag == 0,
              "{}: tag {}: messages of NCCL have no tags and come in the order they were sent; leave the tag 0", op,
              tag);
}

}  // namespace

Work NcclBackend::send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& call) {
  check_message("send", peer, tag);
  checks::peer("send", peer, rank(), size(), false);
  check_read("send", "input", tensor);
  return comm_->submit(
      record_of(CollectiveKind::send, tensor, peer),
      [&](const Launch& on) { nccl_send(on, tensor.raw_data(), tensor.nbytes(), peer); }, {tensor}, 1, call);
}

Work NcclBackend::recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& call) {
  check_message("recv", peer, tag);
  checks::peer("recv", peer, rank(), size(), false);
  check_write("recv", "output", tensor);
  return comm_->submit(
      record_of(CollectiveKind::recv, tensor, peer),
      [&](const Launch& on) { nccl_recv(on, tensor.raw_data(), tensor.nbytes(), peer); }, {tensor}, 0, call);
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
  CallRecord record = record_of(sends ? CollectiveKind::send : CollectiveKind::recv, operations[0].tensor,
                                operations[0].peer, operations.size());
  const size_t first_output = sent.size();
  sent.insert(sent.end(), received.begin(), received.end());
  return comm_->submit(
      record,
      [&](const Launch& on) {
        for (const PointToPoint& p : operations) {
          if (p.kind == PointToPoint::Kind::isend) nccl_send(on, p.tensor.raw_data(), p.tensor.nbytes(), p.peer);
          else nccl_recv(on, p.tensor.raw_data(), p.tensor.nbytes(), p.peer);
        }
      },
      std::move(sent), first_output, call);
}

}  // namespace tutti::comm
