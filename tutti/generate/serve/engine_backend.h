// EngineBackend: an engine that runs on a thread of its own, for requests of many threads.
#pragma once

#include <exception>
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
  // steps cannot go on, as when one of several ranks has died; not by stop(), which only notes such an end.
  EngineBackend(Engine& engine, int64_t queue, std::function<void()> on_failure = {});
  // Stops as stop() does.
  ~EngineBackend() override;

  // Ends all requests as cancelled, and lets ranks that follow the engine return; failure() says when they do not. For
  // one thread.
  void stop();
  // ApiError 500 after a failure, 503 when it has stopped.
  RequestId submit(Request request, EventSink sink) override;
  void cancel(RequestId id) override { engine_.cancel(id); }
  std::vector<Metric> metrics() const override;
  // Why the steps cannot go on, or could not when it stopped; "" while they do.
  std::string failure() const;

 private:
  void run(const std::stop_token& stop);
  void step();
  void note_failure(const std::exception& error);
  void dispatch(const Event& event);

  Engine& engine_;
  const int64_t queue_;
  const std::function<void()> on_failure_;
  mutable std::mutex mutex_;
  std::map<RequestId, EventSink> sinks_;
  std::string failure_;
  bool is_stopped_ = false;
  std::jthread thread_;
};

}  // namespace tutti::generate::serve
