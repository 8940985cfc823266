#include "tutti/comm/transport_backend.h"

#include <algorithm>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/call_states.h"
#include "tutti/comm/exchanges/list_inquiry.h"
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
  std::byte* place_of(int peer) override { return parts_[current_]->place_of(peer); }
  void receive(std::span<const Arrival> from) override { parts_[current_]->receive(from); }

 private:
  const std::vector<ListedTensor> list_;
  std::vector<std::unique_ptr<Collective>> parts_;
  size_t current_ = 0;
};

// A list of the tensors of a coalesced call in which the ranks must agree. Where sizes differ between ranks, all must
// agree on the whole table of them: each rank lists the lengths of its outputs.
std::vector<ListedTensor> list_of(const CollectiveDef& def, const CallRecord& record, const CollectiveCall& call) {
  std::vector<ListedTensor> list;
  if (!record.same_sizes) {
    for (const Tensor& t : results_of(call)) list.push_back({t.dtype(), {t.numel()}});
    return list;
  }
  for (const Tensor& t : def.described == TensorSide::input ? call.inputs : call.outputs)
    list.push_back({t.dtype(), t.extents()});
  return list;
}

CallRecord record_of_message(CollectiveKind kind, const Tensor& tensor, int peer, uint32_t tag) {
  CallRecord record;
  record.kind = kind;
  record.root = peer;
  record.tag = tag;
  record.describe_tensor(tensor.dtype(), tensor.extents());
  return record;
}

}  // namespace

TransportBackend::TransportBackend(std::unique_ptr<Transport> transport, const GroupLabel& group,
                                   std::chrono::milliseconds timeout)
    : queue_(std::make_shared<CallQueue>(std::move(transport), group)),
      traits_(queue_->transport().traits()),
      rank_(queue_->transport().rank()),
      size_(queue_->transport().size()),
      seat_{rank_, size_, kCpu},
      timeout_ms_(timeout.count()) {}

std::chrono::milliseconds TransportBackend::timeout_of(const CallOptions& options) const {
  const auto timeout = options.timeout.value_or(this->timeout());
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
  const CollectiveDef& def = definition(query.kind);
  if (std::string why = def.reduces ? why_not_reducible(query.reduce, query.dtype) : ""; !why.empty())
    return {false, std::move(why)};
  if (query.uneven && def.evenness == Evenness::equal)
    return {false, fmt::format("{} needs equal sizes on all ranks", def.name)};
  return {};
}

// ---- launching ------------------------------------------------------------------------------------------------------

Work TransportBackend::run(const CollectiveCall& call) {
  const CollectiveDef& def = definition_of(call);
  if (!def.has_exchanges()) unsupported(def.name);
  checks::arguments(def, call, seat_);
  const CallRecord record = record_of(def, call, seat_);
  if (def.each != nullptr) return start(make_sequence(def, record, call), call);
  const CallPart whole{call, seat_};
  if (auto over_hosts = make_over_hosts(def, record, whole)) {
    over_hosts->record.splits = call.options.agreement;
    return start(std::move(over_hosts), call);
  }
  if (def.move != nullptr) {
    return launch(&Reusable::move, call, [&](Move& m) {
      m.begin(record, rank_, size_);
      def.move(m, whole);
    });
  }
  if (def.reduction != nullptr)
    return launch(&Reusable::reduction, call, [&](Reduction& r) { def.reduction(r, record, whole, traits_); });
  auto own = def.make(record, whole);
  own->record.splits = call.options.agreement;
  return start(std::move(own), call);
}

// A blocking call runs from here with kept objects; an asynchronous one gets objects of its own.
template <class C, class Begin>
Work TransportBackend::launch(C Reusable::* kept, const CollectiveCall& call, const Begin& begin) {
  if (call.options.async || reusable_.taken.exchange(true, std::memory_order_acquire)) {
    auto own = std::make_unique<C>();
    begin(*own);
    own->record.splits = call.options.agreement;
    const Work work = start(std::move(own), call);
    return call.options.async ? work : Work();
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
  const auto timeout = timeout_of(call.options);
  begin(collective);
  collective.record.splits = call.options.agreement;
  Call blocking(timeout);
  blocking.collective = &collective;
  queue_->run(blocking);
  return {};
}

Work TransportBackend::start(std::unique_ptr<Collective> collective, const CollectiveCall& call) {
  auto state =
      std::make_shared<CollectiveState>(queue_, std::move(collective), timeout_of(call.options), results_of(call));
  queue_->submit(state);
  Work work(std::move(state));
  if (!call.options.async) work.wait();
  return work;
}

// Small tensors are better off with one round.
std::unique_ptr<Collective> TransportBackend::make_over_hosts(const CollectiveDef& def, const CallRecord& record,
                                                              const CallPart& part) const {
  if (def.over_hosts == nullptr || !traits_.hosts) return nullptr;
  const Tensor* described = described_tensor(def, part.call, seat_);
  return described->nbytes() <= traits_.one_round_bytes ? nullptr : def.over_hosts(record, part, *traits_.hosts);
}

std::unique_ptr<Collective> TransportBackend::make_one(const CollectiveDef& def, const CallRecord& record,
                                                       const CollectiveCall& call) const {
  const CallPart part{call, seat_};
  if (auto over_hosts = make_over_hosts(def, record, part)) return over_hosts;
  if (def.make != nullptr) return def.make(record, part);
  if (def.move != nullptr) {
    auto move = std::make_unique<Move>();
    move->begin(record, rank_, size_);
    def.move(*move, part);
    return move;
  }
  auto reduction = std::make_unique<Reduction>();
  def.reduction(*reduction, record, part, traits_);
  return reduction;
}

std::unique_ptr<Collective> TransportBackend::make_sequence(const CollectiveDef& def, const CallRecord& record,
                                                            const CollectiveCall& call) const {
  std::vector<std::unique_ptr<Collective>> parts;
  for (size_t i = 0; i < parts_of(def, call); ++i) parts.push_back(make_one(*def.each, {}, part_of(def, call, i)));
  return std::make_unique<Sequence>(record, list_of(def, record, call), std::move(parts));
}

// The refusal has the number of the call it stands for. This rank throws its own error soon, even when the others are
// still on their way to the call; those that are waiting in it are answered first, in case this rank ends with its
// error.
void TransportBackend::refuse(CollectiveKind kind, std::string_view why) {
  if (size_ == 1) return;
  CallRecord call;
  call.kind = kind;
  const auto state = std::make_shared<CollectiveState>(
      queue_, make_refusal(call, queue_->group(), rank_, size_, std::string(why)), timeout(), std::vector<Tensor>());
  queue_->submit(state);
  queue_->wait(*state, kTimeToRefuse);
}

// ---- messages -------------------------------------------------------------------------------------------------------

Work TransportBackend::messages(const CallRecord& record, std::span<const PointToPoint> operations,
                                const CallOptions& options) {
  auto state = std::make_shared<MessageState>(queue_, operations, record, timeout_of(options));
  queue_->submit(std::shared_ptr<MessageCall>(state));
  Work work(std::move(state));
  if (!options.async) work.wait();
  return work;
}

Work TransportBackend::send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) {
  checks::peer("send", peer, rank_, size_, false);
  checks::tensor("send", "input", tensor);
  const PointToPoint operation{PointToPoint::Kind::isend, tensor, peer, tag};
  return messages(record_of_message(CollectiveKind::send, tensor, peer, tag), {&operation, 1}, options);
}

Work TransportBackend::recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) {
  checks::peer("recv", peer, rank_, size_, true);
  checks::writable("recv", "output", tensor);
  TUTTI_CHECK(peer >= 0 || traits_.receives_from_any, "recv: transport {} cannot receive from any rank; name the peer",
              traits_.name);
  const PointToPoint operation{PointToPoint::Kind::irecv, tensor, peer, tag};
  return messages(record_of_message(CollectiveKind::recv, tensor, peer, tag), {&operation, 1}, options);
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
  const auto kind = first.kind == PointToPoint::Kind::isend ? CollectiveKind::send : CollectiveKind::recv;
  CallRecord record = record_of_message(kind, first.tensor, first.peer, first.tag);
  record.tensors = static_cast<int32_t>(operations.size());
  return messages(record, operations, options);
}

}  // namespace tutti::comm
