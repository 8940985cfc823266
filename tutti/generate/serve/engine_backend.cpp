#include "tutti/generate/serve/engine_backend.h"

#include "tutti/generate/serve/api_error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::generate::serve {

namespace {

// Others that follow wait for a step as long as their group allows, which is minutes.
constexpr std::chrono::seconds kLongestPause{2};

}  // namespace

EngineBackend::EngineBackend(Engine& engine, int64_t queue, std::function<void()> on_failure)
    : engine_(engine),
      queue_(queue),
      on_failure_(std::move(on_failure)),
      thread_([this, &rank = RankContext::current()](const std::stop_token& stop) {
        const RankContext::Scope scope(rank);
        run(stop);
      }) {}

EngineBackend::~EngineBackend() { stop(); }

void EngineBackend::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  bool has_requests = false;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    if (!failure_.empty()) return;
    has_requests = !sinks_.empty();
    for (const auto& [id, sink] : sinks_) engine_.cancel(id);
  }
  try {
    if (has_requests) step();
    if (engine_.leads()) engine_.end_following();
  } catch (const std::exception& error) {
    note_failure(error);
  }
}

RequestId EngineBackend::submit(Request request, EventSink sink) {
  // Held until the sink is known, so that no event of the request comes before.
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw ApiError(500, "server_error", "engine_failed", failure_);
  if (is_stopped_) throw overloaded("the server stops");
  if (engine_.counters().waiting >= queue_)
    throw overloaded(fmt::format("{} requests are waiting already; try again later", queue_));
  const RequestId id = engine_.submit(std::move(request));
  sinks_.emplace(id, std::move(sink));
  return id;
}

std::string EngineBackend::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void EngineBackend::run(const std::stop_token& stop) {
  auto last = std::chrono::steady_clock::now();
  try {
    while (!stop.stop_requested()) {
      const bool has_work = engine_.wait(std::chrono::milliseconds(50));
      const auto now = std::chrono::steady_clock::now();
      if (!has_work && (!engine_.leads() || now - last < kLongestPause)) continue;
      last = now;
      step();
    }
  } catch (const std::exception& error) {
    note_failure(error);
    if (on_failure_) on_failure_();
  }
}

void EngineBackend::step() {
  for (const Event& event : engine_.step()) dispatch(event);
}

void EngineBackend::note_failure(const std::exception& error) {
  const std::string what = error.what();
  const std::string why = what.empty() ? "the engine ended by an exception without a message" : what;
  std::map<RequestId, EventSink> sinks;
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
    sinks.swap(sinks_);
  }
  for (const auto& [id, sink] : sinks) sink({.request = id, .finish = Finish::failed, .error = why});
}

void EngineBackend::dispatch(const Event& event) {
  EventSink sink;
  {
    const std::lock_guard lock(mutex_);
    const auto found = sinks_.find(event.request);
    if (found == sinks_.end()) return;
    if (event.finish == Finish::no) {
      sink = found->second;
    } else {
      sink = std::move(found->second);
      sinks_.erase(found);
    }
  }
  sink(event);
}

std::vector<Metric> EngineBackend::metrics() const {
  const Engine::Counters c = engine_.counters();
  const auto gauge = [](const char* name, const char* help, int64_t value) {
    return Metric{name, help, static_cast<double>(value), false};
  };
  const auto counter = [](const char* name, const char* help, int64_t value) {
    return Metric{name, help, static_cast<double>(value), true};
  };
  return {gauge("tutti_requests_waiting", "Requests that have not begun.", c.waiting),
          gauge("tutti_requests_running", "Requests that are being answered.", c.running),
          counter("tutti_prompt_tokens_total", "Tokens of prompts that were read.", c.prompt_tokens),
          counter("tutti_reused_tokens_total", "Tokens of prompts whose keys and values were in the cache.",
                  c.reused_tokens),
          counter("tutti_generated_tokens_total", "Tokens that were written.", c.generated_tokens),
          counter("tutti_put_back_total", "How often a request gave its pages to others and began again.", c.put_back),
          gauge("tutti_cache_pages", "Pages of the cache.", c.pages),
          gauge("tutti_cache_pages_free", "Pages of the cache that no request holds.", c.free_pages),
          gauge("tutti_cache_bytes", "Bytes of the cache.", c.cache_bytes)};
}

}  // namespace tutti::generate::serve
