#include "tutti/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/autograd/tape.h"
#include "tutti/dist/wrapper.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti::optim {

namespace {

constexpr const char* kWhere = "optimizer step";

// What this rank stores of a gradient.
Tensor stored_like(const nn::NamedParameter& p, const Tensor& master, const Tensor& grad) {
  if (!dist::is_dtensor(master) && !dist::is_dtensor(grad)) return grad;
  TUTTI_CHECK(dist::is_dtensor(master) && dist::is_dtensor(grad) &&
                  dist::part_of(master, kWhere).spec == dist::part_of(grad, kWhere).spec,
              "optimizer step: parameter '{}' is stored as {} and its gradient is {}; both must be placed alike, as "
              "parallel::Shards gives them",
              p.name, describe(master), describe(grad));
  return dist::part_of(grad, kWhere).local;
}

}  // namespace

void Optimizer::step() {
  std::vector<Tensor> grads;
  for (const nn::NamedParameter& p : parameters_)
    grads.push_back(p.parameter.requires_grad() ? p.parameter.grad() : Tensor());
  std::vector<double> lrs;
  for (const double lr : group_lrs_) lrs.push_back(lr * lr_factor_);
  run(grads, lrs, 1.0);
}

void Optimizer::zero_grad() {
  for (const nn::NamedParameter& p : parameters_) {
    if (p.parameter.is_materialized()) p.parameter.set_grad({});
  }
}

// The ratio of the groups' learning rates stays.
double Optimizer::lr() const {
  TUTTI_CHECK(!group_lrs_.empty(), "Optimizer::lr: the optimizer has no parameters, and so no learning rate");
  return group_lrs_[0] * lr_factor_;
}

std::vector<double> Optimizer::lrs_of(double lr) const {
  std::vector<double> lrs(group_lrs_.size(), lr);
  for (size_t g = 1; g < lrs.size(); ++g) {
    TUTTI_CHECK(
        group_lrs_[0] > 0,
        "optimizer step: the first of {} groups was made with learning rate {}, so that the others have no ratio to it",
        lrs.size(), group_lrs_[0]);
    lrs[g] = lr * (group_lrs_[g] / group_lrs_[0]);
  }
  return lrs;
}

void Optimizer::step(std::span<const Tensor> grads, double lr, double grad_scale) {
  TUTTI_CHECK_EQ(grads.size(), parameters_.size(), "optimizer step: {} gradients for {} parameters", grads.size(),
                 parameters_.size());
  run(trained(grads), lrs_of(lr), grad_scale);
}

// The gradients without those of frozen parameters.
std::vector<Tensor> Optimizer::trained(std::span<const Tensor> grads) const {
  std::vector<Tensor> trained(grads.begin(), grads.end());
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!parameters_[i].parameter.requires_grad()) {
      trained[i] = Tensor();
      continue;
    }
    TUTTI_CHECK(grads[i].defined(), "optimizer step: parameter '{}' has no gradient; it took no part in the loss",
                parameters_[i].name);
  }
  return trained;
}

// The state is placed as the parameter was when the optimizer was made.
void Optimizer::check_placement(size_t i, const Tensor& master) const {
  const Tensor& state = state_[i * states_per_parameter()].tensor;
  const auto spec_of = [](const Tensor& t) { return dist::is_dtensor(t) ? dist::part_of(t, kWhere).spec : nullptr; };
  TUTTI_CHECK(spec_of(state) == spec_of(master),
              "optimizer step: parameter '{}' was stored as {} when the optimizer was made, and is stored as {} now; "
              "make the optimizer after fully_shard(), parallelize_module() and whatever else divides parameters",
              parameters_[i].name, describe(state), describe(master));
}

// All that can be refused is refused before the first parameter changes.
std::vector<Tensor> Optimizer::checked(std::span<const Tensor> grads, std::span<const double> lrs,
                                       double grad_scale) const {
  std::vector<Tensor> stored(grads.begin(), grads.end());
  for (const double lr : lrs)
    TUTTI_CHECK(std::isfinite(lr) && lr >= 0, "optimizer step: the learning rate is {}; expected a finite number >= 0",
                lr);
  TUTTI_CHECK(std::isfinite(grad_scale),
              "optimizer step: grad_scale is {}; expected a finite number, such as clip_scale() of a finite norm",
              grad_scale);
  for (size_t i = 0; i < grads.size(); ++i) {
    const nn::Parameter& p = parameters_[i].parameter;
    TUTTI_CHECK(!grads[i].defined() || (grads[i].dtype() == DType::f32 && grads[i].sizes() == to_shape(p.sizes())),
                "optimizer step: the gradient of parameter '{}' is {}; expected {} f32", parameters_[i].name,
                describe(grads[i]), p.sizes());
    if (!grads[i].defined() && !p.is_materialized()) continue;
    const Tensor master = p.master();
    check_placement(i, master);
    if (grads[i].defined()) stored[i] = stored_like(parameters_[i], master, grads[i]);
  }
  return stored;
}

void Optimizer::run(std::span<const Tensor> grads, std::span<const double> lrs, double grad_scale) {
  NoGradScope no_grad;
  const PhaseScope phase(TracePhase::optimizer);
  const std::vector<Tensor> stored = checked(grads, lrs, grad_scale);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].defined()) parameters_[i].parameter.will_change();
  }
  ++steps_;
  for (size_t g = 0; g < lrs.size(); ++g) set_numbers(g, lrs[g], grad_scale, steps_);
  if (compiled_) compiled_(stored);
  else step_all(stored);
}

std::vector<Tensor> Optimizer::check_step(std::span<const Tensor> grads, double lr, double grad_scale) const {
  TUTTI_CHECK_EQ(grads.size(), parameters_.size(), "optimizer step: {} gradients for {} parameters", grads.size(),
                 parameters_.size());
  return checked(trained(grads), lrs_of(lr), grad_scale);
}

void Optimizer::begin_step(int64_t steps_taken, double lr, double grad_scale) {
  const std::vector<double> lrs = lrs_of(lr);
  steps_ = steps_taken;
  for (size_t g = 0; g < lrs.size(); ++g) set_numbers(g, lrs[g], grad_scale, steps_);
}

void Optimizer::update() {
  NoGradScope no_grad;
  const PhaseScope phase(TracePhase::optimizer);
  std::vector<Tensor> grads;
  for (const nn::NamedParameter& p : parameters_)
    grads.push_back(p.parameter.requires_grad() ? p.parameter.grad() : Tensor());
  const std::vector<Tensor> stored = checked(grads, group_lrs_, 1.0);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].defined()) parameters_[i].parameter.will_change();
  }
  step_all(stored);
}

std::vector<StateTensor> Optimizer::update_tensors() const {
  std::vector<StateTensor> all;
  for (const nn::NamedParameter& p : parameters_) all.push_back({p.name, p.parameter.master()});
  for (const std::vector<StateTensor>& more : {state_, numbers()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

void Optimizer::step_piece(size_t i, const Tensor& master, const Tensor& grad, std::span<const Tensor> state) {
  NoGradScope no_grad;
  const PhaseScope phase(TracePhase::optimizer);
  step_one(group_of_[i], master, grad, state);
}

void Optimizer::step_all(std::span<const Tensor> grads) {
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    const ModuleScope parameter(parameters_[i].name);
    step_one(group_of_[i], parameters_[i].parameter.stored(), grads[i], stored_state_[i]);
  }
}

void Optimizer::compile(CompileOptions options) {
  const auto function =
      tutti::compile([this](const std::vector<Tensor>& grads) { step_all(grads); }, std::move(options));
  compiled_ = function;
  statistics_ = [function] { return function.statistics(); };
  explain_ = [function] { return function.explain(); };
}

size_t Optimizer::add_group(const std::vector<nn::NamedParameter>& parameters, double lr) {
  const size_t first = parameters_.size();
  for (const nn::NamedParameter& p : parameters) {
    if (!p.parameter.requires_grad()) continue;
    const bool is_known = std::any_of(parameters_.begin(), parameters_.end(),
                                      [&](const nn::NamedParameter& q) { return q.parameter.is_same(p.parameter); });
    TUTTI_CHECK(!is_known, "optimizer: parameter '{}' is given twice; every parameter belongs to one group", p.name);
    TUTTI_CHECK(p.parameter.dtype() == DType::f32,
                "optimizer: the master of parameter '{}' is {}; expected f32, see Parameter::set_use_dtype() for "
                "another dtype in forward",
                p.name, name_of(p.parameter.dtype()));
    parameters_.push_back(p);
    group_of_.push_back(group_lrs_.size());
  }
  group_lrs_.push_back(lr);
  return first;
}

void Optimizer::add_state(size_t i, const char* what) {
  MemoryCategoryScope category(MemoryCategory::optimizer);
  const nn::NamedParameter& p = parameters_[i];
  const std::string name = fmt::format("state.{}.{}", p.name, what);
  stored_state_.resize(parameters_.size());
  const Tensor whole = memory_ ? memory_(p, what) : Tensor();
  if (!p.parameter.is_materialized() || !dist::is_dtensor(p.parameter.master())) {
    state_.push_back({name, whole.defined() ? whole : zeros(to_shape(p.parameter.sizes()), DType::f32)});
    stored_state_[i].push_back(state_.back().tensor);
    return;
  }
  const Tensor master = p.parameter.master();
  const dist::Part& placed = dist::part_of(master, kWhere);
  const Tensor part = whole.defined() ? dist::part_in_whole(whole, *placed.spec, placed.mesh->coordinate())
                                      : zeros(p.parameter.stored().sizes(), DType::f32);
  state_.push_back({name, dist::wrap(part, *placed.spec, placed.mesh)});
  stored_state_[i].push_back(part);
}

namespace {

// An option that is in [0, below), or not negative where `below` is infinite.
void check_option(const char* optimizer, const char* option, double value,
                  double below = std::numeric_limits<double>::infinity()) {
  if (value >= 0 && value < below) return;
  throw UsageError(fmt::format("{}: {} is {}; expected a finite number in [0, {})", optimizer, option, value, below));
}

void add_numbers(std::vector<StateTensor>& list, size_t group, std::initializer_list<StateTensor> numbers) {
  for (const StateTensor& n : numbers) list.push_back({fmt::format("number.{}.{}", group, n.name), n.tensor});
}

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups, StateMemory memory = {})
      : Optimizer(std::move(memory)) {
    for (const auto& group : groups) {
      const AdamWOptions& o = group.options;
      check_option("adamw", "lr", o.lr);
      check_option("adamw", "beta1", o.beta1, 1);
      check_option("adamw", "beta2", o.beta2, 1);
      check_option("adamw", "eps", o.eps);
      check_option("adamw", "weight_decay", o.weight_decay);
      groups_.push_back({.options = group.options});
      for (size_t i = add_group(group.parameters, group.options.lr); i < parameters().size(); ++i) {
        add_state(i, "exp_avg");
        add_state(i, "exp_avg_sq");
      }
    }
  }

 private:
  struct Group {
    AdamWOptions options;
    AdamWStep now{.lr = 0, .step = 1};
    AdamWNumbers numbers = {};
  };
  void set_numbers(size_t group, double lr, double grad_scale, int64_t step) override {
    Group& g = groups_[group];
    const AdamWOptions& o = g.options;
    g.now = {.lr = lr,
             .beta1 = o.beta1,
             .beta2 = o.beta2,
             .eps = o.eps,
             .weight_decay = o.weight_decay,
             .step = step,
             .grad_scale = grad_scale};
    g.numbers.set(g.now);
  }
  void step_one(size_t group, const Tensor& master, const Tensor& grad, std::span<const Tensor> state) override {
    const Group& g = groups_[group];
    adamw_step_(master, grad, state[0], state[1], g.numbers, g.now);
  }
  std::vector<StateTensor> numbers() const override {
    std::vector<StateTensor> numbers;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const AdamWNumbers& n = groups_[g].numbers;
      add_numbers(numbers, g,
                  {{"grad_scale", n.grad_scale},
                   {"decay", n.decay},
                   {"step_size", n.step_size},
                   {"inv_correction2", n.inv_correction2}});
    }
    return numbers;
  }

  std::vector<Group> groups_;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const std::vector<ParameterGroup<SgdOptions>>& groups, StateMemory memory = {})
      : Optimizer(std::move(memory)) {
    for (const auto& group : groups) {
      check_option("sgd", "lr", group.options.lr);
      check_option("sgd", "momentum", group.options.momentum);
      check_option("sgd", "weight_decay", group.options.weight_decay);
      groups_.push_back({.options = group.options});
      for (size_t i = add_group(group.parameters, group.options.lr); i < parameters().size(); ++i)
        add_state(i, "momentum_buffer");
    }
  }

 private:
  struct Group {
    SgdOptions options;
    SgdStep now{.lr = 0};
    SgdNumbers numbers = {};
  };
  void set_numbers(size_t group, double lr, double grad_scale, int64_t) override {
    Group& g = groups_[group];
    g.now = {
        .lr = lr, .momentum = g.options.momentum, .weight_decay = g.options.weight_decay, .grad_scale = grad_scale};
    g.numbers.set(g.now);
  }
  void step_one(size_t group, const Tensor& master, const Tensor& grad, std::span<const Tensor> state) override {
    const Group& g = groups_[group];
    sgd_step_(master, grad, state[0], g.numbers, g.now);
  }
  std::vector<StateTensor> numbers() const override {
    std::vector<StateTensor> numbers;
    for (size_t g = 0; g < groups_.size(); ++g)
      add_numbers(numbers, g, {{"grad_scale", groups_[g].numbers.grad_scale}, {"lr", groups_[g].numbers.lr}});
    return numbers;
  }

  std::vector<Group> groups_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const std::vector<ParameterGroup<AdamWOptions>>& groups) {
  return std::make_unique<AdamW>(groups);
}
std::unique_ptr<Optimizer> make_adamw(std::vector<nn::NamedParameter> parameters, const AdamWOptions& options,
                                      StateMemory memory) {
  return std::make_unique<AdamW>(std::vector<ParameterGroup<AdamWOptions>>{{std::move(parameters), options}},
                                 std::move(memory));
}

std::unique_ptr<Optimizer> make_sgd(const std::vector<ParameterGroup<SgdOptions>>& groups) {
  return std::make_unique<Sgd>(groups);
}
std::unique_ptr<Optimizer> make_sgd(std::vector<nn::NamedParameter> parameters, const SgdOptions& options,
                                    StateMemory memory) {
  return std::make_unique<Sgd>(std::vector<ParameterGroup<SgdOptions>>{{std::move(parameters), options}},
                               std::move(memory));
}

}  // namespace tutti::optim
