#include "tutti/graph/held_watch.h"

#include <algorithm>
#include <functional>

#include "tutti/plan/control_body.h"
#include "tutti/tensor/handle_watch.h"
#include "tutti/tensor/rebind.h"

namespace tutti::graph {
namespace {

// Hashes what a node takes, and all that the parts of a node that decides call.
size_t hash_of(const Node& node) {
  size_t hash = 0;
  const auto add = [&](size_t word) { hash = hash * 0x9E37'79B9'7F4A'7C15 + word; };
  for (const Value& v : node.inputs) add(static_cast<size_t>(v.buffer)), add(static_cast<size_t>(v.version));
  if (!node.control) return hash;
  for (const ControlBody::Part& part : node.control->parts) {
    for (const Node& inner : part.graph.nodes) add(std::hash<const void*>()(inner.op)), add(hash_of(inner));
  }
  return hash;
}

// Nobody but the trace that met it knows the tensor: the function made it of values of the host.
bool is_own(const Captured& c) {
  return c.tensor.impl()->references.load() == 1 && c.tensor.storage()->use_count() == 1;
}

// "matmul at model.cpp:12 (forward)"
std::string at(const char* op, const std::shared_ptr<const CallSite>& site) {
  const std::string line = site ? user_line(*site) : "";
  return fmt::format("{}{}{}", op, line.empty() ? "" : " at ", line);
}

std::string read_by(const Captured& c) { return "read by " + at(c.read_by, c.site); }

}  // namespace

HeldReads HeldReads::of(Trace& trace) {
  HeldReads reads{.captured = trace.captured(), .slots = trace.slots()};
  for (const SegmentMark& mark : trace.segments()) reads.earlier = reads.earlier * 31 + mark.ops;
  for (const Node& node : trace.graph().nodes) reads.calls.push_back({node.op->name, hash_of(node), node.origin.site});
  return reads;
}

bool HeldWatch::holds_another() const {
  return std::any_of(reads_.slots.begin(), reads_.slots.end(), [](const SlotRead& r) { return r.holds_another(); });
}

HeldWatch::Finding HeldWatch::look(FunctionRef<std::optional<HeldReads>()> trace) {
  const bool was_lost = is_lost();
  const int64_t losses = losses_->load(std::memory_order_acquire), calls = calls_.load();
  Finding found;
  HandleNotes notes;
  std::optional<HeldReads> now = trace();
  found.difference = now ? difference(*now) : "it calls other ops than it did";
  if (!found.difference.empty()) {
    if (looked_ && !was_lost && calls > last_look_ + 1) found.unseen_since = last_look_ + 1;
    is_over_ = true;
    return found;
  }
  is_there_.clear();
  for (const Captured& c : now->captured) {
    if (c.grad_of >= 0) notes.forget(c.tensor);  // each call reads the gradient that there is
    is_there_.push_back(notes.has_handle_of(c.tensor));
  }
  // Views that the function made of its tensors end with the trace, and with them the handles in their histories: no
  // variables.
  now.reset();
  notes.watch(losses_);
  known_losses_ = losses;
  last_look_ = calls;
  next_look_ = std::max<int64_t>(2 * calls, 4);
  looked_ = true;
  return found;
}

std::string HeldWatch::replaced(const Captured& was, const Captured& now, bool was_there) const {
  const Tensor &a = was.tensor, &b = now.tensor;
  if (a.is_same(b) || (was.grad_of >= 0 && was.grad_of == now.grad_of)) return "";
  if (is_same_view(a, b) && a.dtype() == b.dtype()) return "";  // a view that the function makes
  if (!was_there && is_own(now) && a.dtype() == b.dtype() && a.extents() == b.extents()) return "";
  return fmt::format("a tensor {} that it holds, first {}, was replaced by another one, {}", describe(a), read_by(was),
                     describe(b));
}

std::string HeldWatch::difference(const HeldReads& now) const {
  for (const SlotRead& r : reads_.slots) {
    if (r.holds_another())
      return fmt::format("{} held {} and holds another tensor now, {}", r.slot->description(), describe(r.found),
                         describe(r.slot->known()));
  }
  for (size_t i = 0; i < std::min(reads_.captured.size(), now.captured.size()); ++i) {
    const bool was_there = i < is_there_.size() && is_there_[i];
    if (const std::string text = replaced(reads_.captured[i], now.captured[i], was_there); !text.empty()) return text;
  }
  if (now.captured.size() != reads_.captured.size()) {
    const bool more = now.captured.size() > reads_.captured.size();
    const Captured& first = (more ? now : reads_).captured[std::min(now.captured.size(), reads_.captured.size())];
    return fmt::format("it reads {} tensors that it holds and read {}; the first that it {} is {}, {}",
                       now.captured.size(), reads_.captured.size(), more ? "did not read" : "reads no more",
                       describe(first.tensor), read_by(first));
  }
  for (size_t i = 0; i < std::min(reads_.calls.size(), now.calls.size()); ++i) {
    const HeldReads::Call &was = reads_.calls[i], &is = now.calls[i];
    if (was.op != is.op) return fmt::format("it calls {} where it called {}", at(is.op, is.site), at(was.op, was.site));
    if (was.operands != is.operands) return fmt::format("{} reads other tensors than it did", at(is.op, is.site));
  }
  if (now.calls.size() != reads_.calls.size())
    return fmt::format("it calls {} ops and called {}", now.calls.size(), reads_.calls.size());
  if (now.outcome != reads_.outcome) return "it returns other tensors than it did, or sets the gradients of others";
  return now.earlier == reads_.earlier ? "" : "it calls other ops than it did before it reads elements";
}

}  // namespace tutti::graph
