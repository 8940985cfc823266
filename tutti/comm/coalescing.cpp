#include "tutti/comm/coalescing.h"

#include <algorithm>

#include "tutti/comm/collective_def.h"
#include "tutti/core/error.h"

namespace tutti::comm {

Coalescing::Coalescing(ProcessGroup& group) : group_(group) {
  TUTTI_CHECK(!group.coalescing_.exchange(true), "coalescing: group '{}' is being coalesced already; end() that first",
              group.name());
}

Coalescing::~Coalescing() {
  if (!ended_) group_.coalescing_.store(false);
}

void Coalescing::all_reduce(const Tensor& tensor, const ReduceOp& op) {
  items_.push_back({.kind = CollectiveKind::all_reduce, .output = tensor, .op = op});
}

void Coalescing::all_gather_single(const Tensor& output, const Tensor& input) {
  items_.push_back({.kind = CollectiveKind::all_gather_single, .output = output, .input = input});
}

void Coalescing::reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op) {
  items_.push_back({.kind = CollectiveKind::reduce_scatter_single, .output = output, .input = input, .op = op});
}

// Sends and receives are one kind, so that neighbours become one batch.
void Coalescing::send(const Tensor& tensor, int peer, uint32_t tag) {
  items_.push_back(
      {.kind = CollectiveKind::send, .output = {}, .message = {PointToPoint::Kind::isend, tensor, peer, tag}});
}

void Coalescing::recv(const Tensor& tensor, int peer, uint32_t tag) {
  items_.push_back(
      {.kind = CollectiveKind::send, .output = {}, .message = {PointToPoint::Kind::irecv, tensor, peer, tag}});
}

Work Coalescing::end() {
  TUTTI_CHECK(!ended_, "coalescing: end() of group '{}' was called twice", group_.name());
  ended_ = true;
  group_.coalescing_.store(false);
  std::vector<Work> works;
  for (size_t begin = 0; begin < items_.size();) {
    const auto same = [&](const Item& a, const Item& b) {
      return a.kind == b.kind && a.op.kind() == b.op.kind() && a.op.factor() == b.op.factor();
    };
    size_t end = begin + 1;
    while (end < items_.size() && same(items_[begin], items_[end])) ++end;
    works.push_back(start(begin, end));
    begin = end;
  }
  return works.size() == 1 ? works[0] : all_of(std::move(works));
}

// Items [begin, end) are of one kind.
Work Coalescing::start(size_t begin, size_t end) {
  const CallOptions async{.async = true};
  std::vector<Tensor> outputs, inputs;
  std::vector<PointToPoint> messages;
  const CollectiveDef& def = definition(items_[begin].kind);
  for (size_t i = begin; i < end; ++i) {
    outputs.push_back(items_[i].output);
    if (def.in_place == InPlace::no) inputs.push_back(items_[i].input);
    messages.push_back(items_[i].message);
  }
  if (def.is_message) return group_.batch_isend_irecv(messages, async);
  const auto table = collective_table();
  const auto coalesced =
      std::find_if(table.begin(), table.end(), [&](const CollectiveDef* row) { return row->each == &def; });
  return group_.run({.kind = kind_of(**coalesced),
                     .outputs = outputs,
                     .inputs = inputs,
                     .reduce = items_[begin].op,
                     .options = async});
}

}  // namespace tutti::comm
