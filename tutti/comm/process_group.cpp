#include "tutti/comm/process_group.h"

#include <algorithm>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/call_queue.h"
#include "tutti/comm/collective_def.h"
#include "tutti/core/error.h"
#include "tutti/diagnose/finite_check.h"

namespace tutti::comm {
namespace {

constexpr uint32_t kMaxTag = 1u << 31;

void check_tag(const char* op, uint32_t tag) {
  TUTTI_CHECK(tag < kMaxTag, "{}: tag {}; legal: 0 to {}", op, tag, kMaxTag - 1);
}

std::string_view name_of(DeviceKind kind) {
  static thread_local std::string text;
  text = to_string(Device{.kind = kind, .index = 0});
  text = text.substr(0, text.find(':'));
  return text;
}

}  // namespace

ProcessGroup::ProcessGroup(std::string name, std::string key, int rank, std::vector<int> world_ranks,
                           std::shared_ptr<Store> store)
    : name_(std::move(name)),
      key_(std::move(key)),
      rank_(rank),
      world_ranks_(std::move(world_ranks)),
      store_(std::move(store)) {
  TUTTI_CHECK(rank >= 0 && rank < size(), "process group '{}': rank {} of {} members", name_, rank, size());
}

ProcessGroup::~ProcessGroup() {
  if (!process_.is_in_child()) return;
  // The transports' threads are not here, and their connections and pages are the parent's.
  ForkGuard::keep(std::make_shared<decltype(backends_)>(std::move(backends_)));
  ForkGuard::keep(std::make_shared<symm::SymmGroup>(std::move(symm_)));
}

void ProcessGroup::check_process() const {
  if (process_.is_in_child()) [[unlikely]]
    process_.check(fmt::format("process group '{}'", name_));
}

int ProcessGroup::group_rank_of(int world_rank) const {
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  TUTTI_CHECK(found != world_ranks_.end(), "world rank {} is no member of group '{}'", world_rank, name_);
  return static_cast<int>(found - world_ranks_.begin());
}

// ---- backends -------------------------------------------------------------------------------------------------------

void ProcessGroup::set_backend(DeviceKind kind, std::shared_ptr<Backend> backend) {
  TUTTI_CHECK(backend != nullptr && backend->rank() == rank_ && backend->size() == size(),
              "process group '{}': the backend for {} is not one of rank {} of {}", name_, name_of(kind), rank_,
              size());
  if (kind == DeviceKind::cpu) cpu_ = backend.get();
  backends_[kind] = std::move(backend);
}

Backend& ProcessGroup::backend(DeviceKind kind) const {
  check_process();
  if (kind == DeviceKind::cpu && cpu_ != nullptr) return *cpu_;
  const auto found = backends_.find(kind);
  TUTTI_CHECK(found != backends_.end(),
              "process group '{}' has no backend for tensors on {}; set_backend() gives it one", name_, name_of(kind));
  return *found->second;
}

Backend& ProcessGroup::backend_for(const char* op, const Tensor& tensor) const {
  TUTTI_CHECK(tensor.defined(), "{}: a tensor is undefined", op);
  return backend(tensor.device().kind);
}

Backend& ProcessGroup::backend_for(const CollectiveDef& def, const CollectiveCall& call) const {
  if (def.outputs == Given::none && def.inputs == Given::none) {
    check_process();
    TUTTI_CHECK(!backends_.empty(), "{}: group '{}' has no backend", def.name, name_);
    return cpu_ != nullptr ? *cpu_ : *backends_.begin()->second;
  }
  const Tensor* tensor = described_tensor(def, call, {rank_, size()});
  TUTTI_CHECK(tensor != nullptr, "{}: no tensors given", def.name);
  return backend_for(def.name, *tensor);
}

void ProcessGroup::inspect(const CollectiveDef& def, const CollectiveCall& call) const {
  if (def.in_place == InPlace::no) inspect(call.kind, call.inputs);
  else if (reads_outputs(def, call, rank_)) inspect(call.kind, call.outputs);
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
  if (backends_.empty() || !health().ok) return;  // also in a fork()ed child
  (cpu_ != nullptr ? *cpu_ : *backends_.begin()->second).refuse(kind, why);
}

Answer ProcessGroup::can(const CallQuery& query) const {
  const auto found = backends_.find(query.device.kind);
  if (found == backends_.end())
    return {false, fmt::format("group '{}' has no backend for tensors on {}", name_, name_of(query.device.kind))};
  return found->second->can(query);
}

// ---- collectives ----------------------------------------------------------------------------------------------------

Work ProcessGroup::run(const CollectiveCall& call) {
  return checked(call.kind, [&] {
    const CollectiveDef& def = definition_of(call);
    inspect(def, call);
    return backend_for(def, call).run(call);
  });
}

Work ProcessGroup::gather_single(const Tensor& output, const Tensor& input, int root, const CallOptions& options) {
  return checked(CollectiveKind::gather, [&] {
    std::vector<Tensor> parts;
    if (rank_ == root) {
      checks::writable("gather_single", "output", output, input.device());
      checks::numel_times("gather_single", "output", output, "input", input, size());
      TUTTI_CHECK(output.ndim() > 0 && output.extents()[0] % size() == 0,
                  "gather_single: dim 0 of the output {} does not divide into {} equal parts", describe(output),
                  size());
      Extents sizes = output.extents();
      sizes[0] /= size();
      for (int p = 0; p < size(); ++p) {
        parts.push_back(output.view_as(sizes, output.strides(), output.offset() + p * sizes[0] * output.strides()[0]));
      }
    }
    return gather(parts, input, root, options);
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
  check_process();
  for (const auto& [kind, backend] : backends_) backend->abort(reason);
  for (const auto& lane : lanes_so_far()) lane->abort(reason);
}

std::vector<std::shared_ptr<ProcessGroup>> ProcessGroup::lanes_so_far() const {
  const std::lock_guard lock(lanes_mutex_);
  return lanes_;
}

Health ProcessGroup::health() const {
  if (process_.is_in_child()) return {.ok = false, .failure = process_.text(fmt::format("process group '{}'", name_))};
  for (const auto& [kind, backend] : backends_) {
    std::string failure = backend->failure();
    if (!failure.empty()) return {.ok = false, .failure = std::move(failure)};
  }
  for (const auto& lane : lanes_so_far()) {
    if (Health of_lane = lane->health(); !of_lane.ok) return of_lane;
  }
  return {};
}

void ProcessGroup::set_timeout(std::chrono::milliseconds timeout) {
  check_process();
  checks::timeout(fmt::format("set_timeout of group '{}'", name_), timeout);
  for (const auto& [kind, backend] : backends_) backend->set_timeout(timeout);
  for (const auto& lane : lanes_so_far()) lane->set_timeout(timeout);
}

void ProcessGroup::set_check_nan(bool on) {
  check_nan_ = on;
  for (const auto& lane : lanes_so_far()) lane->set_check_nan(on);
}

std::chrono::milliseconds ProcessGroup::timeout() const {
  return cpu_ != nullptr ? cpu_->timeout() : backends_.begin()->second->timeout();
}

}  // namespace tutti::comm
