// Hooks: functions of the user that backward calls, with handles that remove them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Removes a registered hook on request. Dropping the handle keeps the hook, which otherwise lives as long as what it is
// registered with. Used by one thread at a time.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::weak_ptr<bool> is_active) : is_active_(std::move(is_active)) {}
  // From now on the hook is not called. Does nothing the second time.
  void remove() {
    if (const auto active = is_active_.lock()) *active = false;
  }

 private:
  std::weak_ptr<bool> is_active_;
};

namespace autograd {

// Gets the cotangent of a value; a defined tensor that it returns takes its place, and must have its sizes and dtype.
using Hook = std::function<Tensor(const Tensor& cotangent)>;
// Gets a leaf whose grad is complete for this backward.
using PostAccumulateHook = std::function<void(const Tensor& leaf)>;

// Hooks in the order of their registration. A hook may register and remove hooks; those added by a hook are called next
// time.
template <class Function>
class HookList {
 public:
  HookHandle add(Function function) {
    std::erase_if(hooks_, [](const auto& hook) { return !*hook->is_active; });
    hooks_.push_back(std::make_shared<Entry>(Entry{std::move(function), std::make_shared<bool>(true)}));
    return HookHandle(hooks_.back()->is_active);
  }
  template <class Call>
  void for_each(Call call) const {
    const auto now = hooks_;
    for (const auto& hook : now) {
      if (*hook->is_active) call(hook->function);
    }
  }
  bool empty() const {
    for (const auto& hook : hooks_) {
      if (*hook->is_active) return false;
    }
    return true;
  }

 private:
  struct Entry {
    Function function;
    std::shared_ptr<bool> is_active;
  };
  std::vector<std::shared_ptr<const Entry>> hooks_;
};

}  // namespace autograd
}  // namespace tutti
