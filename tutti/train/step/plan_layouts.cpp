#include "tutti/train/step/plan_layouts.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/nn/moe.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/task/task_kind.h"

namespace tutti::train {
namespace {

constexpr double kMiB = 1 << 20;

double mib(double bytes) { return bytes / kMiB; }
double mib(int64_t bytes) { return mib(static_cast<double>(bytes)); }

const RankMemory& smallest(const StepPlan& plan) {
  return *std::min_element(plan.of_ranks.begin(), plan.of_ranks.end(),
                           [](const RankMemory& a, const RankMemory& b) { return a.peak() < b.peak(); });
}

PlannedLayout planned(StepPlanner& planner, int64_t ranks, const DataDegrees& degrees, bool is_shared) {
  PlannedLayout layout{.degrees = degrees};
  try {
    layout.plan = planner.plan(ranks, degrees, is_shared);
  } catch (const UsageError& e) {
    layout.refusal = e.what();
  }
  return layout;
}

}  // namespace

PlannedLayout plan_layout(const Config& config, int64_t ranks, bool is_shared) {
  const DataDegrees degrees = data_degrees(config.parallelism, ranks);
  return {.degrees = degrees, .plan = task_kind(config).plan(config, ranks, is_shared)};
}

std::vector<PlannedLayout> plan_layouts(const Config& config, int64_t ranks, bool is_shared) {
  if (!task_kind(config).divides_model) return {plan_layout(config, ranks, is_shared)};
  StepPlanner planner(config);
  std::vector<PlannedLayout> layouts;
  const bool has_experts = !nn::moe_layers(*build_model(config)).empty();
  // What refuses several meshes alike, such as a degree of tensor parallelism, is told once.
  const auto add = [&](StepPlanner& by, const DataDegrees& degrees) {
    PlannedLayout layout = planned(by, ranks, degrees, is_shared);
    if (layout.plan || layouts.empty() || layouts.back().refusal != layout.refusal)
      layouts.push_back(std::move(layout));
  };
  for (int64_t tensor = 1; tensor <= ranks && (tensor == 1 || !has_experts); ++tensor) {
    if (ranks % tensor != 0) continue;
    const int64_t data = ranks / tensor;
    for (int64_t shard = 1; shard <= data; ++shard) {
      if (data % shard == 0) add(planner, {data / shard, shard, tensor});
    }
  }
  // Where ranks divide experts, their schedule is planned, whatever was asked for.
  Config rounds = config;
  rounds.parallelism.data_parallel_schedule = "auto";
  StepPlanner of_experts(rounds);
  for (int64_t expert = 1; has_experts && expert <= ranks && ranks % expert == 0; expert *= 2) {
    for (int64_t tensor = expert == 1 ? 2 : 1; tensor <= ranks && ranks % tensor == 0; tensor *= 2) {
      for (int64_t shard = 1, data = ranks / tensor; shard <= data; ++shard) {
        if (data % shard == 0) add(of_experts, {data / shard, shard, tensor, expert});
      }
    }
  }
  std::stable_sort(layouts.begin(), layouts.end(), [](const PlannedLayout& a, const PlannedLayout& b) {
    if (!a.plan || !b.plan) return a.plan.has_value() && !b.plan.has_value();
    const int64_t left = a.plan->largest().peak(), right = b.plan->largest().peak();
    return left != right ? left < right : a.plan->sent_bytes() < b.plan->sent_bytes();
  });
  return layouts;
}

std::string mesh_name(const DataDegrees& degrees) {
  const std::pair<const char*, int64_t> dims[] = {
      {"dp_replicate", degrees.replicate}, {"dp_shard", degrees.shard}, {"tp", degrees.tensor}, {"ep", degrees.expert}};
  std::string text;
  for (const auto& [name, degree] : dims) {
    if (degree > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, degree);
  }
  return text.empty() ? "1 rank" : text;
}

std::string plan_text(const PlannedLayout& layout, int64_t local_ranks) {
  const StepPlan& plan = *layout.plan;
  const RankMemory &most = plan.largest(), &least = smallest(plan);
  std::string text = fmt::format("mesh {}{}\n\n{:<14}{:>14}\n", mesh_name(layout.degrees),
                                 layout.degrees.shard == 1 ? ""
                                 : plan.is_shared          ? ", the ranks read one copy of the parameters"
                                                           : ", each rank gathers the parameters",
                                 "memory", "MiB a rank");
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const int64_t bytes = most.by_category[static_cast<size_t>(i)];
    if (bytes > 0) text += fmt::format("{:<14}{:>14.1f}\n", name_of(static_cast<MemoryCategory>(i)), mib(bytes));
  }
  text += fmt::format("{:<14}{:>14.1f}", "peak", mib(most.peak()));
  if (least.peak() != most.peak()) text += fmt::format(" (the rank with the least: {:.1f})", mib(least.peak()));
  text += fmt::format("\n{:<14}{:>14.1f} for {} rank{}\n", "host", mib(plan.host_bytes(local_ranks)), local_ranks,
                      local_ranks == 1 ? "" : "s");
  if (plan.ranks > 1)
    text += fmt::format("{:<14}{:>14.1f} a step: gradients {:.1f}, parameters {:.1f}, activations {:.1f}\n", "sent",
                        mib(plan.sent_bytes()), mib(plan.gradient_bytes), mib(plan.parameter_bytes),
                        mib(plan.activation_bytes));
  return text;
}

std::string tensors_text(const PlannedLayout& layout) {
  std::string text = fmt::format("mesh {}\n\n{:<60}{:<22}{:>16}{:>16}\n", mesh_name(layout.degrees), "parameter",
                                 "sizes", "bytes", "bytes a rank");
  int64_t parameters = 0, largest = 0;
  std::vector<int64_t> of_ranks(layout.plan->of_ranks.size());
  for (const PlannedTensor& tensor : layout.plan->tensors) {
    const int64_t count = numel_of(tensor.sizes);
    text += fmt::format("{:<60}{:<22}{:>16}{:>16}\n", tensor.name, fmt::format("{}", tensor.sizes),
                        count * itemsize(DType::f32), tensor.most());
    parameters += count;
    for (size_t r = 0; r < of_ranks.size(); ++r) of_ranks[r] += tensor.stored_bytes[r];
  }
  for (const int64_t bytes : of_ranks) largest = std::max(largest, bytes);
  return text +
         fmt::format("{:<60}{:<22}{:>16}{:>16}\n", "all", parameters, parameters * itemsize(DType::f32), largest);
}

std::string plans_text(const std::vector<PlannedLayout>& layouts, int64_t local_ranks) {
  std::string text = fmt::format("{:<48}{:>12}{:>14}{:>14}\n", "mesh", "MiB a rank", "MiB a host", "MiB sent");
  for (const PlannedLayout& layout : layouts) {
    const std::string name = mesh_name(layout.degrees);
    if (layout.plan) {
      text += fmt::format("{:<48}{:>12.1f}{:>14.1f}{:>14.1f}\n", name, mib(layout.plan->largest().peak()),
                          mib(layout.plan->host_bytes(local_ranks)), mib(layout.plan->sent_bytes()));
    } else {
      text += fmt::format("{:<48}not possible: {}\n", name, layout.refusal);
    }
  }
  return text;
}

std::string plans_svg(const std::vector<PlannedLayout>& layouts) {
  constexpr double kWidth = 760, kLeft = 220, kRight = 80, kBar = 22, kGap = 10, kTop = 44;
  constexpr const char* kColours[kNumMemoryCategories] = {"#2f5fd0", "#3f8f5b", "#c2571a",
                                                          "#8a5fb0", "#b0892f", "#7a7c86"};
  double longest = 1;
  int64_t count = 0;
  for (const PlannedLayout& layout : layouts) {
    if (!layout.plan) continue;
    ++count;
    longest = std::max(longest, static_cast<double>(layout.plan->largest().peak()));
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"system-ui, sans-serif\" "
      "font-size=\"13\" fill=\"#6c6e78\">\n",
      kWidth, kTop + static_cast<double>(count) * (kBar + kGap));
  double x = 0;
  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const std::string_view name = name_of(static_cast<MemoryCategory>(i));
    svg += fmt::format(
        "<rect x=\"{0}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{1}\"/><text x=\"{2}\" y=\"19\">{3}</text>\n", x,
        kColours[i], x + 18, name);
    x += 46 + 7.2 * static_cast<double>(name.size());
  }
  double y = kTop;
  for (const PlannedLayout& layout : layouts) {
    if (!layout.plan) continue;
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLeft - 10, y + 16,
                       mesh_name(layout.degrees));
    double at = kLeft;
    for (int i = 0; i < kNumMemoryCategories; ++i) {
      const double width = static_cast<double>(layout.plan->largest().by_category[static_cast<size_t>(i)]) / longest *
                           (kWidth - kLeft - kRight);
      if (width > 0)
        svg += fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n", at, y, width,
                           kBar, kColours[i]);
      at += width;
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{:.1f} MiB</text>\n", at + 6, y + 16,
                       mib(layout.plan->largest().peak()));
    y += kBar + kGap;
  }
  return svg + "</svg>\n";
}

}  // namespace tutti::train
