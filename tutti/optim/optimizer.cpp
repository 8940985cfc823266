#include "tutti/optim/optimizer.h"

#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::optim {

void Optimizer::step(std::span<const Tensor> grads, double lr, double grad_scale) {
  TUTTI_CHECK_EQ(grads.size(), parameters_.size(), "optimizer step: {} gradients for {} parameters", grads.size(), parameters_.size());
  NoGradScope no_grad;
  const PhaseScope phase(TracePhase::optimizer);
  for (size_t i = 0; i < grads.size(); ++i)
    TUTTI_CHECK(grads[i].defined(), "optimizer step: parameter '{}' has no gradient; it took no part in the loss", parameters_[i].name);
  set_numbers(lr, grad_scale, ++steps_);
  if (compiled_) compiled_({grads.begin(), grads.end()});
  else step_all(grads);
}

void Optimizer::step_all(std::span<const Tensor> grads) {
  for (size_t i = 0; i < grads.size(); ++i) {
    const ModuleScope parameter(parameters_[i].name);
    step_one(i, grads[i]);
  }
}

void Optimizer::compile(CompileOptions options) {
  const auto function = tutti::compile([this](const std::vector<Tensor>& grads) { step_all(grads); }, std::move(options));
  compiled_ = function;
  statistics_ = [function] { return function.statistics(); };
  explain_ = [function] { return function.explain(); };
}

Tensor Optimizer::add_state(size_t i, const char* what) {
  MemoryCategoryScope category(MemoryCategory::optimizer);
  const nn::NamedTensor& parameter = parameters_[i];
  state_.push_back({fmt::format("state.{}.{}", parameter.name, what), zeros(parameter.tensor.sizes(), DType::f32)});
  return state_.back().tensor;
}

namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<nn::NamedTensor> parameters, const AdamWOptions& options) : Optimizer(std::move(parameters)), options_(options) {
    for (size_t i = 0; i < this->parameters().size(); ++i) {
      m_.push_back(add_state(i, "exp_avg"));
      v_.push_back(add_state(i, "exp_avg_sq"));
    }
  }

 private:
  void set_numbers(double lr, double grad_scale, int64_t step) override {
    now_ = {.lr = lr, .beta1 = options_.beta1, .beta2 = options_.beta2, .eps = options_.eps,
            .weight_decay = options_.weight_decay, .step = step, .grad_scale = grad_scale};
    numbers_.set(now_);
  }
  void step_one(size_t i, const Tensor& grad) override { adamw_step_(parameters()[i].tensor, grad, m_[i], v_[i], numbers_, now_); }

  AdamWOptions options_;
  AdamWStep now_{.lr = 0, .step = 1};
  AdamWNumbers numbers_;
  std::vector<Tensor> m_, v_;
};

class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<nn::NamedTensor> parameters, const SgdOptions& options) : Optimizer(std::move(parameters)), options_(options) {
    for (size_t i = 0; i < this->parameters().size(); ++i) buffers_.push_back(add_state(i, "momentum_buffer"));
  }

 private:
  void set_numbers(double lr, double grad_scale, int64_t) override {
    now_ = {.lr = lr, .momentum = options_.momentum, .weight_decay = options_.weight_decay, .grad_scale = grad_scale};
    numbers_.set(now_);
  }
  void step_one(size_t i, const Tensor& grad) override { sgd_step_(parameters()[i].tensor, grad, buffers_[i], numbers_, now_); }

  SgdOptions options_;
  SgdStep now_{.lr = 0};
  SgdNumbers numbers_;
  std::vector<Tensor> buffers_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(std::vector<nn::NamedTensor> parameters, const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(parameters), options);
}

std::unique_ptr<Optimizer> make_sgd(std::vector<nn::NamedTensor> parameters, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(parameters), options);
}

}  // namespace tutti::optim
