// EngineBackend: an engine that runs on a thread of its own, for requests of many threads.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "tutti/generate/engine.h"
#include "tutti/generate/serve/backend.h"

namespace tutti::generate::serve {

class EngineBackend final : public Backend {
 public:
  // At most `queue` requests wait; more are refused. The engine must outlive it, and nobody else may run its steps.
  // The thread belongs to the rank (RankContext) of the caller. `on_failure` is called once, by that thread, when the
  // steps cannot go on, as when one of several ranks has died.
  EngineBackend(Engine& engine, int64_t queue, std::function<void()> on_failure = {});
  // Ends all requests as cancelled, and lets ranks that follow the engine return.
  ~EngineBackend() override;

  // ApiError 500 after a failure.
  RequestId submit(Request request, EventSink sink) override;
  void cancel(RequestId id) override { engine_.cancel(id); }
  std::vector<Metric> metrics() const override;
  // Why the steps cannot go on; "" while they do.
  std::string failure() const;

 private:
  void run(const std::stop_token& stop);
  void step();
  void fail(const std::string& why);
  void dispatch(const Event& event);

  Engine& engine_;
  const int64_t queue_;
  const std::function<void()> on_failure_;
  mutable std::mutex mutex_;
  std::map<RequestId, EventSink> sinks_;
  std::string failure_;
  std::jthread thread_;
};

}  // namespace tutti::generate::serve
