#include "tutti/nn/state_dict.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "tutti/autograd/tape.h"
#include "tutti/codegen/blocks/block_product.h"
#include "tutti/core/block_format.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/io/model_file.h"
#include "tutti/io/safetensors.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/load_offers.h"
#include "tutti/nn/module.h"
#include "tutti/nn/published_experts.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/quantized_embedding.h"

namespace tutti::nn {
namespace {

// The first of the target's names that is offered; nullptr: none is.
const std::string* name_among(const Target& target, FunctionRef<bool(const std::string& name)> is_offered) {
  const auto found = std::find_if(target.names.begin(), target.names.end(), is_offered);
  return found == target.names.end() ? nullptr : &*found;
}

void take(const Target& target, const Tensor& values) {
  if (target.parameter.defined()) return target.parameter.assign(values);
  const Tensor buffer = target.buffer.use();
  if (!dist::is_dtensor(buffer) || dist::is_dtensor(values)) {
    copy_(buffer, values);
    return;
  }
  const dist::DTensorSpec& spec = dist::spec_of(buffer);  // every rank has all values
  copy_(buffer, dist::distribute_tensor(values, dist::mesh_of(buffer), spec.placements(),
                                        {.layout = {spec.order(), spec.cut()}, .src_data_rank = -1}));
}

// The codes of all targets that take some, checked before any is changed.
struct TakenCodes {
  Linear* layer;
  Quantization kind;
  WeightCodes codes;
};
std::vector<TakenCodes> codes_for(const std::vector<Target>& targets, const Offers& offers, ValueOf value_of,
                                  bool shares_memory) {
  std::vector<TakenCodes> taken;
  for (const Target& target : targets) {
    const CodeEntries::Entry* entry = offers.codes().find(target.names[0]);
    if (entry != nullptr && target.layer != nullptr)
      taken.push_back({target.layer, entry->kind, codes_of(*entry, value_of, shares_memory)});
  }
  return taken;
}

void take_entry(const Target& target, const Tensor& blocks, BlockFormat format, bool shares_memory) {
  if (target.parameter.defined()) take_blocks(target.parameter, blocks, format, shares_memory);
  else take(target, dequantize(blocks, format));
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
  std::unordered_map<const void*, const CodedOperand*> coded;  // by weight
  visit_paths(prefix, [&](const Module& module, const std::string&) {
    const auto* layer = dynamic_cast<const Linear*>(&module);
    const CodedOperand* operand = layer == nullptr ? nullptr : coded_operand_of(*layer);
    if (operand != nullptr) coded.emplace(layer->weight.identity(), operand);
  });
  for (const NamedParameter& p : named_parameters(prefix)) {
    if (const auto held = coded.find(p.parameter.identity()); held != coded.end()) {
      append_code_entries(state, p.name, *held->second);
      continue;
    }
    p.parameter.check_has_values();
    if (p.parameter.holds_blocks()) {
      state.emplace_back(name_of_blocks(p.name, p.parameter.block_format()), p.parameter.blocks());
      continue;
    }
    state.emplace_back(p.name, detach(p.parameter.master()));
  }
  for (const NamedBuffer& b : named_buffers(prefix)) {
    if (b.persistent) state.emplace_back(b.name, b.buffer.use());
  }
  return state;
}

LoadReport Module::load_state_dict(const StateDict& state, const LoadOptions& options) {
  const std::vector<Target> targets = targets_of(*this);
  Offers offers(targets, "the state dict");
  std::unordered_map<std::string_view, const Tensor*> entries, values;
  for (const auto& [name, tensor] : state) {
    TUTTI_CHECK(tensor.defined(), "the state dict holds an undefined tensor for '{}'", name);
    offers.add(name, tensor.extents(), tensor.dtype(), describe(tensor));
    entries.emplace(name, &tensor);
  }
  offers.complete();
  for (const Offer& offer : offers.list()) {
    const BlockEntries::Entry* blocks = offers.blocks().find(std::string(offer.name));
    const auto entry = entries.find(blocks == nullptr ? offer.name : std::string_view(blocks->name));
    if (entry != entries.end()) values.emplace(offer.name, entry->second);
  }
  LoadReport report = compare(
      *this, targets, offers,
      [&](const std::string& name) {
        const BlockEntries::Entry* entry = offers.blocks().find(name);
        return entry == nullptr ? *values.at(name) : dequantize(*values.at(name), entry->format);
      },
      options);
  NoGradScope no_grad;
  const std::vector<TakenCodes> taken_codes =
      codes_for(targets, offers, [&](const std::string& name) { return *entries.at(name); }, options.freeze);
  // A source may share memory with another target, as in a dict that exchanges two parameters: those are copied before
  // any is written.
  std::unordered_set<const Storage*> written;
  for (const Target& target : targets) {
    if (!target.parameter.defined()) written.insert(target.buffer.use().storage().get());
    else if (target.parameter.is_materialized() && !target.parameter.is_frozen())
      written.insert(target.parameter.master().storage().get());
  }
  struct Taken {
    const Target* target;
    const BlockEntries::Entry* blocks;
    Tensor value;
  };
  std::vector<Taken> taken;
  for (const Target& target : targets) {
    const std::string* name = name_among(target, [&](const std::string& n) { return values.contains(n); });
    if (name == nullptr) continue;
    const Tensor& value = *values.at(*name);
    const bool is_shared = written.contains(value.storage().get());
    taken.push_back({&target, offers.blocks().find(*name), is_shared ? clone(detach(value)) : value});
  }
  for (const auto& [target, entry, value] : taken) {
    if (entry != nullptr) take_entry(*target, value, entry->format, options.freeze);
    else if (options.freeze && target->parameter.defined()) target->parameter.freeze(value);
    else take(*target, value);
  }
  for (const TakenCodes& codes : taken_codes) hold_codes(*codes.layer, codes.kind, codes.codes);
  return report;
}

LoadReport load(Module& module, const std::string& path, const LoadOptions& options) {
  return load(module, ModelFile(path), options);
}

LoadReport load(Module& module, const ModelFile& file, const LoadOptions& options) {
  const std::vector<Target> targets = targets_of(module);
  const GroupedTensors tensors(file, [&](const std::string& name) {
    return std::any_of(targets.begin(), targets.end(), [&](const Target& t) {
      return std::find(t.names.begin(), t.names.end(), name) != t.names.end();
    });
  });
  Offers offers(targets, file.path());
  std::unordered_map<std::string_view, BlockFormat> formats;  // of tensors that the file itself holds as blocks
  for (const GroupedTensors::Entry& entry : tensors.entries()) {
    offers.add(entry.name, entry.sizes, entry.dtype, entry.text, entry.is_decoded);
    if (entry.blocks && codegen::can_multiply(*entry.blocks)) formats.emplace(entry.name, *entry.blocks);
  }
  offers.complete();
  const auto values_of = [&](const std::string& name) {
    const BlockEntries::Entry* entry = offers.blocks().find(name);
    return entry == nullptr ? tensors.tensor(name) : dequantize(tensors.tensor(entry->name), entry->format);
  };
  // The blocks that a target keeps; undefined where it takes numbers.
  const auto kept_blocks = [&](const Target& target, const std::string& name) {
    const bool is_kept = options.freeze && options.keep_blocks && target.parameter.defined() &&
                         target.parameter.can_hold_blocks() && formats.contains(name);
    return is_kept ? tensors.blocks(name) : Tensor();
  };
  LoadReport report = compare(module, targets, offers, values_of, options);
  NoGradScope no_grad;
  const std::vector<TakenCodes> taken_codes =
      codes_for(targets, offers, [&](const std::string& name) { return tensors.tensor(name); }, options.freeze);
  for (const Target& target : targets) {
    const std::string* name = name_among(
        target, [&](const std::string& n) { return offers.blocks().find(n) != nullptr || tensors.contains(n); });
    if (name == nullptr) continue;
    if (const BlockEntries::Entry* entry = offers.blocks().find(*name))
      take_entry(target, tensors.tensor(entry->name), entry->format, options.freeze);
    else if (const Tensor kept = kept_blocks(target, *name); kept.defined())
      target.parameter.freeze(kept, formats.at(*name));
    else if (options.freeze && target.parameter.defined()) target.parameter.freeze(tensors.tensor(*name));
    else take(target, tensors.tensor(*name));
  }
  for (const TakenCodes& codes : taken_codes) hold_codes(*codes.layer, codes.kind, codes.codes);
  return report;
}

void save_published(const StateDict& state, const std::string& path) {
  write_safetensors(path, published(state), {{"format", "pt"}});
}

void save(const Module& module, const std::string& path) {
  write_safetensors(path, module.state_dict(), {{"format", "pt"}});
}

}  // namespace tutti::nn
