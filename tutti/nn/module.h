// Module: a named tree of parameters, buffers and submodules.
//
//   struct FeedForward : nn::Module {
//     FeedForward(int64_t dim, int64_t hidden) : up(this, "up", dim, hidden), down(this, "down", hidden, dim) {}
//     Tensor forward(const Tensor& x) const { return down(relu(up(x))); }
//     nn::Child<nn::Linear> up, down;  // parameters "up.weight", "up.bias", "down.weight", "down.bias"
//   };
//
// A module is built without memory for its parameters (nn/parameter.h) and filled by initialize() or load(). Every
// value is a pure function of the seed, the parameter's full name and the element's global index, whatever the layout
// (numerics contract, N6). A module is used by one thread at a time, except that several threads may run its forward at
// once if forward changes no state of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/nn/parameter.h"
#include "tutti/nn/state_dict.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::nn {

class Module;
class ForwardHooks;
template <class M>
class Child;

// Names are full paths, such as "model.layers.0.mlp.up_proj.weight".
struct NamedParameter {
  std::string name;
  Parameter parameter;
};
struct NamedBuffer {
  std::string name;
  Buffer buffer;
  bool persistent;  // whether it belongs to the state dict
};
struct NamedModule {
  std::string name;  // "" for the module that was asked
  Module* module;
};

class Module {
 public:
  Module();
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // All parameters of this module and its submodules in registration order. One that is registered twice (a tied
  // weight) appears once, under its first name.
  std::vector<NamedParameter> named_parameters(const std::string& prefix = "") const;
  // The further names of parameters: those under which they are registered again, and those of register_alias(). Values
  // may be loaded under any of them, and under several if they are equal.
  std::vector<NamedParameter> parameter_aliases() const;
  // Whether values of that name are passed over when they are loaded: see ignore_on_load().
  bool ignores_on_load(std::string_view name) const;
  // All buffers, likewise. They are not trained and not counted as parameters.
  std::vector<NamedBuffer> named_buffers(const std::string& prefix = "") const;
  // This module and all below it, each before its children.
  std::vector<NamedModule> named_modules(const std::string& prefix = "");
  int64_t parameter_count() const;

  // Calls `function` with every submodule and last with this module.
  void apply(FunctionRef<void(Module&)> function);
  // Training or evaluation mode of this module and all below it; modules are built in training mode. A compiled
  // function that asked a module for its mode is traced anew when the mode has changed.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const;
  // From now on forward reads all parameters in `dtype`, a float, and computes in it. Masters keep their dtype, so that
  // training remains exact to f32, and so do buffers. Call it before gradients, hooks and sinks are set up.
  void to(DType dtype);
  // Whether backward computes gradients for the parameters.
  void requires_grad_(bool on);
  void zero_grad();

  // The values of all parameters (their masters) and persistent buffers, which share memory with the module. UsageError
  // naming a parameter that has no values yet.
  StateDict state_dict(const std::string& prefix = "") const;
  // Copies the values of `state` into the parameters and persistent buffers of the same names, which are materialized
  // if need be. Every missing, unexpected and mismatched name is reported at once. UsageError when there are any,
  // before anything is copied; with strict = false missing and unexpected names are only returned.
  LoadReport load_state_dict(const StateDict& state, const LoadOptions& options = {});

  // Functions that run before and after forward whenever this module is called as a child, or by nn::call(); see
  // module_call.h.
  ForwardHooks& forward_hooks();
  const ForwardHooks* forward_hooks_if_any() const { return hooks_.get(); }
  // Its name in the module that it belongs to, with that of the list it stands in: "layers.3"; "" for a root.
  std::string call_name() const;

 protected:
  // UsageError when the module already has a parameter, buffer or submodule of that name.
  Parameter register_parameter(std::string name, const Extents& sizes, const Init& init, DType dtype = DType::f32);
  // A parameter that belongs to another module as well. An undefined one registers nothing.
  Parameter register_parameter(std::string name, const Parameter& parameter);
  // Another name for `parameter`, a path from this module: files may hold the parameter under it, too, as many hold a
  // tied head.
  void register_alias(std::string name, const Parameter& parameter);
  // Names below this module that end with `suffix` are passed over in sources of values: files hold what this module
  // computes itself.
  void ignore_on_load(std::string suffix);
  Buffer register_buffer(std::string name, Tensor value, bool persistent = true);
  // A buffer that is a function of the module's configuration, such as a table of angles. It is computed when it is
  // first read, and is not part of the state dict.
  Buffer register_buffer(std::string name, std::function<Tensor()> compute);
  // `child` must outlive this module; usually it is a member, declared as Child<M>.
  void register_module(std::string name, Module& child);
  // For modules that only hold others, such as a list: their names stand before those of their children in call_name().
  void names_its_children() { is_list_ = true; }

 private:
  template <class M>
  friend class Child;
  friend class EvalScope;
  struct Mode;
  struct Member {
    std::string name;
    Module* module;
  };
  void check_new(const std::string& name) const;
  // Calls `visit` with this module and those below it, each before its children, and their paths.
  void visit_paths(const std::string& path, FunctionRef<void(const Module&, const std::string&)> visit) const;
  // All entries of a list of this module and those below it, under full names, each thing once.
  template <class Named>
  std::vector<Named> collect(const std::string& prefix, const std::vector<Named> Module::* list) const;

  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> aliases_;
  std::vector<NamedBuffer> buffers_;
  std::vector<std::string> ignored_;  // endings of names
  std::vector<Member> children_;
  std::shared_ptr<Mode> mode_;
  std::unique_ptr<ForwardHooks> hooks_;
  std::string name_;          // in parent_
  Module* parent_ = nullptr;  // where it was registered first; null again when that module is gone
  bool is_list_ = false;
};

// The leaves of parameters, for those who ask autograd about them. Every parameter must be materialized.
std::vector<Tensor> leaves_of(const std::vector<NamedParameter>& parameters);

// Materializes every parameter and fills it according to its Init, with random numbers keyed by the rank's seed
// (seed_all) and the parameter's full name.
void initialize(Module& module);

// Puts a module into evaluation mode while the scope lives.
class EvalScope {
 public:
  explicit EvalScope(Module& module);
  ~EvalScope();
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  std::vector<Module*> was_training_;
};

}  // namespace tutti::nn

#include "tutti/nn/module_call.h"
