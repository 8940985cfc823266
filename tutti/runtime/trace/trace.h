// Trace: the events of one session, with the information needed to interpret them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti {

// Cheap to copy; events are shared.
struct Trace {
  std::string name;
  int rank = 0, world_size = 1;      // those of the context that started the session
  int64_t start_ns = 0, end_ns = 0;  // times of the monotonic clock
  int64_t wall_offset_ns = 0;        // wall clock minus monotonic clock, when the session started
  std::string clock;  // identifies the monotonic clock: equal on ranks that share it (one boot of one machine)
  std::string host;
  int64_t dropped = 0;
  std::vector<std::string> other_sessions;  // sessions that were running when this one ended
  std::vector<TraceHarvest::Thread> threads;

  int64_t event_count() const {
    int64_t n = 0;
    for (const TraceHarvest::Thread& thread : threads) n += thread.size;
    return n;
  }
};

}  // namespace tutti
