#include "tutti/comm/call_queue.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "tutti/comm/call_mismatch.h"
#include "tutti/core/error.h"
#include "tutti/runtime/boundary.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/exchange_meter.h"

namespace tutti::comm {
namespace {

void count_sent(const Exchange& exchange, const Transport& transport) {
  int64_t bytes = 0;
  for (int p = 0; p < transport.size(); ++p) bytes += p == transport.rank() ? 0 : exchange.offer_to(p).bytes;
  RankContext::current().sent_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

// With calls of other groups under way, a sleeper looks after those too.
constexpr std::chrono::microseconds kShortNap{200};
constexpr std::chrono::microseconds kLongNap{50'000};
// Who finds the lock taken yields so often, then sleeps between looks.
constexpr int kYields = 100;
constexpr std::chrono::microseconds kLockNap{30};
// A wait that spins looks at the clock only now and then.
constexpr uint32_t kBetweenLooks = 64;
// A yield is a microsecond, or the turn of everybody else on a busy machine: after this time a wait sleeps, which is
// when transports look after the peers, however few its attempts were.
constexpr std::chrono::milliseconds kAwake{2};
constexpr uint32_t kSleepsAtOnce = 1u << 20;
// How often sends ask whether their receiver lives, which costs a system call.
constexpr std::chrono::milliseconds kBetweenInquiries{1};
// Tags from here on are those of messages inside of other calls, which must not end with the error of a user's message.
constexpr uint32_t kOwnTags = 1u << 31;

bool is_with(const MessageCall& call, int peer) {
  return std::any_of(call.messages.begin(), call.messages.end(),
                     [&](const Message& m) { return m.peer == peer || m.peer < 0; });
}

std::string which_of(const MessageCall& call, size_t index) {
  return call.messages.size() == 1 ? "" : fmt::format("message {} of {}: ", index + 1, call.messages.size());
}

}  // namespace

static std::vector<int> members(const GroupLabel& group, int size) {
  std::vector<int> ranks = group.world_ranks;
  for (int r = 0; ranks.size() < static_cast<size_t>(size); ++r) ranks.push_back(r);
  return ranks;
}

CallQueue::CallQueue(std::unique_ptr<Transport> transport, const GroupLabel& group)
    : transport_(std::move(transport)),
      group_(group.name),
      recorder_(RankContext::current().share_slot<FlightRecorder>()),
      flight_(recorder_->add_group(group.name, group.description, members(group, transport_->size()))),
      trace_group_({group.name, group.description, members(group, transport_->size())}, transport_->traits().name),
      progress_(RankContext::current().share_slot<ProgressList>()),
      looked_after_(static_cast<size_t>(transport_->size())) {
  progress_->add(this);
}

CallQueue::~CallQueue() {
  if (wants_attention_) Boundary::want(-1);
  if (process_.is_in_child()) {
    ForkGuard::keep(std::shared_ptr<Transport>(std::move(transport_)));
    return;
  }
  progress_->remove(this);
  recorder_->close_group(flight_);
}

// ---- the lock -------------------------------------------------------------------------------------------------------

void CallQueue::lock_slowly() {
  contenders_.fetch_add(1);
  transport_->interrupt();  // the holder may sleep
  for (int attempt = 0; locked_.exchange(true, std::memory_order_acquire); ++attempt) {
    if (attempt < kYields) sched_yield();
    else std::this_thread::sleep_for(kLockNap);
  }
  contenders_.fetch_sub(1);
}

void CallQueue::give_way() {
  locked_.store(false, std::memory_order_release);
  // Without this the holder would take it again before the other thread has looked.
  for (int i = 0; i < kYields && contenders_.load() > 0; ++i) sched_yield();
  if (locked_.exchange(true, std::memory_order_acquire)) lock_slowly();
}

// ---- submitting -----------------------------------------------------------------------------------------------------

static thread_local int64_t collectives_submitted = 0;
int64_t CallQueue::collectives_of_thread() { return collectives_submitted; }

void CallQueue::push(Call& call) {
  ++collectives_submitted;
  CallRecord& record = call.collective->record;
  record.sequence = sequence_.load(std::memory_order_relaxed) + 1;
  sequence_.store(record.sequence, std::memory_order_relaxed);
  const int64_t bytes = record.numel() * itemsize(record.dtype);
  call.recorded = queue_.empty() ? recorder_->begin(flight_, record, bytes, bytes, call.timeout.count())
                                 : recorder_->enqueue(flight_, record, bytes, bytes, call.timeout.count());
  call.begun = queue_.empty();
  call.trace.begin(call.begun);
  queue_.push_back(&call);
  add_pending(1);
}

void CallQueue::check_process() const {
  if (process_.is_in_child()) [[unlikely]]
    process_.check(fmt::format("process group '{}'", group_));
}

void CallQueue::run(Call& call) {
  check_process();
  const ExchangeSpan span;
  {
    const Hold hold(*this);
    push(call);
    advance_front(true);
    if (call.has_ended() && due_.empty() && over_.empty()) {
      if (call.failure) std::rethrow_exception(call.failure);
      return;
    }
  }
  wait_until([&call] { return call.has_ended(); }, std::chrono::milliseconds::max());
  if (call.failure) std::rethrow_exception(call.failure);
}

void CallQueue::submit(std::shared_ptr<Call> call) {
  check_process();
  const ExchangeSpan span;
  {
    const Hold hold(*this);
    push(*call);
    kept_.push_back(std::move(call));
    advance_front(true);
    tell_boundaries();
  }
  run_callbacks();
}

void CallQueue::submit(std::shared_ptr<MessageCall> call) {
  check_process();
  const ExchangeSpan span;
  {
    const Hold hold(*this);
    call->record.sequence = ++message_sequence_;
    int64_t bytes = 0;
    for (const Message& message : call->messages) bytes += message.bytes;
    call->recorded = recorder_->begin(flight_, call->record, bytes, bytes, call->timeout.count());
    call->trace.begin(true);
    messages_.push_back(call);
    add_pending(1);
    try {
      look_after_receivers(*call);
      for (Message& message : call->messages) {
        if (message.is_send) RankContext::current().sent_bytes.fetch_add(message.bytes, std::memory_order_relaxed);
        transport_->post(message);
        if (!message.error.empty()) break;  // the call is over
      }
    } catch (...) {
      for (Message& message : call->messages) transport_->cancel(message);
      transport_->take_refusals(refusals_);
      end_messages(std::prev(messages_.end()), WorkStatus::failed, with_late_refusals(*call, std::current_exception()));
    }
    advance_messages();
    tell_boundaries();
  }
  run_callbacks();
}

void CallQueue::tell_boundaries() {
  const bool wants = !kept_.empty() || !messages_.empty();
  if (wants == wants_attention_) return;
  wants_attention_ = wants;
  Boundary::want(wants ? 1 : -1);
}

// ---- bringing forward -----------------------------------------------------------------------------------------------

void CallQueue::end(Pending& call, const CallRecord& record, WorkStatus status, std::exception_ptr failure,
                    bool took_time) {
  recorder_->ended(call.recorded, failure ? FlightState::failed : FlightState::completed, took_time);
  call.trace.end(trace_group_, record, failure != nullptr);
  call.failure = failure ? with_dump(std::move(failure)) : nullptr;
  for (auto& callback : call.callbacks) due_.push_back(std::move(callback));
  call.callbacks.clear();
  call.status.store(status, std::memory_order_release);
}

// The call may lie on the stack of a blocking one, which may return from here on.
void CallQueue::end_front(WorkStatus status, std::exception_ptr failure, bool took_time) {
  Call& call = *queue_.front();
  queue_.pop_front();
  add_pending(-1);
  if (!kept_.empty() && kept_.front().get() == &call) {
    over_.push_back(std::move(kept_.front()));
    kept_.pop_front();
    if (wants_attention_) tell_boundaries();
  }
  end(call, call.collective->record, status, std::move(failure), took_time);
}

// Returns the one behind it.
CallQueue::MessageCalls::iterator CallQueue::end_messages(MessageCalls::iterator call, WorkStatus status,
                                                          std::exception_ptr failure) {
  MessageCall* const ended = call->get();
  over_.push_back(std::move(*call));
  const auto next = messages_.erase(call);
  if (wants_attention_) tell_boundaries();
  add_pending(-1);
  count_end();
  end(*ended, ended->record, status, std::move(failure));
  return next;
}

// A group that has failed for good leaves the last calls of this rank in a file, and its message says where.
std::exception_ptr CallQueue::with_dump(std::exception_ptr failure) {
  const auto note = [this](const std::exception& e) {
    const std::string where = recorder_->dump_on_failure(flight_, e.what());
    return where.empty() ? std::string(e.what()) : fmt::format("{}; {}", e.what(), where);
  };
  try {
    std::rethrow_exception(failure);
  } catch (const PeerError& e) {
    return std::make_exception_ptr(PeerError(note(e)));
  } catch (const TimeoutError& e) {
    return std::make_exception_ptr(TimeoutError(note(e)));
  } catch (...) {
    return failure;
  }
}

// True when a call ended. `at_once`: nobody has waited yet.
bool CallQueue::advance_front(bool at_once) {
  bool any = false;
  while (!queue_.empty()) {
    Call& call = *queue_.front();
    if (!call.begun) {
      recorder_->started(call.recorded);
      call.trace.started();
      call.begun = true;
    }
    std::exception_ptr failure;
    try {
      const bool under_way = call.step >= 0 && !transport_->advance();
      if (under_way) return any;
      call.exchange = {};
      count_end();
      if (call.next()) {
        ++call.step;
        count_sent(call.exchange, *transport_);
        transport_->start(call.collective->record, call.step, call.exchange, call);
        continue;
      }
    } catch (const RefusedCallError&) {
      call.hear_refusals(group_, transport_->rank(), transport_->size());
      continue;
    } catch (const ListMismatchError&) {
      if (call.inquire(group_, transport_->size())) continue;
      failure = std::current_exception();
    } catch (const AgreedError& error) {
      const CallRecord& record = call.collective->record;
      failure = std::make_exception_ptr(UsageError(fmt::format("collective #{} of group '{}', {}: {}", record.sequence,
                                                               group_, name_of(record.kind), error.what())));
    } catch (...) {
      failure = std::current_exception();
      end_group_after(call, failure);
    }
    count_end();
    end_front(failure ? WorkStatus::failed : WorkStatus::completed, failure, !at_once);
    any = true;
  }
  return any;
}

bool CallQueue::advance_messages() {
  if (messages_.empty()) return false;
  bool any = false;
  std::exception_ptr failure;
  try {
    transport_->advance_messages();
  } catch (...) {
    failure = std::current_exception();
  }
  transport_->take_refusals(refusals_);
  for (auto it = messages_.begin(); it != messages_.end();) {
    MessageCall& call = **it;
    std::exception_ptr own = own_refusal(call);
    const auto wrong =
        std::find_if(call.messages.begin(), call.messages.end(), [](const Message& m) { return !m.error.empty(); });
    const bool is_wrong = wrong != call.messages.end();
    const bool finished =
        std::all_of(call.messages.begin(), call.messages.end(), [](const Message& m) { return m.finished; });
    if (!finished && !is_wrong && !failure && !own) {
      ++it;
      continue;
    }
    // The first message that goes wrong ends the call: its peer may never come to the others. A transport that fails
    // ends its messages with the reason; only those that are whole were in time.
    if (own) {
      // The message was refused while other messages of the call, or the caller, were not done.
    } else if (failure && (is_wrong || !finished)) {
      own = failure;
    } else if (is_wrong) {
      const std::string which = which_of(call, static_cast<size_t>(wrong - call.messages.begin()));
      own = std::make_exception_ptr(
          UsageError(fmt::format("group '{}', rank {}: {}{}", group_, transport_->rank(), which, wrong->error)));
    }
    for (Message& message : call.messages) {
      if (!message.finished) transport_->cancel(message);
    }
    try {
      if (!own && call.finish) call.finish();
    } catch (...) {
      own = std::current_exception();
    }
    own = with_late_refusals(call, std::move(own));
    it = end_messages(it, own ? WorkStatus::failed : WorkStatus::completed, own);
    any = true;
  }
  return any;
}

void CallQueue::look_after_receivers(const MessageCall& call) {
  for (const Message& message : call.messages) {
    if (!message.is_send || message.peer < 0 || message.peer >= transport_->size()) continue;
    Clock::time_point& last = looked_after_[static_cast<size_t>(message.peer)];
    if (call.made - last < kBetweenInquiries) continue;
    last = call.made;
    transport_->look_after(message.peer, call.record);
  }
}

std::exception_ptr CallQueue::own_refusal(const MessageCall& call) {
  if (refusals_.empty()) [[likely]]
    return nullptr;
  const auto refusal = std::find_if(refusals_.begin(), refusals_.end(),
                                    [&](const Refusal& r) { return r.call == call.record.sequence; });
  if (refusal == refusals_.end()) return nullptr;
  size_t index = 0;
  while (index + 1 < call.messages.size()) {
    const Message& m = call.messages[index];
    if (m.is_send && m.peer == refusal->peer && m.tag == refusal->tag) break;
    ++index;
  }
  const std::string text =
      fmt::format("group '{}', rank {}: {}{}", group_, transport_->rank(), which_of(call, index), refusal->text);
  refusals_.erase(refusal);
  return std::make_exception_ptr(UsageError(text));
}

std::exception_ptr CallQueue::with_late_refusals(const MessageCall& call, std::exception_ptr own) {
  if (refusals_.empty() || call.record.tag >= kOwnTags) [[likely]]
    return own;
  std::string late;
  std::erase_if(refusals_, [&](const Refusal& refusal) {
    if (!is_with(call, refusal.peer)) return false;
    late += fmt::format("{}{}", late.empty() ? "" : "; ", refusal.text);
    return true;
  });
  if (late.empty()) return own;
  if (!own) {
    return std::make_exception_ptr(
        UsageError(fmt::format("group '{}', rank {}: {}. The call that sent it had returned, so this error comes with "
                               "a later one: message #{}, {}, was carried out",
                               group_, transport_->rank(), late, call.record.sequence, describe(call.record))));
  }
  try {
    std::rethrow_exception(own);
  } catch (const PeerError& error) {
    return std::make_exception_ptr(
        PeerError(fmt::format("{}; an earlier message was refused: {}", error.what(), late)));
  } catch (const TimeoutError& error) {
    return std::make_exception_ptr(
        TimeoutError(fmt::format("{}; an earlier message was refused: {}", error.what(), late)));
  } catch (const UsageError& error) {
    return std::make_exception_ptr(
        UsageError(fmt::format("{}; an earlier message was refused: {}", error.what(), late)));
  } catch (...) {
    return own;
  }
}

bool CallQueue::advance_all() {
  const bool collective = advance_front(false);
  return advance_messages() || collective;
}

void CallQueue::try_advance(Released& released) {
  if (process_.is_in_child()) return;
  {
    if (locked_.exchange(true, std::memory_order_acquire)) return;
    const Hold hold(*this, Hold::Taken());
    advance_all();
    check_deadlines(Clock::now());
  }
  run_callbacks(&released);
}

void CallQueue::attend(Released& released) {
  try {
    try_advance(released);
  } catch (...) {
    const Hold hold(*this);
    due_.push_back([failure = std::current_exception()] { std::rethrow_exception(failure); });
  }
}

// All of them, also after one that throws.
void CallQueue::run_callbacks(Released* released) {
  Released own;
  Released& over = released != nullptr ? *released : own;
  std::vector<std::function<void()>> due;
  {
    const Hold hold(*this);
    due.swap(due_);
    over.swap(over_);
  }
  std::exception_ptr first;
  for (auto& callback : due) {
    try {
      callback();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

bool CallQueue::wait(const Pending& call, std::chrono::milliseconds limit) {
  return wait_until([&call] { return call.has_ended(); }, limit);
}

void CallQueue::on_end(Pending& call, std::function<void()> callback) {
  {
    const Hold hold(*this);
    if (!call.has_ended()) {
      call.callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

bool CallQueue::wait_until(FunctionRef<bool()> ended, std::chrono::milliseconds limit) {
  if (!ended()) check_process();
  const bool bounded = limit < kLongestWait;
  const Clock::time_point until = bounded ? deadline_after(limit) : Clock::time_point::max();
  std::chrono::microseconds left = kLongNap;  // until the clock has something to say
  Clock::time_point sleeps_from = Clock::time_point::max();
  bool in_time = true, none_due;
  {
    Hold hold(*this);
    for (uint32_t attempt = 0; !ended(); ++attempt) {
      if (advance_all()) {
        attempt = 0;
        sleeps_from = Clock::time_point::max();
      }
      if (ended()) break;
      hold.give_way();
      const bool others = progress_->advance_others(this);
      if (ended()) break;
      const bool gave_way =
          transport_->pause(attempt, std::clamp(left, std::chrono::microseconds(1), others ? kShortNap : kLongNap));
      if (!gave_way && attempt % kBetweenLooks != kBetweenLooks - 1) continue;
      const Clock::time_point now = Clock::now(), next = std::min(until, check_deadlines(now));
      sleeps_from = std::min(sleeps_from, now + kAwake);
      if (now >= sleeps_from) attempt = std::max(attempt, kSleepsAtOnce);
      left = std::min<std::chrono::microseconds>(kLongNap, std::chrono::ceil<std::chrono::microseconds>(next - now));
      if (now >= until && !ended()) {
        in_time = false;
        break;
      }
    }
    none_due = due_.empty() && over_.empty();
  }
  if (!none_due) run_callbacks();
  return in_time;
}

// ---- failing --------------------------------------------------------------------------------------------------------

// What goes wrong on this rank alone (no memory, a kernel that cannot be compiled) leaves the others in a round that
// this rank does not go on with: they are told. A transport's UsageError is thrown on all ranks, and its PeerError
// follows a failure that they have heard of.
void CallQueue::end_group_after(const Call& call, const std::exception_ptr& failure) {
  std::string why = "an exception without a text";
  try {
    std::rethrow_exception(failure);
  } catch (const UsageError& error) {
    if (!call.on_its_own) return;
    why = error.what();
  } catch (const PeerError& error) {
    if (!call.on_its_own) return;
    why = error.what();
  } catch (const TimeoutError& error) {
    if (!call.on_its_own) return;
    why = error.what();
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
  }
  const int rank = transport_->rank();
  const CallRecord& record = call.collective->record;
  transport_->fail(fmt::format("{} failed in collective #{} of group '{}', {}: {}",
                               describe(rank, transport_->peer(rank)), record.sequence, group_, describe(record), why));
  transport_->abandon();
}

Clock::time_point CallQueue::check_deadlines(Clock::time_point now) {
  const auto late_text = [&](const std::string& what, std::chrono::milliseconds timeout, const std::vector<int>& late) {
    std::string text =
        fmt::format("{} did not finish within {} ms; rank {} waited for", what, timeout.count(), transport_->rank());
    for (const int p : late) {
      const std::string seen = transport_->last_seen(p);
      text += fmt::format(" {}{};", describe(p, transport_->peer(p)), seen.empty() ? "" : fmt::format(" ({})", seen));
    }
    if (late.empty()) text += " its peers;";
    text.back() = '.';
    return text;
  };
  for (Call* call : queue_) {
    if (call->deadline == Clock::time_point::max()) call->deadline = deadline_after(call->timeout, now);
  }
  if (!queue_.empty() && now >= queue_.front()->deadline) {
    Call& call = *queue_.front();
    const std::string what = fmt::format("collective #{} of group '{}', {},", call.collective->record.sequence, group_,
                                         describe(call.collective->record));
    const std::string text =
        fmt::format("{}{}", kDeadlinePassed, late_text(what, call.timeout, transport_->late_ranks()));
    transport_->fail(text);
    transport_->abandon();
    end_front(WorkStatus::timed_out, std::make_exception_ptr(TimeoutError(text)));
  }
  Clock::time_point next = queue_.empty() ? Clock::time_point::max() : queue_.front()->deadline;
  for (auto it = messages_.begin(); it != messages_.end();) {
    if (now < (*it)->deadline) {
      next = std::min(next, (*it)->deadline);
      ++it;
      continue;
    }
    MessageCall& call = **it;
    std::vector<int> peers;
    for (Message& message : call.messages) {
      if (message.finished) continue;
      if (message.peer >= 0) peers.push_back(message.peer);
      transport_->cancel(message);
    }
    const std::string text =
        late_text(fmt::format("message #{} of group '{}', {},", call.record.sequence, group_, describe(call.record)),
                  call.timeout, peers);
    it = end_messages(it, WorkStatus::timed_out, with_late_refusals(call, std::make_exception_ptr(TimeoutError(text))));
  }
  return next;
}

int64_t CallQueue::add_region(const std::vector<std::byte*>& bases, int64_t bytes) {
  check_process();
  const Hold hold(*this);
  return transport_->add_region(bases, bytes);
}

void CallQueue::remove_region(int64_t region) {
  const Hold hold(*this);
  transport_->remove_region(region);
}

void CallQueue::fail(std::string_view reason) {
  check_process();
  transport_->fail(reason);
}

}  // namespace tutti::comm
