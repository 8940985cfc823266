#include "tutti/runtime/trace/profiler.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/chrome_trace.h"

namespace tutti {
namespace {

using Kind = ProfilerStatus::Kind;

// One name per boot of a machine; a clock of its own where the system does not say.
std::string clock_name() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? fmt::format("{}:{}", host_name(), trace_now_ns()) : id;
}

int64_t wall_offset_ns() {
  const int64_t before = trace_now_ns();
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const int64_t after = trace_now_ns();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - (before + (after - before) / 2);
}

// Does not throw: an empty message stands for one that there is no memory for.
ProfilerStatus failure(const char* what, const std::exception& e) noexcept {
  try {
    return {Kind::failed, fmt::format("profiler: {}: {}", what, e.what())};
  } catch (...) {
    return {Kind::failed, {}};
  }
}

}  // namespace

Profiler::~Profiler() {
  if (is_running()) stop();
}

bool Profiler::is_running() const {
  const std::lock_guard lock(mutex_);
  return session_ != nullptr;
}

Trace Profiler::trace() const {
  const std::lock_guard lock(mutex_);
  return trace_;
}

ProfilerStatus Profiler::start(const ProfilerOptions& options) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (session_)
      return {Kind::busy, fmt::format("profiler: busy with the session '{}'; stop() it, or use another Profiler",
                                      session_->options.name)};
    const RankContext& context = RankContext::current();
    Trace trace{.name = options.name,
                .rank = context.rank(),
                .world_size = context.world_size(),
                .wall_offset_ns = wall_offset_ns(),
                .clock = clock_name(),
                .host = host_name()};
    const std::string path =
        options.path.empty() ? "" : std::filesystem::absolute(options.path).lexically_normal().string();
    std::string busy;
    session_ = TraceRecorder::process().open({.name = options.name,
                                              .path = path,
                                              .filter = options.filter,
                                              .events_per_thread = std::max<int64_t>(options.events_per_thread, 0),
                                              .memory = options.memory,
                                              .spans_only = options.spans_only},
                                             &busy);
    if (!session_) return {Kind::busy, "profiler: busy with " + busy};
    trace.start_ns = session_->start_ns;
    trace_ = std::move(trace);
    return {};
  } catch (const std::exception& e) {
    return failure("the session did not start", e);
  }
}

ProfilerStatus Profiler::stop() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!session_) return {Kind::not_running, "profiler: no session runs"};
    const std::shared_ptr<TraceSession> session = std::exchange(session_, nullptr);
    TraceHarvest harvest = TraceRecorder::process().close(session);
    trace_.threads = std::move(harvest.threads);
    trace_.end_ns = harvest.end_ns;
    trace_.dropped = harvest.dropped;
    trace_.other_sessions = TraceRecorder::process().running();
    if (!session->options.path.empty()) write_chrome_trace(trace_, session->options.path);
    return {};
  } catch (const std::exception& e) {
    return failure("the trace was not written", e);
  }
}

}  // namespace tutti
