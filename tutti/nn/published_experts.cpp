#include "tutti/nn/published_experts.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/io/model_file.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::nn {
namespace {

constexpr std::string_view kExperts = ".experts.", kBias = ".gate.expert_bias";
constexpr std::pair<std::string_view, std::string_view> kWeights[] = {
    {".gate_proj.weight", "w1"}, {".down_proj.weight", "w2"}, {".up_proj.weight", "w3"}};

bool is_zero(const Tensor& bias) {
  const Tensor dense = to_contiguous(bias);
  return dense.dtype() == DType::f32 &&
         std::all_of(dense.data<float>(), dense.data<float>() + dense.numel(), [](float v) { return v == 0; });
}

// What `one` gives of each expert, in one tensor; undefined where it gives nothing.
Tensor put_together(const std::map<int64_t, std::string>& of_expert, FunctionRef<Tensor(const std::string& name)> one) {
  Tensor all;
  for (const auto& [expert, name] : of_expert) {
    const Tensor values = one(name);
    if (!values.defined()) return {};
    if (!all.defined()) {
      Extents sizes{std::ssize(of_expert)};
      for (const int64_t size : values.extents()) sizes.push_back(size);
      all = Tensor::empty(sizes, values.dtype());
    }
    copy_(select(all, 0, expert), values);
  }
  return all;
}

}  // namespace

std::optional<ExpertName> expert_name_in(std::string_view published) {
  const size_t at = published.rfind(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view layer = published.substr(0, at), rest = published.substr(at + kExperts.size());
  int64_t expert = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  if (error != std::errc() || expert < 0) return std::nullopt;
  const std::string_view weight = rest.substr(static_cast<size_t>(end - rest.data()));
  for (const auto& [name, grouped] : kWeights) {
    if (weight == name) return ExpertName{fmt::format("{}{}{}", layer, kExperts, grouped), expert};
  }
  return std::nullopt;
}

std::string published_expert_name(std::string_view grouped, int64_t expert) {
  const size_t at = grouped.rfind(kExperts);
  const std::string_view weight = at == std::string_view::npos ? "" : grouped.substr(at + kExperts.size());
  for (const auto& [name, of_all] : kWeights) {
    if (weight == of_all) return fmt::format("{}{}{}{}", grouped.substr(0, at), kExperts, expert, name);
  }
  throw UsageError(
      fmt::format("'{}' is no tensor of all experts; expected a name that ends with .experts.w1, .w2 or .w3", grouped));
}

StateDict published(const StateDict& state) {
  StateDict list;
  for (const auto& [name, tensor] : state) {
    if (name.ends_with(kBias) && is_zero(tensor)) continue;
    const auto* weight = std::find_if(std::begin(kWeights), std::end(kWeights), [&](const auto& w) {
      return name.ends_with(fmt::format("{}{}", kExperts, w.second));
    });
    if (weight == std::end(kWeights) || tensor.ndim() != 3) {
      list.emplace_back(name, tensor);
      continue;
    }
    const std::string_view layer = std::string_view(name).substr(0, name.rfind(kExperts));
    for (int64_t e = 0; e < tensor.extent(0); ++e)
      list.emplace_back(fmt::format("{}{}{}{}", layer, kExperts, e, weight->first), select(tensor, 0, e));
  }
  return list;
}

GroupedTensors::GroupedTensors(const ModelFile& file, const std::function<bool(const std::string& name)>& wants)
    : file_(file) {
  for (const ModelTensor& entry : file.entries()) {
    const std::optional<ExpertName> place = expert_name_in(entry.name);
    const bool is_part = place && place->expert < std::ssize(file.entries()) && wants(place->grouped);
    if (is_part) {
      const auto [known, is_new] = groups_[place->grouped].emplace(place->expert, entry.name);
      TUTTI_CHECK(is_new, "{}: {} and {} are one tensor, that of expert {}, under two names", file.path(),
                  known->second, entry.name, place->expert);
      continue;
    }
    entries_.push_back({entry.name, entry.sizes, entry.dtype, describe(entry), entry.is_decoded(), entry.blocks});
  }
  for (const auto& [name, of_expert] : groups_) {
    const ModelTensor& first = file.entry(of_expert.begin()->second);
    Extents sizes{of_expert.rbegin()->first + 1};
    for (const int64_t size : first.sizes) sizes.push_back(size);
    bool is_decoded = true;
    std::optional<BlockFormat> blocks = first.blocks;
    for (const auto& [expert, published] : of_expert) {
      const ModelTensor& one = file.entry(published);
      TUTTI_CHECK(one.sizes == first.sizes && one.dtype == first.dtype,
                  "{}: {} is {}, {} is {}; expected equal sizes and dtypes", file.path(), published, describe(one),
                  first.name, describe(first));
      is_decoded = is_decoded && one.is_decoded();
      if (one.blocks != blocks) blocks = std::nullopt;
    }
    TUTTI_CHECK(std::ssize(of_expert) == sizes[0],
                "{}: {} has tensors of {} experts, and the last is that of expert {}; expected all from 0", file.path(),
                name, of_expert.size(), sizes[0] - 1);
    entries_.push_back({name, sizes, first.dtype,
                        fmt::format("{} tensors such as {} {}", of_expert.size(), first.name, describe(first)),
                        is_decoded, blocks});
    const std::string bias = fmt::format("{}{}", std::string_view(name).substr(0, name.rfind(kExperts)), kBias);
    if (!file.contains(bias) && biases_.emplace(bias, sizes[0]).second)
      entries_.push_back({bias, {sizes[0]}, DType::f32, fmt::format("[{}] zeros", sizes[0])});
  }
}

bool GroupedTensors::is_whole(const std::string& name) const { return biases_.contains(name) || file_.contains(name); }

Tensor GroupedTensors::blocks(const std::string& name) const {
  if (biases_.contains(name)) return {};
  const auto group = groups_.find(name);
  return group == groups_.end()
             ? file_.blocks(name)
             : put_together(group->second, [this](const std::string& one) { return file_.blocks(one); });
}

Tensor GroupedTensors::tensor(const std::string& name) const {
  if (const auto bias = biases_.find(name); bias != biases_.end()) return zeros({bias->second});
  const auto group = groups_.find(name);
  return group == groups_.end()
             ? file_.tensor(name)
             : put_together(group->second, [this](const std::string& one) { return file_.tensor(one); });
}

}  // namespace tutti::nn
