#include "tutti/nn/state_dict.h"

#include <algorithm>
#include <cstring>
#include <optional>
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
#include "tutti/nn/block_entries.h"
#include "tutti/nn/module.h"
#include "tutti/nn/published_experts.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/quantized_embedding.h"

namespace tutti::nn {
namespace {

// Something that takes a value by name: a parameter or a persistent buffer.
struct Target {
  std::vector<std::string> names;  // the first one, and those of a parameter that has several
  Extents sizes;
  bool holds_floats;
  Parameter parameter;  // undefined: a buffer
  Buffer buffer;
};

std::vector<Target> targets_of(const Module& module) {
  std::vector<Target> targets;
  for (NamedParameter& p : module.named_parameters())
    targets.push_back({{std::move(p.name)}, p.parameter.sizes(), true, p.parameter, {}});
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

// Names and shapes of what is to be loaded, without its values.
struct Offer {
  std::string_view name;
  Extents sizes;
  DType dtype;
  std::string text;  // for messages
  bool is_decoded = true;
};

// The offer of an entry: where it is one of blocks, that of the parameter's numbers.
Offer offer_of(BlockEntries& blocks, std::string_view name, const Extents& sizes, DType dtype, std::string text,
               bool is_decoded = true) {
  const std::optional<BlockEntries::Decoded> decoded = blocks.add(name, sizes, dtype);
  if (!decoded) return {name, sizes, dtype, std::move(text), is_decoded};
  return {decoded->name, decoded->sizes, DType::f32, std::move(text)};
}

// The value of a name that is offered.
using ValueOf = FunctionRef<Tensor(const std::string& name)>;

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

// Compares what is offered with what the module takes, before anything is copied. Where a parameter is offered under
// several of its names, `value_of` says whether they agree.
LoadReport compare(const Module& module, const std::vector<Target>& targets, const std::vector<Offer>& offers,
                   ValueOf value_of, const LoadOptions& options, const std::string& source) {
  LoadReport report;
  std::unordered_map<std::string_view, const Offer*> by_name;
  for (const Offer& offer : offers)
    TUTTI_CHECK(by_name.emplace(offer.name, &offer).second, "{} holds '{}' twice", source, offer.name);
  std::unordered_set<std::string_view> wanted;
  NoGradScope no_grad;
  for (const Target& target : targets) {
    const std::string* first = nullptr;  // the name whose value is taken
    for (const std::string& name : target.names) {
      wanted.insert(name);
      const auto it = by_name.find(name);
      if (it == by_name.end()) continue;
      if (it->second->sizes != target.sizes || is_floating(it->second->dtype) != target.holds_floats) {
        report.mismatched.push_back(fmt::format("{}: the source holds {}, the module needs {} {}", name,
                                                it->second->text, target.sizes,
                                                target.holds_floats ? "of floats" : "of integers"));
      } else if (!it->second->is_decoded) {
        report.mismatched.push_back(
            fmt::format("{}: the source holds {}, which is not decoded", name, it->second->text));
      } else if (first != nullptr && !give_same_bits(value_of(*first), value_of(name), target.parameter.dtype())) {
        report.mismatched.push_back(fmt::format(
            "{}: the source holds other values than for {}, and the module has one tensor for both", name, *first));
      }
      if (first == nullptr) first = &name;
    }
    if (first == nullptr) report.missing.push_back(target.names[0]);
  }
  for (const Offer& offer : offers) {
    if (!wanted.contains(offer.name) && !module.ignores_on_load(offer.name)) report.unexpected.emplace_back(offer.name);
  }
  const bool is_wrong = !report.mismatched.empty() || (options.strict && !report.empty());
  TUTTI_CHECK(!is_wrong, "{} does not fit the module, which is unchanged:{}", source, report.to_string());
  return report;
}

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
  for (const NamedParameter& p : named_parameters(prefix)) {
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
  std::vector<Offer> offers;
  BlockEntries blocks;
  std::unordered_map<std::string_view, const Tensor*> values;
  for (const auto& [name, tensor] : state) {
    TUTTI_CHECK(tensor.defined(), "the state dict holds an undefined tensor for '{}'", name);
    offers.push_back(offer_of(blocks, name, tensor.extents(), tensor.dtype(), describe(tensor)));
    values.emplace(offers.back().name, &tensor);
  }
  const std::vector<Target> targets = targets_of(*this);
  LoadReport report = compare(
      *this, targets, offers,
      [&](const std::string& name) {
        const BlockEntries::Entry* entry = blocks.find(name);
        return entry == nullptr ? *values.at(name) : dequantize(*values.at(name), entry->format);
      },
      options, "the state dict");
  NoGradScope no_grad;
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
    taken.push_back({&target, blocks.find(*name), is_shared ? clone(detach(value)) : value});
  }
  for (const auto& [target, entry, value] : taken) {
    if (entry != nullptr) take_entry(*target, value, entry->format, options.freeze);
    else if (options.freeze && target->parameter.defined()) target->parameter.freeze(value);
    else take(*target, value);
  }
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
  std::vector<Offer> offers;
  BlockEntries blocks;
  std::unordered_map<std::string_view, BlockFormat> formats;  // of tensors that the file itself holds as blocks
  for (const GroupedTensors::Entry& entry : tensors.entries()) {
    offers.push_back(offer_of(blocks, entry.name, entry.sizes, entry.dtype, entry.text, entry.is_decoded));
    if (entry.blocks && codegen::can_multiply(*entry.blocks)) formats.emplace(entry.name, *entry.blocks);
  }
  const auto values_of = [&](const std::string& name) {
    const BlockEntries::Entry* entry = blocks.find(name);
    return entry == nullptr ? tensors.tensor(name) : dequantize(tensors.tensor(entry->name), entry->format);
  };
  // The blocks that a target keeps; undefined where it takes numbers.
  const auto kept_blocks = [&](const Target& target, const std::string& name) {
    const bool is_kept = options.freeze && options.keep_blocks && target.parameter.defined() &&
                         target.parameter.can_hold_blocks() && formats.contains(name);
    return is_kept ? tensors.blocks(name) : Tensor();
  };
  LoadReport report = compare(module, targets, offers, values_of, options, file.path());
  NoGradScope no_grad;
  for (const Target& target : targets) {
    const std::string* name =
        name_among(target, [&](const std::string& n) { return blocks.find(n) != nullptr || tensors.contains(n); });
    if (name == nullptr) continue;
    if (const BlockEntries::Entry* entry = blocks.find(*name))
      take_entry(target, tensors.tensor(entry->name), entry->format, options.freeze);
    else if (const Tensor kept = kept_blocks(target, *name); kept.defined())
      target.parameter.freeze(kept, formats.at(*name));
    else if (options.freeze && target.parameter.defined()) target.parameter.freeze(tensors.tensor(*name));
    else take(target, tensors.tensor(*name));
  }
  return report;
}

void save_published(const StateDict& state, const std::string& path) {
  write_safetensors(path, published(state), {{"format", "pt"}});
}

void save(const Module& module, const std::string& path) {
  write_safetensors(path, module.state_dict(), {{"format", "pt"}});
}

}  // namespace tutti::nn
