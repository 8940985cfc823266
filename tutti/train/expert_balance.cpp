#include "tutti/train/expert_balance.h"

#include <algorithm>

#include "tutti/comm/process_group.h"
#include "tutti/nn/moe.h"
#include "tutti/optim/expert_balance.h"

namespace tutti::train {

ExpertBalance::ExpertBalance(nn::Module& model, double coefficient, comm::ProcessGroup* group) : layers_(nn::moe_layers(model)), coefficient_(coefficient), group_(group) {}

ExpertBalance::~ExpertBalance() = default;

void ExpertBalance::begin_step() {
  for (const nn::NamedMoE& l : layers_) {
    const Tensor counts = l.layer->counts();
    std::fill_n(counts.data<int64_t>(), counts.numel(), 0);
  }
}

std::vector<ExpertLoad> ExpertBalance::finish_step() {
  if (layers_.empty()) return {};
  std::vector<int64_t> all;  // the counts of all layers, in one call
  for (const nn::NamedMoE& l : layers_) {
    const Tensor counts = l.layer->counts();
    all.insert(all.end(), counts.data<int64_t>(), counts.data<int64_t>() + counts.numel());
  }
  if (group_ != nullptr && group_->size() > 1) group_->all_reduce_values<int64_t>(all);
  std::vector<ExpertLoad> loads;
  auto from = all.begin();
  for (const nn::NamedMoE& l : layers_) {
    const Tensor bias = l.layer->gate->bias();
    ExpertLoad load{.layer = static_cast<int64_t>(loads.size()), .tokens = {from, from + bias.numel()}};
    from += bias.numel();
    const auto [least, most] = std::minmax_element(bias.data<float>(), bias.data<float>() + bias.numel());
    load.bias_min = *least, load.bias_max = *most;
    optim::balance_experts(bias, load.tokens, coefficient_);
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace tutti::train
