#include "tutti/train/step/expert_balance.h"

#include <algorithm>
#include <cstring>

#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"
#include "tutti/nn/moe.h"
#include "tutti/optim/expert_balance.h"

namespace tutti::train {

ExpertBalance::ExpertBalance(nn::Module& model, double coefficient, comm::ProcessGroup* group)
    : layers_(nn::moe_layers(model)), coefficient_(coefficient), group_(group) {}

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

// A record holds of each layer the biases, the least and the largest bias of before, and the tokens of each expert.
std::vector<std::byte> ExpertBalance::record(std::span<const ExpertLoad> loads) const {
  std::vector<std::byte> bytes;
  const auto put = [&](const void* from, size_t nbytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + nbytes);
  };
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Tensor bias = layers_[l].layer->gate->bias();
    ExpertLoad load;
    if (!loads.empty()) load = loads[l];
    load.tokens.resize(static_cast<size_t>(bias.numel()));
    put(bias.raw_data(), static_cast<size_t>(bias.nbytes()));
    put(&load.bias_min, sizeof load.bias_min);
    put(&load.bias_max, sizeof load.bias_max);
    put(load.tokens.data(), load.tokens.size() * sizeof(int64_t));
  }
  return bytes;
}

std::vector<ExpertLoad> ExpertBalance::restore(std::span<const std::byte> record) {
  const auto take = [&](void* to, size_t nbytes) {
    TUTTI_ASSERT(nbytes <= record.size(), "{} bytes are left of a record of experts; expected {}", record.size(),
                 nbytes);
    std::memcpy(to, record.data(), nbytes);
    record = record.subspan(nbytes);
  };
  std::vector<ExpertLoad> loads;
  for (const nn::NamedMoE& l : layers_) {
    const Tensor bias = l.layer->gate->bias();
    ExpertLoad load{.layer = static_cast<int64_t>(loads.size())};
    load.tokens.resize(static_cast<size_t>(bias.numel()));
    take(bias.raw_data(), static_cast<size_t>(bias.nbytes()));
    take(&load.bias_min, sizeof load.bias_min);
    take(&load.bias_max, sizeof load.bias_max);
    take(load.tokens.data(), load.tokens.size() * sizeof(int64_t));
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace tutti::train
