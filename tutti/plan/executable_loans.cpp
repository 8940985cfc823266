// Memory that is lent to a call, such as parameters that ranks gather in groups: it is asked for before the first step
// that uses it and given back after the last, and also between two uses that are far apart, as those of a block in
// forward and backward are.
#include <algorithm>
#include <map>

#include "tutti/plan/executable_frame.h"
#include "tutti/tensor/lent_memory.h"

namespace tutti::graph {
namespace {

struct Used {
  MemoryLender* lender;
  bool takes_back;
  std::vector<int32_t> steps, buffers;
};

// Whether another lender's memory is needed between two uses of this one, and neither before nor after: that of the
// blocks between, whose forward and backward lie between the forward and the backward of this one. Blocks that only
// overlap a little do not take turns.
bool has_another_between(const std::vector<Used>& all, const Used& one, int32_t before, int32_t after) {
  return std::any_of(all.begin(), all.end(), [&](const Used& other) {
    return other.lender != one.lender && other.takes_back && other.steps.front() > before && other.steps.back() < after;
  });
}

}  // namespace

std::shared_ptr<const Executable::Loans> Executable::loans_of(const Frame& frame) const {
  std::vector<std::pair<MemoryLender*, bool>> lenders(graph_.buffers.size());
  for (size_t b = 0; b < lenders.size(); ++b) {
    MemoryLender* const lender = uses_[b].empty() ? nullptr : frame.memory[b].lender;
    lenders[b] = {lender, lender != nullptr && lender->takes_back()};
  }
  const std::lock_guard lock(loans_mutex_);
  if (loans_ != nullptr && loans_->lenders == lenders) return loans_;
  auto made = std::make_shared<Loans>();
  made->lenders = lenders;
  made->steps.resize(steps_.size() + 1);
  std::vector<Used> all;  // in the order in which they are needed
  std::map<MemoryLender*, size_t> places;
  for (size_t b = 0; b < lenders.size(); ++b) {
    const auto [lender, takes_back] = lenders[b];
    if (lender == nullptr) continue;
    const auto [place, is_new] = places.emplace(lender, all.size());
    if (is_new) all.push_back({lender, takes_back, {}, {}});
    Used& used = all[place->second];
    used.buffers.push_back(static_cast<int32_t>(b));
    used.steps.insert(used.steps.end(), uses_[b].begin(), uses_[b].end());
  }
  for (Used& used : all) std::sort(used.steps.begin(), used.steps.end());
  std::sort(all.begin(), all.end(), [](const Used& a, const Used& b) {
    return a.steps.front() < b.steps.front() ||
           (a.steps.front() == b.steps.front() && a.buffers.front() < b.buffers.front());
  });
  for (const Used& used : all) {
    const auto begin = [&](int32_t step) {
      Loans::Step& at = made->steps[static_cast<size_t>(step)];
      at.lend.push_back(used.lender);
      at.find.insert(at.find.end(), used.buffers.begin(), used.buffers.end());
    };
    begin(used.steps.front());
    if (!used.takes_back) continue;
    for (size_t i = 1; i < used.steps.size(); ++i) {
      if (!has_another_between(all, used, used.steps[i - 1], used.steps[i])) continue;
      made->steps[static_cast<size_t>(used.steps[i - 1])].take_back.emplace_back(used.lender, true);
      begin(used.steps[i]);
    }
    made->steps[static_cast<size_t>(used.steps.back())].take_back.emplace_back(used.lender, false);
  }
  loans_ = made;
  return loans_;
}

}  // namespace tutti::graph
