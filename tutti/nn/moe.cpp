#include "tutti/nn/moe.h"

#include <utility>

#include "tutti/autograd/recomputing.h"
#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/token_dispatcher.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"

namespace tutti::nn {

struct MoE::SharedExperts final : Module {
  SharedExperts(int64_t dim, int64_t hidden_dim, const Init& init)
      : gate_proj(this, "gate_proj", dim, hidden_dim, LinearOptions{.bias = false, .init = init}), up_proj(this, "up_proj", dim, hidden_dim, LinearOptions{.bias = false, .init = init}),
        down_proj(this, "down_proj", hidden_dim, dim, LinearOptions{.bias = false, .init = init}) {}

  Tensor forward(const Tensor& x_TD) const {
    const Tensor gate_TF = gate_proj(x_TD);
    const Tensor up_TF = up_proj(x_TD);
    return down_proj(swiglu(gate_TF, up_TF));
  }

  Child<Linear> gate_proj, up_proj, down_proj;
};

MoE::MoE(const MoEOptions& options)
    : options_(options), gate(this, "gate", options.dim, options.router), experts(this, "experts", options.router.num_experts, options.dim, options.hidden_dim, options.init),
      dispatcher_(std::make_unique<LocalDispatcher>()) {
  tokens_per_expert = register_buffer("tokens_per_expert", zeros({options.router.num_experts}, DType::i64), false);
  if (options.shared_hidden_dim > 0) shared_experts_ = std::make_unique<Child<SharedExperts>>(this, "shared_experts", options.dim, options.shared_hidden_dim, options.init);
}

MoE::~MoE() = default;

void MoE::set_dispatcher(std::unique_ptr<TokenDispatcher> dispatcher) {
  TUTTI_CHECK(dispatcher != nullptr, "MoE::set_dispatcher: the dispatcher is null; give a TokenDispatcher, such as LocalDispatcher");
  dispatcher_ = std::move(dispatcher);
}

Tensor MoE::forward(const Tensor& x_TD) const {
  TUTTI_CHECK(x_TD.ndim() == 2, "MoE: the input is {}; expected [tokens, {}]", describe(x_TD), options_.dim);
  const Routing routing = gate(x_TD);
  if (is_training() && !is_recomputing()) {
    const NoGradScope no_grad;
    add_(tokens_per_expert.use(), routing.tokens_per_expert_E);
  }
  const Dispatched dispatched = dispatcher_->dispatch(x_TD, routing);
  const Tensor outputs_ND = experts(dispatched.experts);
  const Tensor routed_TD = dispatcher_->combine(outputs_ND, dispatched, routing);
  return shared_experts_ == nullptr ? routed_TD : add(routed_TD, (*shared_experts_)(x_TD));
}

std::vector<NamedMoE> moe_layers(Module& model) {
  std::vector<NamedMoE> layers;
  for (const NamedModule& m : model.named_modules()) {
    if (auto* layer = dynamic_cast<MoE*>(m.module)) layers.push_back({m.name, layer});
  }
  return layers;
}

}  // namespace tutti::nn
