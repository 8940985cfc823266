// Optimizers over named parameters. Parameters are f32 master weights; the state is f32 as well and local to the rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/graph/compiled.h"
#include "tutti/nn/module.h"

namespace tutti::optim {

struct StateTensor {
  std::string name;  // "state.<parameter>.<name of the state>"
  Tensor tensor;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  // One step: updates parameter i with grads[i] times `grad_scale`, at learning rate `lr`.
  void step(std::span<const Tensor> grads, double lr, double grad_scale = 1.0);
  // From now on each step runs as one compiled function, with the bits of an eager step. Changes of lr, grad_scale and the step
  // count do not cause recompilation.
  void compile(CompileOptions options = {.name = "optimizer step"});
  // Statistics and description of the compiled step; empty without compile().
  CompileStatistics statistics() const { return statistics_ ? statistics_() : CompileStatistics{}; }
  std::string explain() const { return explain_ ? explain_() : ""; }
  const std::vector<nn::NamedTensor>& parameters() const { return parameters_; }
  // The state tensors that a checkpoint needs besides the parameters. They may be overwritten to restore it.
  const std::vector<StateTensor>& state() const { return state_; }
  int64_t steps_taken() const { return steps_; }
  void set_steps_taken(int64_t steps) { steps_ = steps; }

 protected:
  explicit Optimizer(std::vector<nn::NamedTensor> parameters) : parameters_(std::move(parameters)) {}
  // Adds a zero tensor with the shape of parameter `i` to state().
  Tensor add_state(size_t i, const char* what);
  // Stores the numbers that change from step to step in tensors, for step_one().
  virtual void set_numbers(double lr, double grad_scale, int64_t step) = 0;
  virtual void step_one(size_t i, const Tensor& grad) = 0;

 private:
  void step_all(std::span<const Tensor> grads);

  std::vector<nn::NamedTensor> parameters_;
  std::vector<StateTensor> state_;
  int64_t steps_ = 0;
  std::function<void(const std::vector<Tensor>&)> compiled_;
  std::function<CompileStatistics()> statistics_;
  std::function<std::string()> explain_;
};

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};
std::unique_ptr<Optimizer> make_adamw(std::vector<nn::NamedTensor> parameters, const AdamWOptions& options = {});

struct SgdOptions {
  double momentum = 0.0, weight_decay = 0.0;
};
std::unique_ptr<Optimizer> make_sgd(std::vector<nn::NamedTensor> parameters, const SgdOptions& options = {});

}  // namespace tutti::optim
