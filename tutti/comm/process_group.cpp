#include "tutti/comm/process_group.h"

#include <algorithm>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/call_queue.h"
#include "tutti/comm/recorder/finite_check.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr uint32_t kMaxTag = 1u << 31;

void check_tag(const char* op, uint32_t tag) { TUTTI_CHECK(tag < kMaxTag, "{}: tag {}; legal: 0 to {}", op, tag, kMaxTag - 1); }

std::string_view name_of(DeviceKind kind) {
  static thread_local std::string text;
  text = to_string(Device{.kind = kind, .index = 0});
  text = text.substr(0, text.find(':'));
  return text;
}

}  // namespace

ProcessGroup::ProcessGroup(std::string name, std::string key, int rank, std::vector<int> world_ranks, std::shared_ptr<Store> store)
    : name_(std::move(name)), key_(std::move(key)), rank_(rank), world_ranks_(std::move(world_ranks)), store_(std::move(store)) {
  TUTTI_CHECK(rank >= 0 && rank < size(), "process group '{}': rank {} of {} members", name_, rank, size());
}

ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::group_rank_of(int world_rank) const {
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  TUTTI_CHECK(found != world_ranks_.end(), "world rank {} is no member of group '{}'", world_rank, name_);
  return static_cast<int>(found - world_ranks_.begin());
}

// ---- backends -------------------------------------------------------------------------------------------------------

void ProcessGroup::set_backend(DeviceKind kind, std::shared_ptr<Backend> backend) {
  TUTTI_CHECK(backend != nullptr && backend->rank() == rank_ && backend->size() == size(),
              "process group '{}': the backend for {} is not one of rank {} of {}", name_, name_of(kind), rank_, size());
  if (kind == DeviceKind::cpu) cpu_ = backend.get();
  backends_[kind] = std::move(backend);
}

Backend& ProcessGroup::backend(DeviceKind kind) const {
  if (kind == DeviceKind::cpu && cpu_ != nullptr) return *cpu_;
  const auto found = backends_.find(kind);
  TUTTI_CHECK(found != backends_.end(), "process group '{}' has no backend for tensors on {}; set_backend() gives it one", name_,
              name_of(kind));
  return *found->second;
}

Backend& ProcessGroup::backend_for(const char* op, const Tensor& tensor) const {
  TUTTI_CHECK(tensor.defined(), "{}: a tensor is undefined", op);
  return backend(tensor.device().kind);
}

Backend& ProcessGroup::backend_for(const char* op, Tensors tensors) const {
  TUTTI_CHECK(!tensors.empty(), "{}: no tensors given", op);
  return backend_for(op, tensors[0]);
}

void ProcessGroup::inspect(CollectiveKind kind, Tensors inputs) const {
  if (!check_nan_.load(std::memory_order_relaxed)) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;  // the backend says so
    CallRecord record;
    record.kind = kind;
    record.describe_tensor(inputs[i].dtype(), inputs[i].extents());
    check_finite_before(inputs[i], inputs.size() == 1 ? "input" : fmt::format("input {}", i), record, rank_, name_);
  }
}

int64_t ProcessGroup::collectives_made() { return CallQueue::collectives_of_thread(); }

void ProcessGroup::refuse(CollectiveKind kind, std::string_view why) {
  if (backends_.empty() || !health().ok) return;
  (cpu_ != nullptr ? *cpu_ : *backends_.begin()->second).refuse(kind, why);
}

Answer ProcessGroup::can(const CallQuery& query) const {
  const auto found = backends_.find(query.device.kind);
  if (found == backends_.end()) return {false, fmt::format("group '{}' has no backend for tensors on {}", name_, name_of(query.device.kind))};
  return found->second->can(query);
}

// ---- collectives ----------------------------------------------------------------------------------------------------

Work ProcessGroup::broadcast(const Tensor& tensor, int root, const CallOptions& options) {
  return checked(CollectiveKind::broadcast, [&] {
    if (rank_ == root) inspect(CollectiveKind::broadcast, tensor);
    return backend_for("broadcast", tensor).broadcast(tensor, root, options);
  });
}

Work ProcessGroup::all_reduce(const Tensor& tensor, const ReduceOp& op, const CallOptions& options) {
  return checked(CollectiveKind::all_reduce, [&] {
    inspect(CollectiveKind::all_reduce, tensor);
    return backend_for("all_reduce", tensor).all_reduce(tensor, op, options);
  });
}

Work ProcessGroup::all_reduce_coalesced(Tensors tensors, const ReduceOp& op, const CallOptions& options) {
  return checked(CollectiveKind::all_reduce_coalesced, [&] {
    inspect(CollectiveKind::all_reduce_coalesced, tensors);
    return backend_for("all_reduce_coalesced", tensors).all_reduce_coalesced(tensors, op, options);
  });
}

Work ProcessGroup::reduce(const Tensor& tensor, int root, const ReduceOp& op, const CallOptions& options) {
  return checked(CollectiveKind::reduce, [&] {
    inspect(CollectiveKind::reduce, tensor);
    return backend_for("reduce", tensor).reduce(tensor, root, op, options);
  });
}

Work ProcessGroup::all_gather(Tensors outputs, const Tensor& input, const CallOptions& options) {
  return checked(CollectiveKind::all_gather, [&] {
    inspect(CollectiveKind::all_gather, input);
    return backend_for("all_gather", input).all_gather(outputs, input, options);
  });
}

Work ProcessGroup::all_gather_v(Tensors outputs, const Tensor& input, const CallOptions& options) {
  return all_gather(outputs, input, options);
}

Work ProcessGroup::all_gather_single(const Tensor& output, const Tensor& input, const CallOptions& options) {
  return checked(CollectiveKind::all_gather_single, [&] {
    checks::own_slice("all_gather_single", output, input, rank_, size());
    inspect(CollectiveKind::all_gather_single, input);
    return backend_for("all_gather_single", input).all_gather_single(output, input, options);
  });
}

Work ProcessGroup::all_gather_single_coalesced(Tensors outputs, Tensors inputs, const CallOptions& options) {
  return checked(CollectiveKind::all_gather_single_coalesced, [&] {
    for (size_t i = 0; i < std::min(inputs.size(), outputs.size()); ++i) {
      checks::own_slice("all_gather_single_coalesced", outputs[i], inputs[i], rank_, size());
    }
    inspect(CollectiveKind::all_gather_single_coalesced, inputs);
    return backend_for("all_gather_single_coalesced", inputs).all_gather_single_coalesced(outputs, inputs, options);
  });
}

Work ProcessGroup::all_gather_coalesced(std::span<const std::vector<Tensor>> outputs, Tensors inputs, const CallOptions& options) {
  return checked(CollectiveKind::all_gather_coalesced, [&] {
    const char* op = "all_gather_coalesced";
    TUTTI_CHECK(!inputs.empty(), "{}: no tensors given", op);
    TUTTI_CHECK(outputs.size() == inputs.size(), "{}: {} lists of outputs for {} inputs", op, outputs.size(), inputs.size());
    Backend& backend = backend_for(op, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      checks::list_length(op, "output", outputs[i].size(), size());
      checks::tensor(op, "input", inputs[i], inputs[0].device());
      for (const Tensor& output : outputs[i]) {
        checks::writable(op, "output", output, inputs[0].device());
        checks::same_dtype(op, inputs[i], output);
      }
      checks::same_numel(op, "input", inputs[i], "own output", outputs[i][static_cast<size_t>(rank_)]);
    }
    inspect(CollectiveKind::all_gather_coalesced, inputs);
    return backend.all_gather_coalesced(outputs, inputs, options);
  });
}

Work ProcessGroup::gather(Tensors outputs, const Tensor& input, int root, const CallOptions& options) {
  return checked(CollectiveKind::gather, [&] {
    inspect(CollectiveKind::gather, input);
    return backend_for("gather", input).gather(outputs, input, root, options);
  });
}

Work ProcessGroup::gather_single(const Tensor& output, const Tensor& input, int root, const CallOptions& options) {
  return checked(CollectiveKind::gather, [&] {
    std::vector<Tensor> parts;
    if (rank_ == root) {
      checks::writable("gather_single", "output", output, input.device());
      checks::numel_times("gather_single", "output", output, "input", input, size());
      TUTTI_CHECK(output.ndim() > 0 && output.extents()[0] % size() == 0,
                  "gather_single: dim 0 of the output {} does not divide into {} equal parts", describe(output), size());
      Extents sizes = output.extents();
      sizes[0] /= size();
      for (int p = 0; p < size(); ++p) {
        parts.push_back(output.view_as(sizes, output.strides(), output.offset() + p * sizes[0] * output.strides()[0]));
      }
    }
    return gather(parts, input, root, options);
  });
}

Work ProcessGroup::scatter(const Tensor& output, Tensors inputs, int root, const CallOptions& options) {
  return checked(CollectiveKind::scatter, [&] {
    inspect(CollectiveKind::scatter, inputs);
    return backend_for("scatter", output).scatter(output, inputs, root, options);
  });
}

Work ProcessGroup::reduce_scatter(const Tensor& output, Tensors inputs, const ReduceOp& op, const CallOptions& options) {
  return checked(CollectiveKind::reduce_scatter, [&] {
    inspect(CollectiveKind::reduce_scatter, inputs);
    return backend_for("reduce_scatter", output).reduce_scatter(output, inputs, op, options);
  });
}

Work ProcessGroup::reduce_scatter_v(const Tensor& output, Tensors inputs, const ReduceOp& op, const CallOptions& options) {
  return reduce_scatter(output, inputs, op, options);
}

Work ProcessGroup::reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op, const CallOptions& options) {
  return checked(CollectiveKind::reduce_scatter_single, [&] {
    inspect(CollectiveKind::reduce_scatter_single, input);
    return backend_for("reduce_scatter_single", input).reduce_scatter_single(output, input, op, options);
  });
}

Work ProcessGroup::reduce_scatter_single_coalesced(Tensors outputs, Tensors inputs, const ReduceOp& op, const CallOptions& options) {
  return checked(CollectiveKind::reduce_scatter_single_coalesced, [&] {
    inspect(CollectiveKind::reduce_scatter_single_coalesced, inputs);
    return backend_for("reduce_scatter_single_coalesced", inputs).reduce_scatter_single_coalesced(outputs, inputs, op, options);
  });
}

Work ProcessGroup::all_to_all(Tensors outputs, Tensors inputs, const CallOptions& options) {
  return checked(CollectiveKind::all_to_all, [&] {
    inspect(CollectiveKind::all_to_all, inputs);
    return backend_for("all_to_all", inputs).all_to_all(outputs, inputs, options);
  });
}

Work ProcessGroup::all_to_all_single(const Tensor& output, const Tensor& input, const CallOptions& options) {
  return checked(CollectiveKind::all_to_all_single, [&] {
    inspect(CollectiveKind::all_to_all_single, input);
    return backend_for("all_to_all_single", input).all_to_all_single(output, input, {}, {}, options);
  });
}

Work ProcessGroup::all_to_all_v_single(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                                       const CallOptions& options) {
  return checked(CollectiveKind::all_to_all_v_single, [&] {
    inspect(CollectiveKind::all_to_all_v_single, input);
    return backend_for("all_to_all_v_single", input).all_to_all_single(output, input, output_splits, input_splits, options);
  });
}

Work ProcessGroup::barrier(const CallOptions& options) {
  return checked(CollectiveKind::barrier, [&] {
    TUTTI_CHECK(!backends_.empty(), "barrier: group '{}' has no backend", name_);
    return (cpu_ != nullptr ? *cpu_ : *backends_.begin()->second).barrier(options);
  });
}

// ---- messages -------------------------------------------------------------------------------------------------------

Work ProcessGroup::send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) {
  inspect(CollectiveKind::send, tensor);
  check_tag("send", tag);
  return backend_for("send", tensor).send(tensor, peer, tag, options);
}

Work ProcessGroup::recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) {
  check_tag("recv", tag);
  TUTTI_CHECK(peer >= 0, "recv: peer {}; use recv_any to take a message from any rank", peer);
  return backend_for("recv", tensor).recv(tensor, peer, tag, options);
}

Work ProcessGroup::recv_any(const Tensor& tensor, uint32_t tag, const CallOptions& options) {
  check_tag("recv_any", tag);
  return backend_for("recv_any", tensor).recv(tensor, -1, tag, options);
}

Work ProcessGroup::batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& options) {
  TUTTI_CHECK(!operations.empty(), "batch_isend_irecv: the list of operations is empty");
  for (const PointToPoint& operation : operations) check_tag("batch_isend_irecv", operation.tag);
  return backend_for("batch_isend_irecv", operations[0].tensor).batch_isend_irecv(operations, options);
}

// ---- failing --------------------------------------------------------------------------------------------------------

void ProcessGroup::abort(std::string_view reason) {
  for (const auto& [kind, backend] : backends_) backend->abort(reason);
}

Health ProcessGroup::health() const {
  for (const auto& [kind, backend] : backends_) {
    std::string failure = backend->failure();
    if (!failure.empty()) return {.ok = false, .failure = std::move(failure)};
  }
  return {};
}

void ProcessGroup::set_timeout(std::chrono::milliseconds timeout) {
  checks::timeout(fmt::format("set_timeout of group '{}'", name_), timeout);
  for (const auto& [kind, backend] : backends_) backend->set_timeout(timeout);
}

}  // namespace tutti::comm
