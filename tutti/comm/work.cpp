#include "tutti/comm/work.h"

#include <atomic>
#include <mutex>

#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/runtime/trace/exchange_meter.h"

namespace tutti::comm {
namespace {

// A look at the deadline now and then; each turn is a blocking wait inside.
constexpr std::chrono::milliseconds kTurn{1000};

class JoinedState final : public WorkState {
 public:
  explicit JoinedState(std::vector<Work> works) : works_(std::move(works)) {}

  bool advance() override {
    bool all = true;
    for (const Work& work : works_) all &= work.is_done();
    return all;
  }
  bool wait_for(std::chrono::milliseconds limit) override {
    const auto end = deadline_after(limit);
    for (const Work& work : works_) {
      if (!work.state()) continue;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (!work.state()->wait_for(std::max(left, std::chrono::milliseconds(0)))) return false;
    }
    return true;
  }
  WorkStatus status() const override {
    WorkStatus worst = WorkStatus::completed;
    for (const Work& work : works_) {
      const WorkStatus s = work.status();
      if (s == WorkStatus::in_progress) return s;
      if (worst == WorkStatus::completed) worst = s;
    }
    return worst;
  }
  std::exception_ptr exception() const override {
    for (const Work& work : works_) {
      if (auto e = work.exception()) return e;
    }
    return nullptr;
  }
  void on_end(std::function<void()> callback) override {
    const auto left = std::make_shared<std::atomic<size_t>>(works_.size() + 1);
    const auto count = [left, callback = std::move(callback)] {
      if (left->fetch_sub(1) == 1) callback();
    };
    for (const Work& work : works_) work.then(count);
    count();
  }
  std::vector<Tensor> result() const override {
    std::vector<Tensor> all;
    for (const Work& work : works_) {
      for (Tensor& t : work.result()) all.push_back(std::move(t));
    }
    return all;
  }

 private:
  const std::vector<Work> works_;
};

}  // namespace

std::string_view name_of(WorkStatus status) {
  switch (status) {
    case WorkStatus::in_progress:
      return "in progress";
    case WorkStatus::completed:
      return "completed";
    case WorkStatus::timed_out:
      return "timed out";
    case WorkStatus::failed:
      return "failed";
  }
  return "unknown";
}

void Work::wait() const {
  while (!wait_for(kTurn)) {
  }
}

bool Work::wait_for(std::chrono::milliseconds limit) const {
  if (!state_) return true;
  const ExchangeSpan span;
  if (!state_->wait_for(limit)) return false;
  if (const auto failure = state_->exception()) std::rethrow_exception(failure);
  return true;
}

void Work::then(std::function<void()> callback) const {
  if (state_) state_->on_end(std::move(callback));
  else callback();
}

Work all_of(std::vector<Work> works) { return Work(std::make_shared<JoinedState>(std::move(works))); }

}  // namespace tutti::comm
