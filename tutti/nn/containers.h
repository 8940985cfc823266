// Modules that hold modules.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/nn/module.h"

namespace tutti::nn {

// Runs modules that map a tensor to a tensor, one after the other. They are named "0", "1", ...
//
//   nn::Sequential net;
//   net.add<nn::Linear>(2, 64).add<nn::ReLU>().add<nn::Linear>(64, 2);
class Sequential : public Module {
 public:
  // Appends M(args...).
  template <class M, class... Args>
  Sequential& add(Args&&... args) {
    const auto child = std::make_shared<Child<M>>(this, std::to_string(steps_.size()), std::forward<Args>(args)...);
    steps_.push_back([child](const Tensor& x) -> Tensor { return (*child)(x); });
    return *this;
  }
  Tensor forward(const Tensor& x) const {
    Tensor y = x;
    for (const auto& step : steps_) y = step(y);
    return y;
  }
  int64_t size() const { return static_cast<int64_t>(steps_.size()); }

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

// Modules of one type in order, named "0", "1", ... It has no forward: the module that owns the list loops over it.
template <class M>
class ModuleList : public Module {
 public:
  ModuleList() { names_its_children(); }
  // Appends M(args...) and returns it.
  template <class... Args>
  Child<M>& add(Args&&... args) {
    return items_.emplace_back(this, std::to_string(items_.size()), std::forward<Args>(args)...);
  }
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  // UsageError for an index outside [0, size()).
  const Child<M>& operator[](int64_t i) const { return items_[checked(i)]; }
  Child<M>& operator[](int64_t i) { return items_[checked(i)]; }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }

 private:
  size_t checked(int64_t i) const {
    TUTTI_CHECK(i >= 0 && i < size(), "ModuleList: index {} of a list of {} modules", i, size());
    return static_cast<size_t>(i);
  }
  std::deque<Child<M>> items_;  // a deque, because modules cannot move
};

// Modules of one type by name, in the order in which they were added.
template <class M>
class ModuleDict : public Module {
 public:
  ModuleDict() { names_its_children(); }
  // Adds M(args...) under `name` and returns it. UsageError when the name is taken.
  template <class... Args>
  Child<M>& add(const std::string& name, Args&&... args) {
    Child<M>& added = items_.emplace_back(this, name, std::forward<Args>(args)...);
    names_.push_back(name);
    return added;
  }
  const std::vector<std::string>& names() const { return names_; }
  int64_t size() const { return static_cast<int64_t>(names_.size()); }
  bool contains(const std::string& name) const { return find(name) < names_.size(); }
  // UsageError, suggesting the nearest name, when there is none.
  const Child<M>& operator[](const std::string& name) const { return items_[checked(name)]; }
  Child<M>& operator[](const std::string& name) { return items_[checked(name)]; }

 private:
  size_t find(const std::string& name) const {
    return static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }
  size_t checked(const std::string& name) const {
    const size_t at = find(name);
    if (at == names_.size()) throw UsageError(unknown_name_message("module", name, names_));
    return at;
  }
  std::vector<std::string> names_;
  std::deque<Child<M>> items_;
};

}  // namespace tutti::nn
