// Optimizers over the parameters of modules. They update the masters, which are f32; their state is f32 too. Where a
// master is a distributed tensor, so are gradient and state, and each rank updates what it stores.
//
//   const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 3e-4});
//   ... forward, backward(loss) ...
//   optimizer->step();  // with the gradients that backward has accumulated
//   optimizer->zero_grad();
//
// An optimizer belongs to one thread of a rank.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/graph/compiled.h"
#include "tutti/nn/module.h"

namespace tutti::optim {

// Memory for the whole of a state tensor of a parameter: f32, of the parameter's sizes. Where the master is a
// distributed tensor, this rank's part of it is taken. Unset: each rank has its own, zeros. For ranks that share their
// state (docs/surviving.md), which may hold values already.
using StateMemory = std::function<Tensor(const nn::NamedParameter& parameter, std::string_view what)>;

struct StateTensor {
  std::string name;  // "state.<parameter>.<name of the state>"
  Tensor tensor;
};

// Parameters that share options.
template <class Options>
struct ParameterGroup {
  std::vector<nn::NamedParameter> parameters;
  Options options = {};
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One step with the accumulated gradient of each parameter, at its group's learning rate times lr_factor(). A
  // parameter that is frozen, or has no gradient, keeps its value and state. Steps are counted for all parameters
  // together.
  void step();
  // Forgets the accumulated gradients.
  void zero_grad();
  // The factor by which a schedule multiplies all learning rates; 1 at first.
  double lr_factor() const { return lr_factor_; }
  void set_lr_factor(double factor) { lr_factor_ = factor; }

  // The learning rate of the first group times lr_factor(). UsageError when there is no parameter.
  double lr() const;

  // One step in explicit form: updates parameter i of parameters() with grads[i] times `grad_scale`. `lr` is the
  // learning rate of the first group; those of the others keep their ratio to it. A parameter that was frozen meanwhile
  // is skipped. UsageError, before any parameter changes, when another gradient is undefined, not f32 of the
  // parameter's sizes, or not placed like its master, and when a parameter has been divided over ranks since the
  // optimizer was made, naming the parameter.
  void step(std::span<const Tensor> grads, double lr, double grad_scale = 1.0);

  // ---- A step in pieces, for a program that decides itself by whom and when each piece of the parameters is updated
  // (docs/surviving.md) Checks what step() would refuse, and returns what this rank stores of each gradient. Changes
  // nothing.
  std::vector<Tensor> check_step(std::span<const Tensor> grads, double lr, double grad_scale) const;
  // The pieces that follow belong to step number `steps_taken`, counted from 1.
  void begin_step(int64_t steps_taken, double lr, double grad_scale);
  // Updates a piece of parameter i: f32 tensors of equal sizes, `state` in the order of state(). Who steps every piece
  // once has the bits of step().
  void step_piece(size_t i, const Tensor& master, const Tensor& grad, std::span<const Tensor> state);
  // How many state tensors each parameter has.
  size_t states_per_parameter() const { return parameters_.empty() ? 0 : state_.size() / parameters_.size(); }

  // ---- A step in two halves, for a function that is compiled or packaged as a whole: forward, backward, update(),
  // zero_grad(). begin_step() belongs to the program around it.
  // Updates each parameter that has an accumulated gradient, with the numbers of the last begin_step().
  void update();
  // The masters of the parameters by their names, state() and numbers(): all that update() reads and writes besides
  // gradients.
  std::vector<StateTensor> update_tensors() const;
  // The 0-dim f32 tensors that begin_step() fills in, "number.<group>.<name>": grad_scale of all optimizers, lr of sgd,
  // and of adamw decay = 1 - lr * weight_decay, step_size = lr / (1 - beta1^step) and
  // inv_correction2 = 1 / (1 - beta2^step), computed in double precision and rounded.
  virtual std::vector<StateTensor> numbers() const = 0;

  // From now on each step runs as one compiled function, with the bits of an eager step. Changes of lr, grad_scale and
  // the step count do not cause recompilation.
  void compile(CompileOptions options = {.name = "optimizer step"});
  // Statistics and description of the compiled step; empty without compile().
  CompileStatistics statistics() const { return statistics_ ? statistics_() : CompileStatistics{}; }
  std::string explain() const { return explain_ ? explain_() : ""; }

  // The parameters that are trained, group by group. Parameters that did not require grad when the optimizer was made
  // are left out.
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }
  // The state tensors that a checkpoint needs besides the parameters. They may be overwritten to restore it.
  const std::vector<StateTensor>& state() const { return state_; }
  int64_t steps_taken() const { return steps_; }
  void set_steps_taken(int64_t steps) { steps_ = steps; }

 protected:
  explicit Optimizer(StateMemory memory) : memory_(std::move(memory)) {}
  // Adds the parameters of a group whose learning rate is `lr`; returns the number of the first. UsageError, naming it,
  // when a parameter already belongs to a group.
  size_t add_group(const std::vector<nn::NamedParameter>& parameters, double lr);
  // Adds a tensor that is placed like parameter `i` to state(): zeros, unless there is memory that holds values.
  void add_state(size_t i, const char* what);
  // Stores the numbers of a group that change from step to step in tensors, for step_one().
  virtual void set_numbers(size_t group, double lr, double grad_scale, int64_t step) = 0;
  // Updates what this rank stores of the master of a parameter of `group`, or a piece of it, and its state in the order
  // of add_state().
  virtual void step_one(size_t group, const Tensor& master, const Tensor& grad, std::span<const Tensor> state) = 0;

 private:
  std::vector<double> lrs_of(double lr) const;
  std::vector<Tensor> trained(std::span<const Tensor> grads) const;
  void check_placement(size_t i, const Tensor& master) const;
  std::vector<Tensor> checked(std::span<const Tensor> grads, std::span<const double> lrs, double grad_scale) const;
  void run(std::span<const Tensor> grads, std::span<const double> lrs, double grad_scale);
  void step_all(std::span<const Tensor> grads);

  std::vector<nn::NamedParameter> parameters_;
  std::vector<size_t> group_of_;  // of each parameter
  std::vector<double> group_lrs_;
  std::vector<StateTensor> state_;
  std::vector<std::vector<Tensor>> stored_state_;  // of each parameter, what this rank stores
  const StateMemory memory_;
  double lr_factor_ = 1.0;
  int64_t steps_ = 0;
  std::function<void(const std::vector<Tensor>&)> compiled_;
  std::function<CompileStatistics()> statistics_;
  std::function<std::string()> explain_;
};

// All options are finite and at least 0, betas below 1: UsageError otherwise, and for parameters whose master is not
// f32 or that are given twice. The state is allocated at once, also for parameters that have no memory yet. Source:
// Loshchilov and Hutter 2019.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};
std::unique_ptr<Optimizer> make_adamw(std::vector<nn::NamedParameter> parameters, const AdamWOptions& options = {},
                                      StateMemory memory = {});
std::unique_ptr<Optimizer> make_adamw(const std::vector<ParameterGroup<AdamWOptions>>& groups);

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.0, weight_decay = 0.0;
};
std::unique_ptr<Optimizer> make_sgd(std::vector<nn::NamedParameter> parameters, const SgdOptions& options = {},
                                    StateMemory memory = {});
std::unique_ptr<Optimizer> make_sgd(const std::vector<ParameterGroup<SgdOptions>>& groups);

}  // namespace tutti::optim
