// The tape: what autograd remembers of a forward computation.
//
// The Autograd stage records one Node per op call that has an input with requires_grad. A node keeps the tensors its
// gradient asked for, with their versions: writing one in place before backward is an error that names the op. Nodes
// carry their place in forward order; cotangents of one value are summed in the order of its consumers (numerics
// contract, N5), so the sum does not depend on how backward walks the graph.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tutti/ops/engine/dispatch.h"

namespace tutti {

struct TracePlace;

namespace autograd {

// Place in forward order. Checkpointed regions number their recomputed nodes one level below the region's own place.
struct Order {
  static constexpr int kLevels = 4;
  std::array<uint64_t, kLevels> place{};
  friend auto operator<=>(const Order&, const Order&) = default;
};

// The next place on this thread's rank.
Order next_order();

// The region that is being recomputed on this thread's rank, 0 outside of any; equal numbers mean the same region.
uint64_t current_region();

// Ops recorded while this lives are numbered inside the region that stands at `region`.
class RegionScope {
 public:
  explicit RegionScope(const Order& region);
  ~RegionScope();
  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

 private:
  Order saved_;
  int saved_level_;
};

struct Node;

// Where the cotangent of an input goes: output `index` of `node`, or a leaf (node null).
struct Edge {
  std::shared_ptr<Node> node;
  int index = 0;
  Tensor leaf;  // defined when the input is a leaf that wants its gradient
  bool wanted() const { return node != nullptr || leaf.defined(); }
};

using Hook = std::function<Tensor(const Tensor& cotangent)>;

// One recorded call. `run` maps cotangents of the outputs to cotangents of the inputs.
struct Node : std::enable_shared_from_this<Node> {
  virtual ~Node();
  virtual const char* name() const = 0;
  virtual void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t needed) = 0;
  virtual void release_saved() = 0;

  Order order;
  const TracePlace* place = nullptr;  // where it was recorded, for traces
  std::vector<Edge> edges;
  int num_outputs = 1;
  bool released = false;  // a backward used up what it saved
  std::vector<std::vector<Hook>> hooks;  // per output
};

// Whether a backward used up some of what `t` was made by: another one would be an error.
bool is_used_up(const Tensor& t);

// Autograd's state of a tensor.
struct Meta : TensorExtension {
  bool requires_grad = false;  // a leaf that wants its gradient
  std::shared_ptr<Node> node;  // what made it; null for a leaf
  int index = 0;               // which output
  Tensor grad;
  std::vector<Tensor> uses;    // per-use gradients, see BackwardOptions::per_use
  std::vector<Hook> hooks;     // of a leaf
};

Meta* meta_of(const Tensor& t);        // null when autograd knows nothing of it
Meta& ensure_meta(const Tensor& t);
// The same elements without history.
Tensor detached(const Tensor& t);
// Marks `t` as output `index` of `node`.
void set_history(const Tensor& t, std::shared_ptr<Node> node, int index);
Edge edge_of(const Tensor& t);

}  // namespace autograd

// Makes `t` a leaf whose gradient backward() computes (or no longer). UsageError for integer tensors and for results.
const Tensor& requires_grad_(const Tensor& t, bool on = true);
bool requires_grad(const Tensor& t);
// The gradient of a leaf, undefined before backward().
Tensor grad_of(const Tensor& leaf);
void set_grad(const Tensor& leaf, Tensor grad);
// `t` without history, sharing its storage.
Tensor detach(const Tensor& t);
// Calls `hook` with the complete cotangent of `t` during backward; a defined result replaces it.
void register_hook(const Tensor& t, autograd::Hook hook);

// Nothing is recorded on this thread while the scope lives.
class NoGradScope {
 public:
  NoGradScope() : scope_(0, mask_of(StageBit::autograd)) {}

 private:
  StageScope scope_;
};
bool is_grad_enabled();
// Records again inside a NoGradScope.
class EnableGradScope {
 public:
  EnableGradScope() : scope_(static_cast<StageMask>(removed_stages() & ~mask_of(StageBit::autograd))) {}

 private:
  ReplaceRemovedScope scope_;
};

}  // namespace tutti
