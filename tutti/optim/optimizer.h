// Optimizers over named parameters. State is f32 and belongs to the rank; parameters are f32 masters.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/graph/compiled.h"
#include "tutti/nn/module.h"

namespace tutti::optim {

struct StateTensor {
  std::string name;  // "state.<parameter>.<what>"
  Tensor tensor;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  // Applies grads[i], scaled by `grad_scale`, to parameter i at learning rate `lr`.
  void step(std::span<const Tensor> grads, double lr, double grad_scale = 1.0);
  // From now on a step is one compiled function with the bits of an eager one, however lr, grad_scale and the count change.
  void compile(CompileOptions options = {.name = "optimizer step"});
  // What was compiled; empty without.
  CompileStatistics statistics() const { return statistics_ ? statistics_() : CompileStatistics{}; }
  std::string explain() const { return explain_ ? explain_() : ""; }
  const std::vector<nn::NamedTensor>& parameters() const { return parameters_; }
  // Everything besides the parameters that a resumed run needs, as views to be read or overwritten.
  const std::vector<StateTensor>& state() const { return state_; }
  int64_t steps_taken() const { return steps_; }
  void set_steps_taken(int64_t steps) { steps_ = steps; }

 protected:
  explicit Optimizer(std::vector<nn::NamedTensor> parameters) : parameters_(std::move(parameters)) {}
  // A zero tensor like parameter `i`, kept in state().
  Tensor add_state(size_t i, const char* what);
  // What changes from step to step, kept in tensors for step_one.
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
