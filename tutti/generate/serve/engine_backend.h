// EngineBackend: an engine that runs on a thread of its own, for requests of many threads.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "tutti/generate/engine.h"
#include "tutti/generate/serve/backend.h"

namespace tutti::generate::serve {

class EngineBackend final : public Backend {
 public:
  // At most `queue` requests wait; more are refused. The engine must outlive it, and nobody else may run its steps.
  // The thread belongs to the rank (RankContext) of the caller.
  EngineBackend(Engine& engine, int64_t queue);
  // Ends all requests as cancelled.
  ~EngineBackend() override;

  RequestId submit(Request request, EventSink sink) override;
  void cancel(RequestId id) override { engine_.cancel(id); }
  std::vector<Metric> metrics() const override;

 private:
  void run(const std::stop_token& stop);
  void dispatch(const Event& event);

  Engine& engine_;
  const int64_t queue_;
  std::mutex mutex_;
  std::map<RequestId, EventSink> sinks_;
  std::jthread thread_;
};

}  // namespace tutti::generate::serve
