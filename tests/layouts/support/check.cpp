#include "tests/layouts/support/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/layouts/support/one_rank.h"
#include "tests/layouts/support/parallel_run.h"
#include "tutti/ops/reshape.h"

namespace tutti::layouts {
namespace {

// The part of `whole` that a rank holds, flat.
Tensor piece_of(const Tensor& whole, const RankRecord::Piece& piece) {
  const Tensor part = piece.tp_dim < 0 ? whole : part_of(whole, piece.tp_dim, piece.tp);
  return part_of(reshape(part, {-1}), 0, {piece.flat_begin, piece.flat_end});
}

std::string hex(float value) { return fmt::format("{:08x} ({})", std::bit_cast<uint32_t>(value), value); }

// "" when equal in every bit, else the first difference.
std::string difference(const Tensor& expected, const Tensor& actual) {
  if (expected.numel() != actual.numel()) return fmt::format("{} elements, expected {}", actual.numel(), expected.numel());
  const Tensor a = to_contiguous(expected), b = to_contiguous(actual);
  int64_t different = 0, first = -1;
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (std::memcmp(a.data<float>() + i, b.data<float>() + i, 4) == 0) continue;
    if (different++ == 0) first = i;
  }
  if (different == 0) return "";
  return fmt::format("{} of {} elements differ, the first is {}: {}, expected {}", different, a.numel(), first,
                     hex(b.data<float>()[first]), hex(a.data<float>()[first]));
}

void expect_same_bits(const RankRecord& one, const RankRecord& rank, const std::string& where) {
  for (size_t step = 0; step < one.steps.size(); ++step) {
    const StepRecord &expected = one.steps[step], &actual = rank.steps[step];
    const std::string at = fmt::format("{}, step {}", where, step);
    EXPECT_EQ(hex(expected.loss), hex(actual.loss)) << at << ": loss";
    EXPECT_EQ(hex(expected.norm), hex(actual.norm)) << at << ": gradient norm";
    for (const auto& [name, grad] : actual.grads)
      EXPECT_EQ(difference(piece_of(expected.grads.at(name), rank.pieces.at(name)), reshape(grad, {-1})), "") << at << ": gradient of " << name;
  }
  for (const auto& [name, weight] : rank.weights)
    EXPECT_EQ(difference(piece_of(one.weights.at(name), rank.pieces.at(name)), weight), "") << where << ": weight " << name;
}

void print(const std::string& title, const RankRecord& one, const std::vector<RankRecord>& ranks) {
  int64_t whole = 0;
  for (const auto& [name, weight] : one.weights) whole += weight.nbytes();
  fmt::print("{}\n  one rank: {:.3f} MFLOP, {} parameter bytes\n", title, one.usage.flops * 1e-6, whole);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Usage& u = ranks[r].usage;
    fmt::print("  rank {}: {:.3f} MFLOP (plan {:.3f}), wire {:.0f} B (plan {:.0f}), parameters {} B (plan {}), at peak", r,
               u.flops * 1e-6, u.planned_flops * 1e-6, u.wire_bytes, u.planned_wire_bytes, u.parameter_bytes, u.planned_parameter_bytes);
    for (int c = 0; c < kNumMemoryCategories; ++c) {
      const int64_t bytes = u.memory.at_peak_by_category[static_cast<size_t>(c)];
      if (bytes > 0) fmt::print(" {} {}", name_of(static_cast<MemoryCategory>(c)), bytes);
    }
    fmt::print("\n");
  }
}

void expect_falling(const ModelConfig& config, const RankRecord& one, const std::vector<RankRecord>& ranks, const Shares& shares) {
  double whole = 0, flops = 0, planned = 0;
  for (const auto& [name, weight] : one.weights) whole += static_cast<double>(weight.nbytes());
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Usage& u = ranks[r].usage;
    EXPECT_LE(u.flops, shares.flops * one.usage.flops) << "operations of rank " << r;
    EXPECT_LE(static_cast<double>(u.planned_parameter_bytes), shares.parameters * whole) << "parameter bytes of rank " << r;
    // The allocator rounds a block up to one of four sizes per power of two, at least to a cache line.
    const double blocks = 64.0 * static_cast<double>(ranks[r].weights.size());
    const double most = 1.25 * static_cast<double>(u.planned_parameter_bytes) + blocks;
    EXPECT_LE(static_cast<double>(u.parameter_bytes), most) << "rank " << r;
    EXPECT_LE(static_cast<double>(u.optimizer_bytes), 2 * most) << "rank " << r;
    EXPECT_LE(static_cast<double>(u.peak_parameter_bytes()), shares.parameters_at_peak * whole) << "at the peak of rank " << r;
    flops += u.flops;
    planned += u.planned_flops;
    // What experts get depends on the tokens; all else is known from sizes.
    if (config.experts > 0) continue;
    EXPECT_NEAR(u.flops, u.planned_flops, 1e-6 * u.planned_flops) << "rank " << r;
    EXPECT_NEAR(u.wire_bytes, u.planned_wire_bytes, 1e-6 * u.planned_wire_bytes) << "rank " << r;
  }
  EXPECT_NEAR(flops, planned, 1e-6 * planned) << "operations of all ranks";
}

}  // namespace

void check_layout(ModelConfig config, const RunConfig& run, const Layout& layout, const Shares& shares) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    config.compute = compute;
    const RankRecord one = run_one_rank(config, run);
    const std::vector<RankRecord> ranks = run_layout(config, run, layout);
    const std::string title = fmt::format("{} {}, {}", config.experts ? "moe" : "dense", name_of(compute), layout.name());
    print(title, one, ranks);
    for (size_t r = 0; r < ranks.size(); ++r) expect_same_bits(one, ranks[r], fmt::format("{}, rank {}", title, r));
    expect_falling(config, one, ranks, shares);
  }
}

void check_layout(Model model, const Layout& layout, const Shares& shares) {
  const TinyLeaves leaves;
  check_layout(model == Model::dense ? dense_config(DType::f32) : moe_config(DType::f32), {}, layout, shares);
}

}  // namespace tutti::layouts
