#include "tutti/nn/module.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <unordered_set>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/tensor/tensor_slot.h"

namespace tutti::nn {

// The mode as a slot that holds one of two tensors: a compiled function notes that it read the slot, and notices when
// the slot holds the other one.
struct Module::Mode final : TensorSlot {
  Tensor held() const override { return is_training ? marker(0) : marker(1); }
  std::string description() const override { return "the mode of a module (train() or eval())"; }
  // On memory that no rank's allocator owns, since the markers serve all ranks.
  static const Tensor& marker(size_t which) {
    static std::byte bytes[2] = {};
    static const Tensor markers[2] = {Tensor::from_memory(&bytes[0], {1}, DType::u8, [] {}),
                                      Tensor::from_memory(&bytes[1], {1}, DType::u8, [] {})};
    return markers[which];
  }
  std::atomic<bool> is_training{true};
};

Module::Module() : mode_(std::make_shared<Mode>()) {}

// Members are destroyed before the base of the module that holds them: they leave its list. What is still in it lives
// on elsewhere.
Module::~Module() {
  if (parent_ != nullptr)
    std::erase_if(parent_->children_, [this](const Member& member) { return member.module == this; });
  for (const Member& child : children_) {
    if (child.module->parent_ == this) child.module->parent_ = nullptr;
  }
}

namespace {

const void* identity_of(const NamedParameter& p) { return p.parameter.identity(); }
const void* identity_of(const NamedBuffer& b) { return b.buffer.identity(); }

}  // namespace

void Module::visit_paths(const std::string& path, FunctionRef<void(const Module&, const std::string&)> visit) const {
  visit(*this, path);
  for (const Member& child : children_) child.module->visit_paths(path + child.name + ".", visit);
}

template <class Named>
std::vector<Named> Module::collect(const std::string& prefix, const std::vector<Named> Module::* list) const {
  std::vector<Named> out;
  std::unordered_set<const void*> seen;
  visit_paths(prefix, [&](const Module& module, const std::string& path) {
    for (const Named& own : module.*list) {
      if (!seen.insert(identity_of(own)).second) continue;
      out.push_back(own);
      out.back().name = path + own.name;
    }
  });
  return out;
}

std::vector<NamedParameter> Module::named_parameters(const std::string& prefix) const {
  return collect(prefix, &Module::parameters_);
}
std::vector<NamedParameter> Module::parameter_aliases() const {
  std::vector<NamedParameter> out;
  std::unordered_set<const void*> seen;
  visit_paths("", [&](const Module& module, const std::string& path) {
    for (const NamedParameter& own : module.parameters_) {
      if (!seen.insert(identity_of(own)).second) out.push_back({path + own.name, own.parameter});
    }
    for (const NamedParameter& own : module.aliases_) out.push_back({path + own.name, own.parameter});
  });
  return out;
}

bool Module::ignores_on_load(std::string_view name) const {
  bool ignores = false;
  visit_paths("", [&](const Module& module, const std::string& path) {
    const auto is_end = [&](const std::string& suffix) {
      return name.starts_with(path) && name.substr(path.size()).ends_with(suffix);
    };
    ignores = ignores || std::any_of(module.ignored_.begin(), module.ignored_.end(), is_end);
  });
  return ignores;
}

std::vector<NamedBuffer> Module::named_buffers(const std::string& prefix) const {
  return collect(prefix, &Module::buffers_);
}

std::vector<NamedModule> Module::named_modules(const std::string& prefix) {
  std::vector<NamedModule> out;
  std::unordered_set<const Module*> seen;
  const auto walk = [&](const auto& self, Module& module, const std::string& path) -> void {
    if (!seen.insert(&module).second) return;
    out.push_back({path, &module});
    for (const Member& child : module.children_)
      self(self, *child.module, path.empty() ? child.name : path + "." + child.name);
  };
  walk(walk, *this, prefix);
  return out;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const NamedParameter& p : named_parameters()) count += p.parameter.numel();
  return count;
}

void Module::apply(FunctionRef<void(Module&)> function) {
  for (const Member& child : children_) child.module->apply(function);
  function(*this);
}

void Module::train(bool on) {
  for (const NamedModule& m : named_modules()) m.module->mode_->is_training = on;
}

bool Module::is_training() const { return read_slot(mode_).is_same(Mode::marker(0)); }

void Module::to(DType dtype) {
  for (const NamedParameter& p : named_parameters()) p.parameter.set_use_dtype(dtype);
}

void Module::requires_grad_(bool on) {
  for (const NamedParameter& p : named_parameters()) p.parameter.requires_grad_(on);
}

void Module::zero_grad() {
  for (const NamedParameter& p : named_parameters()) {
    if (p.parameter.is_materialized() && !p.parameter.holds_blocks()) p.parameter.set_grad({});
  }
}

ForwardHooks& Module::forward_hooks() {
  if (hooks_ == nullptr) hooks_ = std::make_unique<ForwardHooks>();
  return *hooks_;
}

std::string Module::call_name() const {
  if (parent_ == nullptr || !parent_->is_list_) return name_;
  const std::string list = parent_->call_name();
  return list.empty() ? name_ : list + "." + name_;
}

void Module::check_new(const std::string& name) const {
  TUTTI_CHECK(!name.empty() && name.find('.') == std::string::npos,
              "'{}' cannot name a parameter, buffer or submodule: a name is not empty, and dots separate the "
              "names of a path",
              name);
  const auto has = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& entry) { return entry.name == name; });
  };
  TUTTI_CHECK(!has(parameters_) && !has(buffers_) && !has(children_),
              "the module already has a parameter, buffer or submodule named '{}'", name);
}

Parameter Module::register_parameter(std::string name, const Extents& sizes, const Init& init, DType dtype) {
  return register_parameter(name, Parameter(name, sizes, init, dtype));
}

Parameter Module::register_parameter(std::string name, const Parameter& parameter) {
  if (!parameter.defined()) return parameter;
  check_new(name);
  parameters_.push_back({std::move(name), parameter});
  return parameter;
}

void Module::register_alias(std::string name, const Parameter& parameter) {
  aliases_.push_back({std::move(name), parameter});
}
void Module::ignore_on_load(std::string suffix) { ignored_.push_back(std::move(suffix)); }

Buffer Module::register_buffer(std::string name, Tensor value, bool persistent) {
  check_new(name);
  buffers_.push_back({name, Buffer(name, std::move(value)), persistent});
  return buffers_.back().buffer;
}

Buffer Module::register_buffer(std::string name, std::function<Tensor()> compute) {
  check_new(name);
  buffers_.push_back({name, Buffer(name, std::move(compute)), false});
  return buffers_.back().buffer;
}

void Module::register_module(std::string name, Module& child) {
  check_new(name);
  for (const NamedModule& below : child.named_modules())
    TUTTI_CHECK(below.module != this, "module '{}' cannot be a submodule of a module that it contains, or of itself",
                name);
  if (child.parent_ == nullptr) {
    child.parent_ = this;
    child.name_ = name;
  }
  children_.push_back({std::move(name), &child});
}

std::vector<Tensor> leaves_of(const std::vector<NamedParameter>& parameters) {
  std::vector<Tensor> leaves;
  for (const NamedParameter& p : parameters) leaves.push_back(p.parameter.leaf());
  return leaves;
}

void initialize(Module& module) {
  for (const NamedParameter& p : module.named_parameters()) p.parameter.initialize(p.name);
}

EvalScope::EvalScope(Module& module) {
  for (const NamedModule& m : module.named_modules()) {
    if (m.module->mode_->is_training) was_training_.push_back(m.module);
  }
  module.eval();
}

// One by one, because a module that was in evaluation mode before stays there.
EvalScope::~EvalScope() {
  for (const Module* module : was_training_) module->mode_->is_training = true;
}

}  // namespace tutti::nn
