// The tape: autograd's record of a forward computation.
//
// The Autograd stage records one Node per op call that has an input with requires_grad. A node saves the tensors that
// its gradient needs, with their versions; writing one in place before backward is an error that names the op. Nodes
// carry their place in forward order, and the cotangents of a value are summed in the order of its consumers (numerics
// contract, N5), so the sum does not depend on the order in which backward visits the graph.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tutti/autograd/hooks.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti {

struct CallSite;
struct TracePlace;

namespace autograd {

// The stage that records. Tensors that take part in autograd carry its bit.
StageMask stage();

// Place in forward order. Checkpointed regions number their recomputed nodes one level below the region's own place.
struct Order {
  static constexpr int kLevels = 4;
  std::array<uint64_t, kLevels> place{};
  friend auto operator<=>(const Order&, const Order&) = default;
};

// The next place on this thread's rank.
Order next_order();

// The number of the checkpoint region that is being recomputed on this thread's rank, or 0 when there is none.
uint64_t current_region();

// Ops recorded while this scope lives are numbered inside the checkpoint region at place `region`.
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

// The destination of an input's cotangent: output `index` of `node`, or a leaf (node null).
struct Edge {
  std::shared_ptr<Node> node;
  int index = 0;
  Tensor leaf;  // defined when the input is a leaf that wants its gradient
  bool wanted() const { return node != nullptr || leaf.defined(); }
};

// One recorded call. `run` maps cotangents of the outputs to cotangents of the inputs.
struct Node : std::enable_shared_from_this<Node> {
  virtual ~Node();
  virtual const char* name() const = 0;
  virtual void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t needed) = 0;
  virtual void release_saved() = 0;
  // A node that stands for many ops may keep the cotangents of an output that it also consumes itself, and add them to
  // its own: it then returns true, and run() gets an undefined one. They come in forward order; the first `given` were
  // given to backward() itself.
  virtual bool take(int /*output*/, std::span<const Tensor> /*cotangents*/, size_t /*given*/) { return false; }
  // Whether an output of the node has such consumers.
  virtual bool consumes(int /*output*/) const { return false; }

  Order order;
  const TracePlace* place = nullptr;          // where it was recorded, for traces
  std::shared_ptr<const CallSite> site = {};  // the same, while an AnomalyScope lives
  std::vector<Edge> edges;
  // For a node that chooses its targets in run() (see send_from()): every leaf and outer value that it may send
  // cotangents to. A leaf is finished only when the nodes that may still send to it have run.
  std::vector<Edge> captured;
  int num_outputs = 1;
  bool released = false;              // a backward has released the saved tensors
  std::vector<HookList<Hook>> hooks;  // per output
};

// True when a backward has released tensors that another one from `t` would need, which would be an error.
bool is_used_up(const Tensor& t);

// The state that autograd stores with a tensor.
struct Meta : TensorExtension {
  bool requires_grad = false;  // a leaf that wants its gradient
  std::shared_ptr<Node> node;  // the node that computed it; null for a leaf
  int index = 0;               // which output of `node`
  Tensor grad;
  std::vector<Tensor> uses;  // per-use gradients, see BackwardOptions::per_use
  HookList<Hook> hooks;      // of a leaf
  HookList<PostAccumulateHook> post_accumulate;
};

Meta* meta_of(const Tensor& t);  // null when autograd has no state for `t`
Meta& ensure_meta(const Tensor& t);
// A tensor with the same elements and no history.
Tensor detached(const Tensor& t);
// Marks `t` as output `index` of `node`.
void set_history(const Tensor& t, std::shared_ptr<Node> node, int index);
Edge edge_of(const Tensor& t);

// Notes the leaves and values with a history that ops read on this thread while it lives, although nothing is recorded.
// For regions whose forward runs without recording and is recomputed, with recording, by the backward.
class CapturedScope {
 public:
  explicit CapturedScope(std::vector<Edge>& into);
  ~CapturedScope();
  CapturedScope(const CapturedScope&) = delete;
  CapturedScope& operator=(const CapturedScope&) = delete;

 private:
  std::vector<Edge>* previous_;
  StageScope stage_;
};
// Notes `t` in the innermost CapturedScope of this thread, if there is one. Whoever reads tensors without an op call
// that names them must call it: a leaf that the backward meets without notice would be finished before its last
// gradient arrives.
void note_captured(const Tensor& t);
// While this object lives, the CapturedScopes around it note nothing: for traces, whose tensors only stand for those of
// a call.
class NoCapturedScope {
 public:
  NoCapturedScope();
  ~NoCapturedScope();
  NoCapturedScope(const NoCapturedScope&) = delete;
  NoCapturedScope& operator=(const NoCapturedScope&) = delete;

 private:
  std::vector<Edge>* previous_;
};

}  // namespace autograd

// Makes `t` a leaf whose gradient backward() computes, or with `on` = false one without; returns `t`. UsageError for
// integer tensors and for results of recorded ops.
const Tensor& requires_grad_(const Tensor& t, bool on = true);
bool requires_grad(const Tensor& t);
// The gradient of a leaf; undefined before backward().
Tensor grad_of(const Tensor& leaf);
void set_grad(const Tensor& leaf, Tensor grad);
// A tensor that shares the storage of `t` and has no history.
Tensor detach(const Tensor& t);
// Calls `hook` with the complete cotangent of `t` during backward; a defined tensor that the hook returns replaces it.
// For a leaf this is the finished gradient of a backward, or, where a training loop adds the gradients of virtual
// shards, of a step. Hooks run in the order of their registration. UsageError when `t` has no gradient.
HookHandle register_hook(const Tensor& t, autograd::Hook hook);
// Calls `hook` with the leaf after a gradient was added to its grad. Hooks of several leaves run in the order in which
// backward finishes the leaves, which is the same in every run of the program. UsageError unless `leaf` is a leaf that
// requires grad.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, autograd::PostAccumulateHook hook);

// While the scope lives, autograd records nothing on this thread.
class NoGradScope {
 public:
  NoGradScope() : scope_(0, autograd::stage()) {}

 private:
  StageScope scope_;
};
bool is_grad_enabled();
// Enables recording again inside a NoGradScope.
class EnableGradScope {
 public:
  EnableGradScope() : scope_(static_cast<StageMask>(removed_stages() & ~autograd::stage())) {}

 private:
  ReplaceRemovedScope scope_;
};

}  // namespace tutti
