#include "tutti/nn/state_dict.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <string_view>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/nn/module.h"
#include "tutti/nn/published_experts.h"
#include "tutti/ops/copy.h"

namespace tutti::nn {
namespace {

// Something that takes a value by name: a parameter or a persistent buffer.
struct Target {
  std::string name;
  Extents sizes;
  bool holds_floats;
  Parameter parameter;  // undefined: a buffer
  Buffer buffer;
};

std::vector<Target> targets_of(const Module& module) {
  std::vector<Target> targets;
  for (NamedParameter& p : module.named_parameters()) targets.push_back({std::move(p.name), p.parameter.sizes(), true, p.parameter, {}});
  for (NamedBuffer& b : module.named_buffers()) {
    if (b.persistent) targets.push_back({std::move(b.name), b.buffer.use().extents(), is_floating(b.buffer.use().dtype()), {}, b.buffer});
  }
  return targets;
}

// Names and shapes of what is to be loaded, without its values.
struct Offer {
  std::string_view name;
  Extents sizes;
  DType dtype;
  std::string text;  // for messages
};

LoadReport compare(const std::vector<Target>& targets, const std::vector<Offer>& offers, const LoadOptions& options, const std::string& source) {
  LoadReport report;
  std::unordered_map<std::string_view, const Offer*> by_name;
  for (const Offer& offer : offers) by_name.emplace(offer.name, &offer);
  std::unordered_set<std::string_view> wanted;
  for (const Target& target : targets) {
    wanted.insert(target.name);
    const auto it = by_name.find(target.name);
    if (it == by_name.end()) report.missing.push_back(target.name);
    else if (it->second->sizes != target.sizes || is_floating(it->second->dtype) != target.holds_floats)
      report.mismatched.push_back(fmt::format("{}: the source holds {}, the module needs {}", target.name, it->second->text,
                                              fmt::format("{} {}", target.sizes, target.holds_floats ? "of floats" : "of integers")));
  }
  for (const Offer& offer : offers) {
    if (!wanted.contains(offer.name)) report.unexpected.emplace_back(offer.name);
  }
  const bool is_wrong = !report.mismatched.empty() || (options.strict && !report.empty());
  TUTTI_CHECK(!is_wrong, "{} does not fit the module, which is unchanged:{}", source, report.to_string());
  return report;
}

void take(const Target& target, const Tensor& values) {
  if (target.parameter.defined()) return target.parameter.assign(values);
  const Tensor buffer = target.buffer.use();
  if (!dist::is_dtensor(buffer) || dist::is_dtensor(values)) {
    copy_(buffer, values);
    return;
  }
  const dist::DTensorSpec& spec = dist::spec_of(buffer);  // every rank has all values
  copy_(buffer, dist::distribute_tensor(values, dist::mesh_of(buffer), spec.placements(), {.layout = {spec.order(), spec.cut()}, .src_data_rank = -1}));
}

}  // namespace

std::string LoadReport::to_string() const {
  std::string text;
  for (const std::string& name : missing) text += "\n  missing: " + name;
  for (const std::string& name : unexpected) text += "\n  unexpected: " + name;
  for (const std::string& line : mismatched) text += "\n  " + line;
  return text;
}

StateDict Module::state_dict(const std::string& prefix) const {
  StateDict state;
  for (const NamedParameter& p : named_parameters(prefix)) state.emplace_back(p.name, detach(p.parameter.master()));
  for (const NamedBuffer& b : named_buffers(prefix)) {
    if (b.persistent) state.emplace_back(b.name, b.buffer.use());
  }
  return state;
}

LoadReport Module::load_state_dict(const StateDict& state, const LoadOptions& options) {
  std::vector<Offer> offers;
  std::unordered_map<std::string_view, const Tensor*> values;
  for (const auto& [name, tensor] : state) {
    TUTTI_CHECK(tensor.defined(), "the state dict holds an undefined tensor for '{}'", name);
    TUTTI_CHECK(values.emplace(name, &tensor).second, "the state dict holds '{}' twice", name);
    offers.push_back({name, tensor.extents(), tensor.dtype(), describe(tensor)});
  }
  const std::vector<Target> targets = targets_of(*this);
  LoadReport report = compare(targets, offers, options, "the state dict");
  NoGradScope no_grad;
  // A source may share memory with another target, as in a dict that exchanges two parameters: those are copied before any is written.
  std::unordered_set<const Storage*> written;
  for (const Target& target : targets) {
    if (!target.parameter.defined()) written.insert(target.buffer.use().storage().get());
    else if (target.parameter.is_materialized()) written.insert(target.parameter.master().storage().get());
  }
  std::vector<std::pair<const Target*, Tensor>> taken;
  for (const Target& target : targets) {
    const auto it = values.find(target.name);
    if (it == values.end()) continue;
    const bool is_shared = written.contains(it->second->storage().get());
    taken.emplace_back(&target, is_shared ? clone(detach(*it->second)) : *it->second);
  }
  for (const auto& [target, value] : taken) take(*target, value);
  return report;
}

LoadReport load(Module& module, const std::string& path, const LoadOptions& options) {
  const SafetensorsShards file(path);
  const std::vector<Target> targets = targets_of(module);
  const GroupedTensors tensors(file, [&](const std::string& name) { return std::any_of(targets.begin(), targets.end(), [&](const Target& t) { return t.name == name; }); });
  std::vector<Offer> offers;
  for (const GroupedTensors::Entry& entry : tensors.entries()) offers.push_back({entry.name, entry.sizes, entry.dtype, entry.text});
  LoadReport report = compare(targets, offers, options, path);
  NoGradScope no_grad;
  for (const Target& target : targets) {
    if (tensors.contains(target.name)) take(target, tensors.tensor(target.name));
  }
  return report;
}

void save_published(const StateDict& state, const std::string& path) { write_safetensors(path, published(state), {{"format", "pt"}}); }

void save(const Module& module, const std::string& path) { write_safetensors(path, module.state_dict(), {{"format", "pt"}}); }

}  // namespace tutti::nn
