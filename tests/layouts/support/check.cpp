#include "tests/layouts/support/check.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>

#include "tests/layouts/support/one_rank.h"
#include "tests/layouts/support/parallel_run.h"
#include "tests/layouts/support/ranks.h"
#include "tutti/comm/process_group.h"
#include "tutti/ops/reshape.h"

namespace tutti::layouts {
namespace {

// The part of `whole` that a rank holds, flat.
Tensor piece_of(const Tensor& whole, const RankRecord::Piece& piece) {
  const Tensor part = piece.tp_dim < 0 ? whole : part_of(whole, piece.tp_dim, piece.tp);
  return part_of(reshape(part, {-1}), 0, {piece.flat_begin, piece.flat_end});
}

std::string hex(float value) { return fmt::format("{:08x} ({})", std::bit_cast<uint32_t>(value), value); }

// "" when equal in every bit, else a line with the first difference.
std::string difference(const std::string& what, std::span<const float> expected, std::span<const float> actual) {
  if (expected.size() != actual.size())
    return fmt::format("{}: {} elements, expected {}\n", what, actual.size(), expected.size());
  size_t different = 0, first = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &actual[i], sizeof(float)) == 0) continue;
    if (different++ == 0) first = i;
  }
  if (different == 0) return "";
  return fmt::format("{}: {} of {} elements differ, the first is {}: {}, expected {}\n", what, different,
                     expected.size(), first, hex(actual[first]), hex(expected[first]));
}

std::string difference(const std::string& what, const Tensor& expected, const Tensor& actual) {
  const auto elements = [](const Tensor& dense) {
    return std::span(dense.data<float>(), static_cast<size_t>(dense.numel()));
  };
  const Tensor a = to_contiguous(expected), b = to_contiguous(actual);
  return difference(what, elements(a), elements(b));
}

std::string differing_bits(const RankRecord& one, const RankRecord& rank) {
  std::string text;
  for (size_t step = 0; step < one.steps.size(); ++step) {
    const StepRecord &expected = one.steps[step], &actual = rank.steps[step];
    text += difference(fmt::format("loss of step {}", step), {&expected.loss, 1}, {&actual.loss, 1});
    text += difference(fmt::format("gradient norm of step {}", step), {&expected.norm, 1}, {&actual.norm, 1});
    for (const auto& [name, grad] : actual.grads)
      text += difference(fmt::format("gradient of {} in step {}", name, step),
                         piece_of(expected.grads.at(name), rank.pieces.at(name)), grad);
  }
  for (const auto& [name, weight] : rank.weights)
    text += difference("weight " + name, piece_of(one.weights.at(name), rank.pieces.at(name)), weight);
  return text;
}

double parameter_bytes(const RankRecord& one) {
  double bytes = 0;
  for (const auto& [name, weight] : one.weights) bytes += static_cast<double>(weight.nbytes());
  return bytes;
}

// What a rank has done and holds beyond its share and its plan.
std::string excess(const ModelConfig& config, const RankRecord& one, const RankRecord& rank, const Shares& shares) {
  std::string text;
  const auto at_most = [&](const char* what, double actual, double most) {
    if (!(actual <= most)) text += fmt::format("{}: {}, at most {}\n", what, actual, most);
  };
  const auto planned = [&](const char* what, double actual, double plan) {
    if (!(std::abs(actual - plan) <= 1e-6 * plan)) text += fmt::format("{}: {}, planned {}\n", what, actual, plan);
  };
  const Usage& u = rank.usage;
  const double whole = parameter_bytes(one), parameters = static_cast<double>(u.planned_parameter_bytes);
  at_most("operations", u.flops, shares.flops * one.usage.flops);
  at_most("planned parameter bytes", parameters, shares.parameters * whole);
  // The allocator rounds a block up to one of four sizes per power of two, at least to a cache line.
  const double most = 1.25 * parameters + 64.0 * static_cast<double>(rank.weights.size());
  at_most("parameter bytes", static_cast<double>(u.parameter_bytes), most);
  at_most("optimizer bytes", static_cast<double>(u.optimizer_bytes), 2 * most);
  at_most("parameter bytes at the peak", static_cast<double>(u.peak_parameter_bytes()),
          shares.parameters_at_peak * whole);
  // What experts get depends on the tokens; all else is known from sizes.
  if (config.experts > 0) return text;
  planned("operations", u.flops, u.planned_flops);
  planned("bytes sent", u.wire_bytes, u.planned_wire_bytes);
  return text;
}

std::string usage_line(const Usage& u) {
  std::string line = fmt::format(
      "{:.3f} MFLOP (plan {:.3f}), wire {:.0f} B (plan {:.0f}), parameters {} B (plan {}), at peak", u.flops * 1e-6,
      u.planned_flops * 1e-6, u.wire_bytes, u.planned_wire_bytes, u.parameter_bytes, u.planned_parameter_bytes);
  for (int c = 0; c < kNumMemoryCategories; ++c) {
    const int64_t bytes = u.memory.at_peak_by_category[static_cast<size_t>(c)];
    if (bytes > 0) line += fmt::format(" {} {}", name_of(static_cast<MemoryCategory>(c)), bytes);
  }
  return line;
}

}  // namespace

std::string differences(const std::string& transport, const RankRecord& one, const ModelConfig& config,
                        const RunConfig& run, const Layout& layout, const Shares& shares) {
  return failures_of_ranks(transport, layout.ranks(), [&](comm::ProcessGroup& world) {
    const RankRecord mine = train_rank(config, run, layout, world);
    std::string wrong = differing_bits(one, mine) + excess(config, one, mine, shares);
    double flops[] = {mine.usage.flops, mine.usage.planned_flops};
    world.all_reduce_values<double>(flops);
    if (!(std::abs(flops[0] - flops[1]) <= 1e-6 * flops[1]))
      wrong += fmt::format("operations of all ranks: {}, planned {}\n", flops[0], flops[1]);
    // Rank 0 talks for all.
    const std::vector<std::string> lines = world.gather_bytes(usage_line(mine.usage), 0),
                                   findings = world.gather_bytes(wrong, 0);
    if (world.rank() != 0) return;
    std::string text;
    for (size_t r = 0; r < lines.size(); ++r) {
      fmt::print("  rank {}: {}\n", r, lines[r]);
      if (!findings[r].empty()) text += fmt::format("rank {}:\n{}", r, findings[r]);
    }
    std::fflush(stdout);  // a process of its own ends without it
    if (!text.empty()) throw std::runtime_error(text);
  });
}

void check_layout(ModelConfig config, const RunConfig& run, const Layout& layout, const Shares& shares) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    config.compute = compute;
    const RankRecord one = run_one_rank(config, run);
    for (const std::string& transport : transports()) {
      // In bf16 ranks send f32 as well: partial sums. So one of the dtypes is enough for processes, which take longer
      // to start.
      if (transport != "threads" && (compute == DType::f32 || layout.ranks() == 1)) continue;
      const std::string title = fmt::format("{} {}, {} over {}", config.experts ? "moe" : "dense", name_of(compute),
                                            layout.name(), transport);
      fmt::print("{}\n  one rank: {:.3f} MFLOP, {:.0f} parameter bytes\n", title, one.usage.flops * 1e-6,
                 parameter_bytes(one));
      EXPECT_EQ(differences(transport, one, config, run, layout, shares), "") << title;
    }
  }
}

void check_layout(Model model, const Layout& layout, const Shares& shares) {
  const TinyLeaves leaves;
  check_layout(model == Model::dense ? dense_config(DType::f32) : moe_config(DType::f32), {}, layout, shares);
}

}  // namespace tutti::layouts
