// What an engine is asked between two steps, as the first of the ranks that run it tells the others.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/generate/request.h"

namespace tutti::generate {

struct StepCalls {
  std::vector<std::pair<RequestId, Request>> submitted;
  std::vector<RequestId> cancelled;
  std::vector<RequestId> late;  // their deadlines have passed on the first rank, whose clock decides
  bool ends = false;            // the others return from Engine::follow()
};

// Requests lose their deadlines: `late` tells of them.
std::string bytes_of(const StepCalls& calls);
// InternalError for other bytes than those of bytes_of().
StepCalls step_calls_in(std::string_view bytes);

}  // namespace tutti::generate
