#include "tutti/ops/chunked_loss/plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/chunked_loss/bound_error.h"
#include "tutti/ops/chunked_loss/steps.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/size_class.h"

namespace tutti::chunked_loss {
namespace {

// What a chunk costs besides its products, in parts of one product: packing and partial sums, per row and class of the
// chunk.
constexpr double kChunkOverhead = 44;
// Beyond, a chunk of logits leaves the last-level cache and is read from memory by each step, and gemm() no longer
// packs it as a whole for the gradient of x; the cost falls with the work that a logit is, its features.
constexpr double kNearBytes = 7 << 20, kFarCost = 100;

// A chunk of so many rows and classes, in such a place of two trees.
struct Chunk {
  int64_t rows, classes;
  int row_slots, class_slots;
};
using BytesOf = std::function<int64_t(const Chunk&)>;

struct Choice {
  int row_levels = 0, class_levels = 0;
  Chunk chunk{};
  int64_t nbytes = std::numeric_limits<int64_t>::max();
  double cost = std::numeric_limits<double>::infinity();
};

class Planner {
 public:
  explicit Planner(const OpCall& call) : call_(call), attrs_(attrs_of(call)) {}

  // The cheapest chunks within max_bytes that hold `bytes_of` bytes, with `products` products each; none fits: the
  // smallest. cuts_classes: else a chunk has all of them.
  Choice choose(int64_t row_leaf, double products, const BytesOf& bytes_of, bool cuts_classes = true) const {
    const int64_t N = rows_of(call_), V = classes_of(call_);
    const int64_t class_leaf_size = std::max<int64_t>(class_leaf(), codegen::contraction_leaf());
    const int most_class_levels = cuts_classes ? tree_levels(V, class_leaf_size) : 0;
    Choice best, smallest;
    int64_t B = N;
    for (int row_levels = 0; row_levels <= tree_levels(N, row_leaf); ++row_levels, B -= B / 2) {
      if (row_levels < tree_levels(N, row_leaf) && attrs_.chunk_rows > 0 && B > attrs_.chunk_rows) continue;
      check_cut("chunk_rows", attrs_.chunk_rows, B, "rows", row_leaf);
      int64_t C = V;
      for (int class_levels = 0; class_levels <= most_class_levels; ++class_levels, C -= C / 2) {
        if (class_levels < most_class_levels && attrs_.chunk_classes > 0 && C > attrs_.chunk_classes) continue;
        check_cut("chunk_classes", attrs_.chunk_classes, C, "classes", class_leaf_size);
        Choice c{row_levels, class_levels, {B, C, row_levels + 1, class_levels + 1}};
        c.nbytes = bytes_of(c.chunk);
        c.cost = products +
                 kChunkOverhead * (1.0 / static_cast<double>(std::max<int64_t>(B, 1)) + 1.0 / static_cast<double>(C));
        if (static_cast<double>(logit_bytes(c.chunk)) > kNearBytes)
          c.cost += kFarCost / static_cast<double>(features_of(call_) + 1);
        if (c.nbytes < smallest.nbytes) smallest = c;
        if (c.nbytes <= attrs_.max_bytes && c.cost < best.cost) best = c;
      }
    }
    return best.nbytes <= attrs_.max_bytes ? best : smallest;
  }

  bool fits(const Choice& c) const { return c.nbytes <= attrs_.max_bytes; }
  void require(const Choice& c, const char* what) const {
    if (fits(c)) return;
    throw BoundError(fmt::format("linear_cross_entropy: max_bytes = {} is too small for {} rows, {} features and {} "
                                 "classes: {} needs {} bytes "
                                 "for its smallest chunks, {} rows by {} classes; raise max_bytes to at least that",
                                 attrs_.max_bytes, rows_of(call_), features_of(call_), classes_of(call_), what,
                                 c.nbytes, c.chunk.rows, c.chunk.classes),
                     c.nbytes);
  }
  ChunkPlan plan(const Choice& c, int64_t row_leaf) const {
    return {tree_parts(rows_of(call_), c.row_levels, row_leaf),
            tree_parts(classes_of(call_), c.class_levels, std::max<int64_t>(class_leaf(), codegen::contraction_leaf())),
            c.nbytes};
  }
  int64_t logit_bytes(const Chunk& c) const { return block_bytes(c.rows * c.classes * itemsize(logits_of(call_))); }

 private:
  static void check_cut(const char* name, int64_t wanted, int64_t smallest, const char* what, int64_t leaf) {
    TUTTI_CHECK(wanted == 0 || smallest <= wanted,
                "linear_cross_entropy: {} = {} would cut a leaf of {} {}, whose sum is one chain: the smallest "
                "chunk here is {} {}",
                name, wanted, leaf, what, smallest, what);
  }

  const OpCall& call_;
  const LossAttrs& attrs_;
};

// Sums that wait, without the one that grows in the result itself when that has the dtype of sums.
int64_t waiting(int slots, bool in_result) { return slots == 1 ? 0 : slots - in_result; }

}  // namespace

std::string ChunkPlan::describe() const {
  return fmt::format("{} x {} chunks of {} x {} logits, {} bytes", rows.size(), classes.size(), chunk_rows(),
                     chunk_classes(), nbytes);
}

int slots_of_leaves(const OpCall& call, int64_t classes) {
  return has_mix(call) ? tree_levels(classes, class_leaf()) : 0;
}

ChunkPlan plan_statistics(const OpCall& call) {
  const Planner planner(call);
  const int64_t columns = statistics_columns(call), size = itemsize(computes_in(call));
  const Choice choice = planner.choose(1, 1, [&](const Chunk& c) {
    return planner.logit_bytes(c) +
           block_bytes((c.class_slots + slots_of_leaves(call, c.classes) + 1) * columns * c.rows * size);
  });
  planner.require(choice, "the forward");
  return planner.plan(choice, 1);
}

GradientPlan plan_gradients(const OpCall& call) {
  const Planner planner(call);
  const bool x = needs(call, kNeedX), weight = needs(call, kNeedWeight), bias = needs(call, kNeedBias);
  const int64_t N = rows_of(call), F = features_of(call), size = itemsize(computes_in(call)), grain = token_grain();
  const bool x_in_result = attrs_of(call).partial || call[kX].dtype() == computes_in(call);
  const auto bytes_of_parameters = [&](const Chunk& c) {
    const int64_t sums = waiting(c.row_slots, true) * c.classes * size;
    return planner.logit_bytes(c) + (weight ? block_bytes(sums * F) : 0) + (bias ? block_bytes(sums) : 0);
  };
  GradientPlan plan;
  if (x && (weight || bias)) {
    const Choice together = planner.choose(grain, 2 + weight, [&](const Chunk& c) {
      return bytes_of_parameters(c) + block_bytes(waiting(c.class_slots, x_in_result) * N * F * size);
    });
    if (planner.fits(together)) {
      plan.classes_outside = planner.plan(together, grain);
      plan.together = true;
      return plan;
    }
  }
  if (weight || bias) {
    const Choice choice = planner.choose(grain, 1 + weight, bytes_of_parameters);
    planner.require(choice, weight ? "the gradient of the weight" : "the gradient of the bias");
    plan.classes_outside = planner.plan(choice, grain);
  }
  if (x) {
    const Choice choice = planner.choose(1, 2, [&](const Chunk& c) {
      return planner.logit_bytes(c) + block_bytes(waiting(c.class_slots, x_in_result) * c.rows * F * size);
    });
    planner.require(choice, "the gradient of the input");
    plan.rows_outside = planner.plan(choice, 1);
  }
  return plan;
}

ChunkPlan plan_in_forward(const OpCall& call) {
  const Planner planner(call);
  const bool x = needs(call, kNeedX), weight = needs(call, kNeedWeight), bias = needs(call, kNeedBias);
  const int64_t F = features_of(call), size = itemsize(computes_in(call)),
                row_leaf = weight || bias ? token_grain() : 1;
  const Choice choice = planner.choose(
      row_leaf, 1 + x + weight,
      [&](const Chunk& c) {
        const int64_t sums = waiting(c.row_slots, true) * c.classes * size;
        return planner.logit_bytes(c) + block_bytes(kPlainColumns * c.rows * size) +
               (weight ? block_bytes(sums * F) : 0) + (bias ? block_bytes(sums) : 0);
      },
      false);
  planner.require(choice, "a forward with gradients");
  return planner.plan(choice, row_leaf);
}

int64_t room_within_bound(const OpCall& call, int64_t) {
  if (attrs_of(call).needs != 0) plan_gradients(call);
  if (call.inputs.size() == kForwardInputs) plan_statistics(call);
  return 0;
}

}  // namespace tutti::chunked_loss
