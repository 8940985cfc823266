// Anomaly mode: finds the op that first made a NaN.
//
//   AnomalyScope scope;
//   backward(loss(model, batch));  // NanError: sqrt made the first NaN ...
//
// While the scope lives, every op that runs on this thread has its results checked, which costs a pass over them. Ops
// inside compiled functions are not seen, so run what makes NaNs without compile().
#pragma once

#include <memory>
#include <string>

#include "tutti/ops/engine/dispatch.h"
#include "tutti/runtime/trace/source_lines.h"

namespace tutti {

// An op gave NaN although none of its inputs had one. The message names the op, its line in the program, and, in
// backward, the op whose gradient it computes with the line of that op.
class NanError : public UsageError {
 public:
  using UsageError::UsageError;
};

class AnomalyScope {
 public:
  AnomalyScope();
  ~AnomalyScope();
  AnomalyScope(const AnomalyScope&) = delete;
  AnomalyScope& operator=(const AnomalyScope&) = delete;

 private:
  StageScope stage_;
  bool was_on_, kept_places_;
};

namespace autograd {

struct Node;

// The call site of the caller while an AnomalyScope lives on this thread; else null.
std::shared_ptr<const CallSite> site_in_anomaly_mode();

// The node whose gradient ops on this thread compute; null outside of backward.
const Node* running_node();

// Ops on this thread compute the gradient of `node` while it lives.
class NodeScope {
 public:
  explicit NodeScope(const Node& node);
  ~NodeScope();
  NodeScope(const NodeScope&) = delete;
  NodeScope& operator=(const NodeScope&) = delete;

 private:
  const Node* previous_;
};

}  // namespace autograd
}  // namespace tutti
