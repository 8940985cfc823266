#include "tutti/nn/moe.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "tutti/autograd/recomputing.h"
#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/dist/index_set.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/own_part.h"
#include "tutti/nn/token_dispatcher.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/numerics.h"

namespace tutti::nn {

struct MoE::SharedExperts final : Module {
  SharedExperts(int64_t dim, int64_t hidden_dim, const Init& init)
      : gate_proj(this, "gate_proj", dim, hidden_dim, LinearOptions{.bias = false, .init = init}),
        up_proj(this, "up_proj", dim, hidden_dim, LinearOptions{.bias = false, .init = init}),
        down_proj(this, "down_proj", hidden_dim, dim, LinearOptions{.bias = false, .init = init}) {}

  Tensor forward(const Tensor& x_TD) const {
    const Tensor gate_TF = gate_proj(x_TD);
    const Tensor up_TF = up_proj(x_TD);
    return down_proj(swiglu(gate_TF, up_TF));
  }

  Child<Linear> gate_proj, up_proj, down_proj;
};

MoE::MoE(const MoEOptions& options)
    : options_(options),
      gate(this, "gate", options.dim, options.router),
      experts(this, "experts", options.router.num_experts, options.dim, options.hidden_dim, options.init,
              options.activation),
      dispatcher_(std::make_unique<LocalDispatcher>()) {
  tokens_per_expert = register_buffer("tokens_per_expert", zeros({options.router.num_experts}, DType::i64), false);
  if (options.shared_hidden_dim > 0)
    shared_experts_ = std::make_unique<Child<SharedExperts>>(this, "shared_experts", options.dim,
                                                             options.shared_hidden_dim, options.init);
}

MoE::~MoE() = default;

void MoE::set_dispatcher(std::unique_ptr<TokenDispatcher> dispatcher) {
  TUTTI_CHECK(dispatcher != nullptr,
              "MoE::set_dispatcher: the dispatcher is null; give a TokenDispatcher, such as LocalDispatcher");
  dispatcher_ = std::move(dispatcher);
}

Tensor MoE::counts() const { return own_part(tokens_per_expert.use()); }

Tensor MoE::forward(const Tensor& x_TD) const {
  TUTTI_CHECK(x_TD.ndim() == 2, "MoE: the input is {}; expected [tokens, {}]", describe(x_TD), options_.dim);
  const Tensor routed_TD = dist::is_dtensor(x_TD) ? divided(x_TD) : routed(x_TD, x_TD.size(0));
  return shared_experts_ == nullptr ? routed_TD : add(routed_TD, (*shared_experts_)(x_TD));
}

namespace {

struct WrongPart {
  int64_t rank;
  dist::Range part, node;
};

// The first of `ranks` ranks, a power of two, whose part is not a node of both trees over the tokens: that of the
// router's gradient, which halves the tokens, and that of the experts' gradients, which halves their ranges. From nodes
// of one level the trees go on over the ranks. An empty part may stand anywhere.
std::optional<WrongPart> wrong_part(int64_t tokens, int64_t ranks, int64_t grain, dist::Cut cut) {
  for (int64_t r = 0; r < ranks; ++r) {
    const dist::Range part = dist::cut_range(tokens, r, ranks, cut),
                      ranges = dist::cut_range((tokens + grain - 1) / grain, r, ranks, dist::Cut::halving);
    const dist::Range nodes[] = {dist::cut_range(tokens, r, ranks, dist::Cut::halving),
                                 {std::min(ranges.begin * grain, tokens), std::min(ranges.end * grain, tokens)}};
    for (const dist::Range& node : nodes) {
      if (part.size() != node.size() || (part.size() > 0 && part.begin != node.begin)) return WrongPart{r, part, node};
    }
  }
  return std::nullopt;
}

void check_parts(int64_t tokens, int64_t ranks, dist::Cut cut) {
  if (ranks == 1 || !is_grad_enabled() || numerics_mode() == NumericsMode::fast) return;
  const int64_t grain = token_grain();
  const bool has_halves = std::has_single_bit(static_cast<uint64_t>(ranks));
  const std::optional<WrongPart> wrong = has_halves ? wrong_part(tokens, ranks, grain, cut) : std::nullopt;
  if (has_halves && !wrong) return;
  // From as many ranks as tokens on, more ranks only add empty parts.
  int64_t largest = 1;
  for (int64_t r = 2; r / 2 < tokens; r *= 2) {
    if (!wrong_part(tokens, r, grain, cut)) largest = r;
  }
  const std::string why = fmt::format(
      "so the gradients of experts would be summed in another order than on one rank; the largest number of ranks for "
      "these tokens is {}",
      largest);
  TUTTI_CHECK(has_halves,
              "MoE: {} tensor-parallel ranks divide {} tokens, whose tree has halves, {}; numbers are powers of two",
              ranks, tokens, why);
  throw UsageError(
      fmt::format("MoE: rank {} of {} tensor-parallel ranks has the tokens [{}, {}) of {}, where a node of the tree "
                  "over tokens, in ranges of numerics.token_grain = {}, "
                  "has [{}, {}), {}, or use batches of a multiple of {} tokens",
                  wrong->rank, ranks, wrong->part.begin, wrong->part.end, tokens, grain, wrong->node.begin,
                  wrong->node.end, why, ranks * grain));
}

}  // namespace

// The ranks of a tensor-parallel mesh each route the tokens that they have.
Tensor MoE::divided(const Tensor& x_TD) const {
  const dist::Part& part = dist::part_of(x_TD, "MoE");
  const dist::Placements by_tokens{dist::shard(0)};
  TUTTI_CHECK(part.spec->placements() == by_tokens,
              "MoE: the input is {} on {}; expected tokens that ranks divide, [S(0)]: give the layer the style "
              "PrepareModuleInputOutput{{.input = {{.desired_input_layouts = {{shard(0)}}}}}}",
              describe(x_TD), part.mesh->to_string());
  const int64_t tokens = x_TD.size(0).guard_int(),
                most = dist::cut_range(tokens, 0, part.mesh->size(), part.spec->cut()).size();
  check_parts(tokens, part.mesh->size(), part.spec->cut());
  return dist::from_local(routed(dist::to_local(x_TD), most), part.mesh, by_tokens,
                          {.layout = {.cut = part.spec->cut()}, .sizes = Extents{tokens, options_.dim}});
}

Tensor MoE::routed(const Tensor& x_TD, SymInt most_tokens) const {
  const Routing routing = gate(x_TD);
  if (is_training() && !is_recomputing()) {
    const NoGradScope no_grad;
    add_(counts(), routing.tokens_per_expert_E);
  }
  const Dispatched dispatched = dispatcher_->dispatch(expert_input(x_TD), routing, most_tokens);
  const Tensor outputs_ND = experts(dispatched.experts);
  return dispatcher_->combine(outputs_ND, dispatched, routing);
}

std::vector<NamedMoE> moe_layers(Module& model) {
  std::vector<NamedMoE> layers;
  for (const NamedModule& m : model.named_modules()) {
    if (auto* layer = dynamic_cast<MoE*>(m.module)) layers.push_back({m.name, layer});
  }
  return layers;
}

}  // namespace tutti::nn
