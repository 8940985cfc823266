#include "tutti/nn/load_offers.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"

namespace tutti::nn {
namespace {

// Whether two sources would give a parameter of `dtype` the same bits.
bool give_same_bits(const Tensor& a, const Tensor& b, DType dtype) {
  const auto whole = [&](const Tensor& t) {
    const Tensor all = dist::is_dtensor(t) ? dist::full_tensor(detach(t)) : detach(t);
    return to_contiguous(a.dtype() == b.dtype() ? all : cast(all, dtype));
  };
  if (a.is_same(b)) return true;
  const Tensor x = whole(a), y = whole(b);
  return x.nbytes() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

// Why the target cannot take what is offered under one of its names, or ""; `codes` are those of the offer or null.
std::string fault_of(const Target& target, const Offer& offer, const CodeEntries::Entry* codes) {
  if (codes != nullptr && !codes->fault.empty()) return codes->fault;
  if (offer.sizes != target.sizes || is_floating(offer.dtype) != target.holds_floats)
    return fmt::format("the source holds {}, the module needs {} {}", offer.text, target.sizes,
                       target.holds_floats ? "of floats" : "of integers");
  if (!offer.is_decoded) return fmt::format("the source holds {}, which is not decoded", offer.text);
  const CodedOperand* held = target.layer == nullptr ? nullptr : coded_operand_of(*target.layer);
  if (held != nullptr && (codes == nullptr || codes->kind != held->quantization()))
    return fmt::format(
        "the source holds {}, and the module is held as codes ({}); load it into a module that was "
        "built anew",
        offer.text, held->kind());
  const bool takes_codes = held != nullptr
                               ? !dist::is_dtensor(held->codes().codes)
                               : (target.layer != nullptr && target.names.size() == 1 && can_hold_codes(*target.layer));
  if (codes != nullptr && !takes_codes)
    return fmt::format(
        "the source holds {}, and only linear layers compute with codes, where no other module reads "
        "their weight and ranks do not divide it",
        offer.text);
  return "";
}

}  // namespace

std::vector<Target> targets_of(Module& module) {
  std::vector<Target> targets;
  std::unordered_map<const void*, Linear*> layers;
  for (const NamedModule& named : module.named_modules()) {
    if (auto* layer = dynamic_cast<Linear*>(named.module)) layers.emplace(layer->weight.identity(), layer);
  }
  for (NamedParameter& p : module.named_parameters()) {
    const auto layer = layers.find(p.parameter.identity());
    targets.push_back({{std::move(p.name)},
                       p.parameter.sizes(),
                       true,
                       p.parameter,
                       {},
                       layer == layers.end() ? nullptr : layer->second});
  }
  for (NamedParameter& alias : module.parameter_aliases()) {
    const auto same = std::find_if(targets.begin(), targets.end(),
                                   [&](const Target& t) { return t.parameter.is_same(alias.parameter); });
    if (same != targets.end()) same->names.push_back(std::move(alias.name));
  }
  for (NamedBuffer& b : module.named_buffers()) {
    if (b.persistent)
      targets.push_back(
          {{std::move(b.name)}, b.buffer.use().extents(), is_floating(b.buffer.use().dtype()), {}, b.buffer});
  }
  return targets;
}

Offers::Offers(const std::vector<Target>& targets, std::string source) : source_(std::move(source)) {
  for (const Target& target : targets) own_names_.insert(target.names.begin(), target.names.end());
}

void Offers::add(std::string_view name, const Extents& sizes, DType dtype, std::string text, bool is_decoded) {
  if (const auto decoded = blocks_.add(name, sizes, dtype)) {
    list_.push_back({decoded->name, decoded->sizes, DType::f32, std::move(text)});
    return;
  }
  Offer offer{name, sizes, dtype, std::move(text), is_decoded};
  if (own_names_.contains(name) || !codes_.add(name, sizes, dtype)) list_.push_back(std::move(offer));
  else of_codes_.emplace(name, std::move(offer));
}

// An entry of which the codes are missing belongs to nothing.
void Offers::complete() {
  for (const auto& [parameter, entry] : codes_.complete()) {
    if (own_names_.contains(parameter)) {
      const auto codes = entry.names.find(&kCodeParts[0]);
      list_.push_back({parameter, entry.matrix, DType::f32,
                       codes == entry.names.end()
                           ? std::string(name_of(entry.kind))
                           : fmt::format("{} as codes ({})", of_codes_.at(codes->second).text, name_of(entry.kind))});
      continue;
    }
    for (const auto& [part, name] : entry.names) list_.push_back(of_codes_.at(name));
  }
}

LoadReport compare(const Module& module, const std::vector<Target>& targets, const Offers& offers, ValueOf value_of,
                   const LoadOptions& options) {
  LoadReport report;
  std::unordered_map<std::string_view, const Offer*> by_name;
  for (const Offer& offer : offers.list())
    TUTTI_CHECK(by_name.emplace(offer.name, &offer).second, "{} holds '{}' twice", offers.source(), offer.name);
  std::unordered_set<std::string_view> wanted;
  NoGradScope no_grad;
  for (const Target& target : targets) {
    const std::string* first = nullptr;  // the name whose value is taken
    bool is_offered = false;
    for (const std::string& name : target.names) {
      wanted.insert(name);
      const auto it = by_name.find(name);
      if (it == by_name.end()) continue;
      is_offered = true;
      const std::string fault = fault_of(target, *it->second, offers.codes().find(name));
      if (!fault.empty()) {
        report.mismatched.push_back(fmt::format("{}: {}", name, fault));
        continue;
      }
      if (first != nullptr && !give_same_bits(value_of(*first), value_of(name), target.parameter.dtype())) {
        report.mismatched.push_back(fmt::format(
            "{}: the source holds other values than for {}, and the module has one tensor for both", name, *first));
      }
      if (first == nullptr) first = &name;
    }
    if (!is_offered) report.missing.push_back(target.names[0]);
  }
  for (const Offer& offer : offers.list()) {
    if (!wanted.contains(offer.name) && !module.ignores_on_load(offer.name)) report.unexpected.emplace_back(offer.name);
  }
  const bool is_wrong = !report.mismatched.empty() || (options.strict && !report.empty());
  TUTTI_CHECK(!is_wrong, "{} does not fit the module, which is unchanged:{}", offers.source(), report.to_string());
  return report;
}

}  // namespace tutti::nn
