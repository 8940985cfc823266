#include "tutti/comm/transport_backend.h"

#include <algorithm>
#include <array>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/call_states.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::milliseconds kTimeToRefuse{100};

// Several collectives as one call, one after another.
class Sequence final : public Collective {
 public:
  Sequence(const CallRecord& call, std::vector<ListedTensor> list, std::vector<std::unique_ptr<Collective>> parts)
      : list_(std::move(list)), parts_(std::move(parts)) {
    record = call;
    record.tensors = static_cast<int32_t>(parts_.size());
    record.splits = hash_of(list_);
  }
  std::unique_ptr<Collective> inquire(const std::string& group, int ranks) const override {
    return make_list_inquiry(record, group, list_, list_.size() / parts_.size(), ranks);
  }
  bool next(Exchange& exchange) override {
    for (; current_ < parts_.size(); ++current_) {
      if (parts_[current_]->next(exchange)) return true;
    }
    return false;
  }
  void receive(std::span<const Arrival> from) override { parts_[current_]->receive(from); }

 private:
  const std::vector<ListedTensor> list_;
  std::vector<std::unique_ptr<Collective>> parts_;
  size_t current_ = 0;
};

CallRecord record_of(CollectiveKind kind, const Tensor& tensor, int root = -1, ReduceKind reduce = ReduceKind::sum) {
  CallRecord record;
  record.kind = kind;
  record.root = root;
  record.reduce = reduce;
  record.describe_tensor(tensor.dtype(), tensor.extents());
  return record;
}

std::vector<ListedTensor> list_of(Tensors tensors) {
  std::vector<ListedTensor> list;
  for (const Tensor& t : tensors) list.push_back({t.dtype(), t.extents()});
  return list;
}

bool all_equal_sizes(Tensors tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.numel() == tensors[0].numel(); });
}

template <class Dense>
std::vector<Dense> dense(Tensors tensors) {
  std::vector<Dense> result;
  result.reserve(tensors.size());
  for (const Tensor& t : tensors) result.emplace_back(t);
  return result;
}

bool needs_equal_sizes(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::broadcast: case CollectiveKind::all_reduce: case CollectiveKind::all_reduce_coalesced:
    case CollectiveKind::reduce: case CollectiveKind::all_gather_single: case CollectiveKind::all_gather_single_coalesced:
    case CollectiveKind::gather: case CollectiveKind::scatter: case CollectiveKind::reduce_scatter_single:
    case CollectiveKind::reduce_scatter_single_coalesced: case CollectiveKind::all_to_all_single:
      return true;
    default:
      return false;
  }
}

void check_coalesced(const char* op, Tensors outputs, Tensors inputs) {
  TUTTI_CHECK(!inputs.empty(), "{}: no tensors given", op);
  TUTTI_CHECK(outputs.size() == inputs.size(), "{}: {} outputs for {} inputs", op, outputs.size(), inputs.size());
}

}  // namespace

TransportBackend::TransportBackend(std::unique_ptr<Transport> transport, const GroupLabel& group, std::chrono::milliseconds timeout)
    : queue_(std::make_shared<CallQueue>(std::move(transport), group)),
      traits_(queue_->transport().traits()),
      rank_(queue_->transport().rank()),
      size_(queue_->transport().size()),
      timeout_ms_(timeout.count()) {}

std::chrono::milliseconds TransportBackend::timeout_of(const CallOptions& options) const {
  const auto timeout = options.timeout.value_or(std::chrono::milliseconds(timeout_ms_.load(std::memory_order_relaxed)));
  checks::timeout("a call", timeout);
  return timeout;
}

void TransportBackend::set_timeout(std::chrono::milliseconds timeout) {
  checks::timeout("set_timeout", timeout);
  timeout_ms_.store(timeout.count());
}

Answer TransportBackend::can(const CallQuery& query) const {
  if (std::find(traits_.devices.begin(), traits_.devices.end(), query.device.kind) == traits_.devices.end()) {
    return {false, fmt::format("transport {} has no tensors on {}", traits_.name, to_string(query.device))};
  }
  switch (query.kind) {
    case CollectiveKind::all_reduce: case CollectiveKind::all_reduce_coalesced: case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter: case CollectiveKind::reduce_scatter_v:
    case CollectiveKind::reduce_scatter_single: case CollectiveKind::reduce_scatter_single_coalesced: {
      const std::string why = why_not_reducible(query.reduce, query.dtype);
      if (!why.empty()) return {false, why};
      break;
    }
    default:
      break;
  }
  if (query.uneven && needs_equal_sizes(query.kind)) {
    return {false, fmt::format("{} needs equal sizes on all ranks", comm::name_of(query.kind))};
  }
  return {};
}

// ---- launching ------------------------------------------------------------------------------------------------------

// A blocking call runs from here with kept objects; an asynchronous one gets objects of its own.
template <class C, class Begin>
Work TransportBackend::launch(C Reusable::*kept, const CallOptions& options, Tensors results, const Begin& begin) {
  const auto timeout = timeout_of(options);
  if (options.async || reusable_.taken.exchange(true, std::memory_order_acquire)) {
    auto own = std::make_unique<C>();
    begin(*own);
    own->record.splits = options.agreement;
    auto state = std::make_shared<CollectiveState>(queue_, std::move(own), timeout, std::vector<Tensor>(results.begin(), results.end()));
    queue_->submit(state);
    Work work(std::move(state));
    if (options.async) return work;
    work.wait();
    return {};
  }
  struct Release {
    std::atomic<bool>& taken;
    C& collective;
    ~Release() {
      collective.forget();
      taken.store(false, std::memory_order_release);
    }
  } release{reusable_.taken, reusable_.*kept};
  C& collective = reusable_.*kept;
  begin(collective);
  collective.record.splits = options.agreement;
  Call call(timeout);
  call.collective = &collective;
  queue_->run(call);
  return {};
}

Work TransportBackend::sequence(const CallRecord& record, std::vector<ListedTensor> list, std::vector<std::unique_ptr<Collective>> parts,
                                const CallOptions& options, Tensors results) {
  auto state = std::make_shared<CollectiveState>(queue_, std::make_unique<Sequence>(record, std::move(list), std::move(parts)), timeout_of(options),
                                                 std::vector<Tensor>(results.begin(), results.end()));
  queue_->submit(state);
  Work work(std::move(state));
  if (!options.async) work.wait();
  return work;
}

// The refusal has the number of the call it stands for. This rank throws its own error soon, even when the others are still on
// their way to the call; those that are waiting in it are answered first, in case this rank ends with its error.
void TransportBackend::refuse(CollectiveKind kind, std::string_view why) {
  if (size_ == 1) return;
  CallRecord call;
  call.kind = kind;
  const auto state = std::make_shared<CollectiveState>(queue_, make_refusal(call, queue_->group(), rank_, size_, std::string(why)),
                                                       std::chrono::milliseconds(timeout_ms_.load(std::memory_order_relaxed)), std::vector<Tensor>());
  queue_->submit(state);
  queue_->wait(*state, kTimeToRefuse);
}

// ---- moving ---------------------------------------------------------------------------------------------------------

Work TransportBackend::broadcast(const Tensor& tensor, int root, const CallOptions& options) {
  checks::root("broadcast", root, size_);
  if (rank_ == root) checks::tensor("broadcast", "input", tensor);
  else checks::writable("broadcast", "output", tensor);
  return move(options, {&tensor, 1}, [&](Move& m) {
    m.begin(record_of(CollectiveKind::broadcast, tensor, root), rank_, size_);
    if (rank_ == root) m.offer(DenseInput(tensor));
    else m.take_from(root, DenseOutput(tensor));
  });
}

Work TransportBackend::all_gather(Tensors outputs, const Tensor& input, const CallOptions& options) {
  checks::list_length("all_gather", "output", outputs.size(), size_);
  checks::tensor("all_gather", "input", input);
  for (const Tensor& output : outputs) {
    checks::writable("all_gather", "output", output);
    checks::same_dtype("all_gather", input, output);
  }
  checks::same_numel("all_gather", "input", input, "own output", outputs[static_cast<size_t>(rank_)]);
  const bool uneven = !all_equal_sizes(outputs);
  return move(options, outputs, [&](Move& m) {
    CallRecord record = record_of(uneven ? CollectiveKind::all_gather_v : CollectiveKind::all_gather, input);
    record.same_sizes = !uneven;
    m.begin(record, rank_, size_);
    m.offer(DenseInput(input));
    m.take_list(dense<DenseOutput>(outputs));
  });
}

Work TransportBackend::all_gather_single(const Tensor& output, const Tensor& input, const CallOptions& options) {
  checks::tensor("all_gather_single", "input", input);
  checks::writable("all_gather_single", "output", output);
  checks::same_dtype("all_gather_single", input, output);
  checks::numel_times("all_gather_single", "output", output, "input", input, size_);
  return move(options, {&output, 1}, [&](Move& m) {
    m.begin(record_of(CollectiveKind::all_gather_single, input), rank_, size_);
    m.offer(DenseInput(input));
    m.take_parts(DenseOutput(output), input.nbytes());
  });
}

Work TransportBackend::all_gather_single_coalesced(Tensors outputs, Tensors inputs, const CallOptions& options) {
  check_coalesced("all_gather_single_coalesced", outputs, inputs);
  std::vector<std::unique_ptr<Collective>> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    checks::tensor("all_gather_single_coalesced", "input", inputs[i]);
    checks::writable("all_gather_single_coalesced", "output", outputs[i]);
    checks::same_dtype("all_gather_single_coalesced", inputs[i], outputs[i]);
    checks::numel_times("all_gather_single_coalesced", "output", outputs[i], "input", inputs[i], size_);
    auto part = std::make_unique<Move>();
    part->begin({}, rank_, size_);
    part->offer(DenseInput(inputs[i]));
    part->take_parts(DenseOutput(outputs[i]), inputs[i].nbytes());
    parts.push_back(std::move(part));
  }
  return sequence(record_of(CollectiveKind::all_gather_single_coalesced, inputs[0]), list_of(inputs), std::move(parts), options, outputs);
}

// Where sizes differ between ranks, all must agree on the whole table of them: each rank lists the lengths of its outputs.
Work TransportBackend::all_gather_coalesced(std::span<const std::vector<Tensor>> outputs, Tensors inputs, const CallOptions& options) {
  CallRecord record = record_of(CollectiveKind::all_gather_coalesced, inputs[0]);
  std::vector<std::unique_ptr<Collective>> parts;
  std::vector<Tensor> results;
  std::vector<ListedTensor> lengths;
  for (size_t i = 0; i < inputs.size(); ++i) {
    record.same_sizes = record.same_sizes && all_equal_sizes(outputs[i]);
    auto part = std::make_unique<Move>();
    part->begin({}, rank_, size_);
    part->offer(DenseInput(inputs[i]));
    part->take_list(dense<DenseOutput>(outputs[i]));
    parts.push_back(std::move(part));
    for (const Tensor& output : outputs[i]) {
      results.push_back(output);
      lengths.push_back({output.dtype(), {output.numel()}});
    }
  }
  return sequence(record, record.same_sizes ? list_of(inputs) : std::move(lengths), std::move(parts), options, results);
}

Work TransportBackend::gather(Tensors outputs, const Tensor& input, int root, const CallOptions& options) {
  checks::root("gather", root, size_);
  checks::tensor("gather", "input", input);
  if (rank_ != root) {
    TUTTI_CHECK(outputs.empty(), "gather: rank {} gives {} outputs, but only root {} takes any", rank_, outputs.size(), root);
  } else {
    checks::list_length("gather", "output", outputs.size(), size_);
    for (const Tensor& output : outputs) {
      checks::writable("gather", "output", output);
      checks::same_dtype("gather", input, output);
      checks::same_numel("gather", "input", input, "output", output);
    }
  }
  return move(options, outputs, [&](Move& m) {
    m.begin(record_of(CollectiveKind::gather, input, root), rank_, size_);
    m.offer_to(root, DenseInput(input));
    if (rank_ == root) m.take_list(dense<DenseOutput>(outputs));
  });
}

Work TransportBackend::scatter(const Tensor& output, Tensors inputs, int root, const CallOptions& options) {
  checks::root("scatter", root, size_);
  checks::writable("scatter", "output", output);
  if (rank_ != root) {
    TUTTI_CHECK(inputs.empty(), "scatter: rank {} gives {} inputs, but only root {} gives any", rank_, inputs.size(), root);
  } else {
    checks::list_length("scatter", "input", inputs.size(), size_);
    for (const Tensor& input : inputs) {
      checks::tensor("scatter", "input", input);
      checks::same_dtype("scatter", output, input);
      checks::same_numel("scatter", "input", input, "output", output);
    }
  }
  return move(options, {&output, 1}, [&](Move& m) {
    m.begin(record_of(CollectiveKind::scatter, output, root), rank_, size_);
    if (rank_ == root) m.offer_list(dense<DenseInput>(inputs));
    m.take_from(root, DenseOutput(output));
  });
}

Work TransportBackend::all_to_all(Tensors outputs, Tensors inputs, const CallOptions& options) {
  checks::list_length("all_to_all", "output", outputs.size(), size_);
  checks::list_length("all_to_all", "input", inputs.size(), size_);
  for (const Tensor& input : inputs) checks::tensor("all_to_all", "input", input);
  for (const Tensor& output : outputs) {
    checks::writable("all_to_all", "output", output);
    checks::same_dtype("all_to_all", inputs[0], output);
  }
  for (const Tensor& input : inputs) checks::same_dtype("all_to_all", inputs[0], input);
  return move(options, outputs, [&](Move& m) {
    CallRecord record = record_of(CollectiveKind::all_to_all, inputs[static_cast<size_t>(rank_)]);
    record.same_sizes = false;
    m.begin(record, rank_, size_);
    m.offer_list(dense<DenseInput>(inputs));
    m.take_list(dense<DenseOutput>(outputs));
  });
}

Work TransportBackend::all_to_all_single(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                                         const CallOptions& options) {
  const bool uneven = !output_splits.empty() || !input_splits.empty();
  const char* op = uneven ? "all_to_all_v_single" : "all_to_all_single";
  checks::tensor(op, "input", input);
  checks::writable(op, "output", output);
  checks::same_dtype(op, input, output);
  if (!uneven) checks::same_numel(op, "input", input, "output", output);
  std::vector<int64_t> offers = checks::split_bytes(op, "input", input, input_splits, size_);
  std::vector<int64_t> takes = checks::split_bytes(op, "output", output, output_splits, size_);
  return move(options, {&output, 1}, [&](Move& m) {
    CallRecord record = record_of(uneven ? CollectiveKind::all_to_all_v_single : CollectiveKind::all_to_all_single, input);
    record.same_sizes = !uneven;
    m.begin(record, rank_, size_);
    m.offer_parts(DenseInput(input), std::move(offers));
    m.take_parts(DenseOutput(output), std::move(takes));
  });
}

Work TransportBackend::barrier(const CallOptions& options) {
  return move(options, {}, [&](Move& m) { m.begin({.kind = CollectiveKind::barrier}, rank_, size_); });
}

// ---- reducing -------------------------------------------------------------------------------------------------------

Work TransportBackend::all_reduce(const Tensor& tensor, const ReduceOp& op, const CallOptions& options) {
  checks::writable("all_reduce", "input", tensor);
  checks::reducible("all_reduce", op, tensor.dtype());
  return reduction(options, {&tensor, 1}, [&](Reduction& r) {
    r.begin_reduce(record_of(CollectiveKind::all_reduce, tensor, -1, op.kind()), traits_, rank_, size_, tensor, op, -1);
  });
}

Work TransportBackend::all_reduce_coalesced(Tensors tensors, const ReduceOp& op, const CallOptions& options) {
  TUTTI_CHECK(!tensors.empty(), "all_reduce_coalesced: no tensors given");
  std::vector<std::unique_ptr<Collective>> parts;
  for (const Tensor& tensor : tensors) {
    checks::writable("all_reduce_coalesced", "input", tensor);
    checks::reducible("all_reduce_coalesced", op, tensor.dtype());
    auto part = std::make_unique<Reduction>();
    part->begin_reduce({}, traits_, rank_, size_, tensor, op, -1);
    parts.push_back(std::move(part));
  }
  return sequence(record_of(CollectiveKind::all_reduce_coalesced, tensors[0], -1, op.kind()), list_of(tensors), std::move(parts), options, tensors);
}

Work TransportBackend::reduce(const Tensor& tensor, int root, const ReduceOp& op, const CallOptions& options) {
  checks::root("reduce", root, size_);
  if (rank_ == root) checks::writable("reduce", "input", tensor);
  else checks::tensor("reduce", "input", tensor);
  checks::reducible("reduce", op, tensor.dtype());
  return reduction(options, {&tensor, 1}, [&](Reduction& r) {
    r.begin_reduce(record_of(CollectiveKind::reduce, tensor, root, op.kind()), traits_, rank_, size_, tensor, op, root);
  });
}

Work TransportBackend::reduce_scatter(const Tensor& output, Tensors inputs, const ReduceOp& op, const CallOptions& options) {
  checks::list_length("reduce_scatter", "input", inputs.size(), size_);
  checks::writable("reduce_scatter", "output", output);
  checks::reducible("reduce_scatter", op, output.dtype());
  for (const Tensor& input : inputs) {
    checks::tensor("reduce_scatter", "input", input);
    checks::same_dtype("reduce_scatter", output, input);
  }
  checks::same_numel("reduce_scatter", "own input", inputs[static_cast<size_t>(rank_)], "output", output);
  const bool uneven = !all_equal_sizes(inputs);
  return reduction(options, {&output, 1}, [&](Reduction& r) {
    CallRecord record = record_of(uneven ? CollectiveKind::reduce_scatter_v : CollectiveKind::reduce_scatter, output, -1, op.kind());
    record.same_sizes = !uneven;
    r.begin_scatter(record, rank_, size_, output, dense<DenseInput>(inputs), op);
  });
}

Work TransportBackend::reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op, const CallOptions& options) {
  checks::tensor("reduce_scatter_single", "input", input);
  checks::writable("reduce_scatter_single", "output", output);
  checks::same_dtype("reduce_scatter_single", input, output);
  checks::numel_times("reduce_scatter_single", "input", input, "output", output, size_);
  checks::reducible("reduce_scatter_single", op, output.dtype());
  return reduction(options, {&output, 1}, [&](Reduction& r) {
    r.begin_scatter_parts(record_of(CollectiveKind::reduce_scatter_single, output, -1, op.kind()), rank_, size_, output, input, op);
  });
}

Work TransportBackend::reduce_scatter_single_coalesced(Tensors outputs, Tensors inputs, const ReduceOp& op, const CallOptions& options) {
  const char* name = "reduce_scatter_single_coalesced";
  check_coalesced(name, outputs, inputs);
  std::vector<std::unique_ptr<Collective>> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    checks::tensor(name, "input", inputs[i]);
    checks::writable(name, "output", outputs[i]);
    checks::same_dtype(name, inputs[i], outputs[i]);
    checks::numel_times(name, "input", inputs[i], "output", outputs[i], size_);
    checks::reducible(name, op, outputs[i].dtype());
    auto part = std::make_unique<Reduction>();
    part->begin_scatter_parts({}, rank_, size_, outputs[i], inputs[i], op);
    parts.push_back(std::move(part));
  }
  return sequence(record_of(CollectiveKind::reduce_scatter_single_coalesced, outputs[0], -1, op.kind()), list_of(outputs), std::move(parts), options, outputs);
}

// ---- messages -------------------------------------------------------------------------------------------------------

Work TransportBackend::messages(const CallRecord& record, std::span<const PointToPoint> operations, const CallOptions& options) {
  auto state = std::make_shared<MessageState>(queue_, operations, record, timeout_of(options));
  queue_->submit(std::shared_ptr<MessageCall>(state));
  Work work(std::move(state));
  if (!options.async) work.wait();
  return work;
}

Work TransportBackend::send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) {
  checks::peer("send", peer, rank_, size_, false);
  checks::tensor("send", "input", tensor);
  CallRecord record = record_of(CollectiveKind::send, tensor, peer);
  record.tag = tag;
  const PointToPoint operation{PointToPoint::Kind::isend, tensor, peer, tag};
  return messages(record, {&operation, 1}, options);
}

Work TransportBackend::recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) {
  checks::peer("recv", peer, rank_, size_, true);
  checks::writable("recv", "output", tensor);
  TUTTI_CHECK(peer >= 0 || traits_.receives_from_any, "recv: transport {} cannot receive from any rank; name the peer", traits_.name);
  CallRecord record = record_of(CollectiveKind::recv, tensor, peer);
  record.tag = tag;
  const PointToPoint operation{PointToPoint::Kind::irecv, tensor, peer, tag};
  return messages(record, {&operation, 1}, options);
}

Work TransportBackend::batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& options) {
  TUTTI_CHECK(!operations.empty(), "batch_isend_irecv: the list of operations is empty");
  for (const PointToPoint& operation : operations) {
    const bool is_send = operation.kind == PointToPoint::Kind::isend;
    checks::peer("batch_isend_irecv", operation.peer, rank_, size_, false);
    if (is_send) checks::tensor("batch_isend_irecv", "input", operation.tensor);
    else checks::writable("batch_isend_irecv", "output", operation.tensor);
  }
  const PointToPoint& first = operations[0];
  CallRecord record = record_of(first.kind == PointToPoint::Kind::isend ? CollectiveKind::send : CollectiveKind::recv, first.tensor, first.peer);
  record.tag = first.tag;
  record.tensors = static_cast<int32_t>(operations.size());
  return messages(record, operations, options);
}

}  // namespace tutti::comm
