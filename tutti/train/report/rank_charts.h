// Charts of the ranks of a run, as inline SVG for the report: the memory of each by category, planned and measured, and
// the timeline of one step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "tutti/runtime/allocator.h"
#include "tutti/train/report/step_timeline.h"

namespace tutti::train {

// In bytes, by MemoryCategory, at the highest peak of a step.
struct RankMemoryBars {
  std::array<int64_t, kNumMemoryCategories> planned{}, measured{};
};

// "" for no ranks; the first 16 are drawn.
std::string render_rank_memory(std::span<const RankMemoryBars> ranks);
// A row for each rank, with the time of each kind as text beside it.
std::string render_timeline(const StepTimeline& timeline);

}  // namespace tutti::train
