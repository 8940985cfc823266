#include "cli/print_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>

#include "tutti/core/error.h"
#include "tutti/job/printable.h"

namespace tutti::cli {
namespace {

using train::RunDiff;

constexpr size_t kShownTensors = 10;

// "1 step", "3 steps"
template <class N>
std::string counted(N n, const char* noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

// "steps 1 to 20", "steps 5, 10 and 3 more"
std::string shown(const std::vector<int64_t>& steps) {
  if (steps.size() == 1) return fmt::format("step {}", steps[0]);
  if (steps.back() - steps.front() + 1 == static_cast<int64_t>(steps.size()))
    return fmt::format("steps {} to {}", steps.front(), steps.back());
  constexpr size_t kShown = 8;
  const auto end = steps.begin() + static_cast<ptrdiff_t>(std::min(kShown, steps.size()));
  std::string text = fmt::format("steps {}", fmt::join(steps.begin(), end, ", "));
  if (steps.size() > kShown) text += fmt::format(" and {} more", steps.size() - kShown);
  return text;
}

std::string shown(const train::TensorDifference& t) {
  if (!t.shapes.empty()) return fmt::format("{}: {}", t.name, t.shapes);
  return fmt::format(
      "{} {}: {} of {} elements, at most {} ULPs and relatively {:.1e} apart; first [{}]: {} | {}, {} ULPs apart",
      t.name, name_of(t.dtype), t.differing, t.numel, t.most_ulps, t.distance, fmt::join(t.element, ", "), t.a, t.b,
      t.ulps);
}

std::string verdict(const RunDiff& diff) {
  if (diff.same_bits())
    return fmt::format("same bits: {}, {} of {}", counted(diff.steps.size(), "step"), counted(diff.tensors, "tensor"),
                       counted(diff.checkpoints.size(), "checkpoint"));
  std::string text = "different:";
  if (diff.number) text += fmt::format(" {} from step {} on", diff.number->what, diff.number->step);
  if (diff.number && !diff.differing.empty()) text += ";";
  if (!diff.differing.empty()) text += fmt::format(" {} at step {}", diff.differing[0].name, diff.differing[0].step);
  return text;
}

void print_text(const RunDiff& diff) {
  for (const train::SettingDifference& s : diff.settings) {
    fmt::print("setting {}: {} | {}{}\n", s.key, s.a, s.b,
               s.may_change_numbers ? " (may change the numbers)" : " (does not change the numbers)");
  }
  if (!diff.only_in_a.empty()) fmt::print("only in the first: {}\n", shown(diff.only_in_a));
  if (!diff.only_in_b.empty()) fmt::print("only in the second: {}\n", shown(diff.only_in_b));
  if (!diff.checkpoints_only_in_a.empty())
    fmt::print("checkpoints only in the first: {}\n", shown(diff.checkpoints_only_in_a));
  if (!diff.checkpoints_only_in_b.empty())
    fmt::print("checkpoints only in the second: {}\n", shown(diff.checkpoints_only_in_b));
  if (diff.number) {
    const train::NumberDifference& n = *diff.number;
    fmt::print("numbers of {}: first difference at step {}: {} {} | {}, {} ULPs apart\n", shown(diff.steps), n.step,
               n.what, n.a, n.b, n.ulps);
  } else if (!diff.steps.empty()) {
    fmt::print("numbers of {}: same bits\n", shown(diff.steps));
  }
  if (!diff.checkpoints.empty() && diff.differing.empty())
    fmt::print("checkpoints of {}: {} tensors, same bits\n", shown(diff.checkpoints), diff.tensors);
  if (!diff.differing.empty())
    fmt::print("checkpoint of step {}: {} tensor{} differ{}\n", diff.differing[0].step, diff.differing.size(),
               diff.differing.size() == 1 ? "" : "s", diff.differing.size() == 1 ? "s" : ", the farthest apart first");
  for (size_t i = 0; i < std::min(kShownTensors, diff.differing.size()); ++i)
    fmt::print("  {}\n", shown(diff.differing[i]));
  if (diff.differing.size() > kShownTensors) fmt::print("  and {} more\n", diff.differing.size() - kShownTensors);
  fmt::print("{}\n", verdict(diff));
}

void print_json(const RunDiff& diff) {
  nlohmann::json top = {{"same_bits", diff.same_bits()},
                        {"steps", diff.steps},
                        {"only_in_a", diff.only_in_a},
                        {"only_in_b", diff.only_in_b},
                        {"checkpoints_only_in_a", diff.checkpoints_only_in_a},
                        {"checkpoints_only_in_b", diff.checkpoints_only_in_b},
                        {"checkpoints", diff.checkpoints},
                        {"tensors", diff.tensors},
                        {"settings", nlohmann::json::array()},
                        {"number", nullptr},
                        {"differing", nlohmann::json::array()}};
  for (const train::SettingDifference& s : diff.settings)
    top["settings"].push_back({{"key", s.key}, {"a", s.a}, {"b", s.b}, {"may_change_numbers", s.may_change_numbers}});
  if (const auto& n = diff.number)
    top["number"] = {{"step", n->step}, {"what", n->what}, {"a", n->a}, {"b", n->b}, {"ulps", n->ulps}};
  for (const train::TensorDifference& t : diff.differing) {
    nlohmann::json row = {{"step", t.step}, {"name", t.name}};
    if (!t.shapes.empty()) row["shapes"] = t.shapes;
    else
      row.update({{"dtype", name_of(t.dtype)},
                  {"element", std::vector<int64_t>(t.element.begin(), t.element.end())},
                  {"a", t.a},
                  {"b", t.b},
                  {"ulps", t.ulps},
                  {"differing", t.differing},
                  {"numel", t.numel},
                  {"most_ulps", t.most_ulps},
                  {"distance", t.distance}});
    top["differing"].push_back(std::move(row));
  }
  fmt::print("{}\n", top.dump());
}

}  // namespace

int tell_difference(const std::function<RunDiff()>& compare, bool json) {
  RunDiff diff;
  try {
    diff = compare();
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tutti: error: out of memory\n");
    return kCannotTell;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti: error: %s\n", comm::printable_lines(error.what()).c_str());
    return kCannotTell;
  }
  if (json) print_json(diff);
  else print_text(diff);
  return diff.same_bits() ? 0 : 1;
}

}  // namespace tutti::cli
