// CallQueue: the outstanding calls of one group on one rank, in order.
//
// Collectives of a group run one after another, in the order in which they were submitted. Any thread of the rank may
// submit and wait; the thread that holds the lock progresses the call at the front, and yields as soon as another
// thread wants the lock.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/call_trace.h"
#include "tutti/comm/collective.h"
#include "tutti/comm/exchanges/refusal.h"
#include "tutti/comm/progress.h"
#include "tutti/comm/work.h"
#include "tutti/diagnose/flight_recorder.h"
#include "tutti/job/deadline.h"
#include "tutti/runtime/fork_guard.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::comm {

// The name of a group in messages and dumps.
struct GroupLabel {
  std::string name;
  std::string description = "";
  std::vector<int> world_ranks = {};  // in group-rank order; empty: 0, 1, 2, ...
};

// The common state of an outstanding collective or batch of messages.
class Pending {
 public:
  explicit Pending(std::chrono::milliseconds timeout) : timeout(timeout) {}
  virtual ~Pending() = default;

  const std::chrono::milliseconds timeout;
  uint64_t recorded = 0;  // id of its entry in the flight recorder
  CallTrace trace;
  std::atomic<WorkStatus> status{WorkStatus::in_progress};
  std::exception_ptr failure;                    // written before status
  std::vector<std::function<void()>> callbacks;  // guarded by the queue's lock

  bool has_ended() const { return status.load(std::memory_order_acquire) != WorkStatus::in_progress; }
};

// An outstanding collective. It lives on the stack of a blocking call, or on the heap, owned by a Work.
class Call : public Pending, public Receiver {
 public:
  using Pending::Pending;

  // Passes the data of a round to the collective.
  void receive(std::span<const Arrival> from) final {
    on_its_own = true;
    collective->receive(from);
    on_its_own = false;
  }
  std::byte* place_of(int peer) final { return collective->place_of(peer); }
  bool next() {
    on_its_own =
        inquiry_ == nullptr && collective->refusal().empty();  // inquiries and refusals throw on all ranks alike
    const bool more = collective->next(exchange);
    on_its_own = false;
    return more;
  }
  // Call when the ranks' lists differ: replaces the collective by an inquiry that finds out where. False if it has no
  // list.
  bool inquire(const std::string& group, int ranks) {
    inquiry_ = collective->inquire(group, ranks);
    if (!inquiry_) return false;
    collective = inquiry_.get();
    step = -1;
    return true;
  }

  // Call when a rank has refused its call: replaces the collective by one that says why, and ends on all ranks with
  // that reason.
  void hear_refusals(const std::string& group, int rank, int ranks) {
    inquiry_ = make_refusal(collective->record, group, rank, ranks, collective->refusal());
    collective = inquiry_.get();
    step = -1;
  }

  // Set when the clock is first read; calls that end within microseconds never read it.
  Clock::time_point deadline = Clock::time_point::max();
  Collective* collective = nullptr;
  Exchange exchange;
  int64_t step = -1;  // number of the current exchange; -1: not begun
  bool begun = false;
  bool on_its_own =
      false;  // code of the collective runs or has thrown, unknown to other ranks, unlike errors of the transport

 private:
  std::unique_ptr<Collective> inquiry_;
};

// Messages that were posted together; done when all of them are.
class MessageCall : public Pending {
 public:
  explicit MessageCall(std::chrono::milliseconds timeout)
      : Pending(timeout), made(Clock::now()), deadline(deadline_after(timeout, made)) {}

  const Clock::time_point made;
  const Clock::time_point deadline;
  CallRecord record;
  std::vector<Message> messages;
  std::function<void()> finish;  // called once all messages have arrived
};

class CallQueue final : public Driver {
 public:
  CallQueue(std::unique_ptr<Transport> transport, const GroupLabel& group);
  ~CallQueue() override;

  Transport& transport() { return *transport_; }
  const std::string& group() const { return group_; }

  // Numbers the call and runs it after those submitted before. Returns when it has ended; throws its error.
  void run(Call& call);
  // Submits the call and returns; it is completed by later waits of the rank.
  void submit(std::shared_ptr<Call> call);
  void submit(std::shared_ptr<MessageCall> call);

  // Blocks until `call` has ended or `limit` has passed.
  bool wait(const Pending& call, std::chrono::milliseconds limit);
  // Runs `callback` once when `call` has ended, immediately if it already has.
  void on_end(Pending& call, std::function<void()> callback);

  int64_t add_region(const std::vector<std::byte*>& bases, int64_t bytes);
  void remove_region(int64_t region);

  void try_advance(Released& released) override;
  void attend(Released& released) override;
  // Fails all outstanding and future calls. Any thread.
  void fail(std::string_view reason);
  int64_t collectives() const { return sequence_.load(std::memory_order_relaxed); }
  // How many collectives the calling thread has submitted, in all groups: tells a call that was refused before it got
  // its number from one that failed later.
  static int64_t collectives_of_thread();

 private:
  // The lock. A holder that waits yields it to other threads that want it. Nearly every call takes it for a fraction of
  // a microsecond and it is hardly ever contended, so releasing it is a plain store, and a thread that finds it taken
  // retries.
  class Hold {
   public:
    explicit Hold(CallQueue& queue) : queue_(queue) {
      if (queue_.locked_.exchange(true, std::memory_order_acquire)) queue_.lock_slowly();
    }
    struct Taken {};
    Hold(CallQueue& queue, Taken) : queue_(queue) {}  // the lock is taken already
    ~Hold() { queue_.locked_.store(false, std::memory_order_release); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    void give_way() {
      if (queue_.contenders_.load(std::memory_order_relaxed) > 0) queue_.give_way();
    }

   private:
    CallQueue& queue_;
  };
  void lock_slowly();
  void give_way();
  // Tells the computation whether it has something to move. For the lock's holder, after calls that nobody is known to
  // wait for were submitted or have ended.
  void tell_boundaries();
  // `pending` is modified only under the lock.
  void count_end() { ended.store(ended.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  void add_pending(int change) {
    pending.store(pending.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
  }

  void check_process() const;  // UsageError in a fork()ed child
  void push(Call& call);
  bool wait_until(FunctionRef<bool()> ended, std::chrono::milliseconds limit);
  bool advance_all();
  bool advance_front(bool at_once);
  bool advance_messages();
  void look_after_receivers(const MessageCall& call);
  // The error of a call with a message that was refused; null when there is none. The refusal has been reported then.
  std::exception_ptr own_refusal(const MessageCall& call);
  // `own`, the error of a call that has ended, together with refusals of earlier messages to its peers, which no call
  // has reported yet. A call that was carried out (null) gets them as its error.
  std::exception_ptr with_late_refusals(const MessageCall& call, std::exception_ptr own);
  // Ends calls whose deadline has passed at `now`, and returns the next deadline.
  Clock::time_point check_deadlines(Clock::time_point now);
  void end_group_after(const Call& call, const std::exception_ptr& failure);
  void end(Pending& call, const CallRecord& record, WorkStatus status, std::exception_ptr failure,
           bool took_time = true);
  void end_front(WorkStatus status, std::exception_ptr failure, bool took_time = true);
  using MessageCalls = std::list<std::shared_ptr<MessageCall>>;
  MessageCalls::iterator end_messages(MessageCalls::iterator call, WorkStatus status, std::exception_ptr failure);
  std::exception_ptr with_dump(std::exception_ptr failure);
  // Also releases the calls that have ended, or hands them out.
  void run_callbacks(Released* released = nullptr);

  const ForkGuard process_;
  std::unique_ptr<Transport> transport_;
  const std::string group_;
  const std::shared_ptr<FlightRecorder> recorder_;
  FlightGroup& flight_;
  CallTraceGroup trace_group_;
  const std::shared_ptr<ProgressList> progress_;
  std::atomic<bool> locked_{false};
  std::atomic<int> contenders_{0};
  bool wants_attention_ = false;
  std::atomic<int64_t> sequence_{0};
  int64_t message_sequence_ = 0;
  std::deque<Call*> queue_;
  std::deque<std::shared_ptr<Call>> kept_;  // the calls in queue_ that are not on the stack of a blocking call
  MessageCalls messages_;
  std::vector<Refusal> refusals_;                // of messages of this rank, not reported yet
  std::vector<Clock::time_point> looked_after_;  // by rank: when a send last asked whether it lives
  std::vector<std::function<void()>> due_;       // callbacks of ended calls
  Released over_;                                // ended calls that may hold the last reference to this queue
};

}  // namespace tutti::comm
