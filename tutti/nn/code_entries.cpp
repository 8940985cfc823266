#include "tutti/nn/code_entries.h"

#include <algorithm>
#include <cmath>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/copy.h"

namespace tutti::nn {
namespace {

std::string name_of_entry(std::string_view parameter, Quantization kind, const CodePart& part) {
  return fmt::format("{}.{}{}{}", parameter, name_of(kind), part.name.empty() ? "" : ".", part.name);
}

// Why the parts are not those of the kind; sets the matrix that they stand for.
std::string fault_of(CodeEntries::Entry& entry, const std::string& parameter) {
  const auto name = [&](const CodePart& part) { return name_of_entry(parameter, entry.kind, part); };
  const auto meta = [&](const CodePart& part) -> const PartMeta* {
    const auto found = entry.metas.find(&part);
    return found == entry.metas.end() ? nullptr : &found->second;
  };
  const CodePart &codes = kCodeParts[0], &scale = kCodeParts[1];
  if (meta(codes) == nullptr) return fmt::format("the source does not hold {}", name(codes));
  if (meta(codes)->sizes.ndim() != 2)
    return fmt::format("the source holds {} {}; expected two dims", name(codes), meta(codes)->sizes);
  entry.matrix = meta(codes)->sizes;
  if (row_of(entry.kind).has_groups()) entry.matrix[1] *= 2;
  const int64_t groups = meta(scale) != nullptr && meta(scale)->sizes.ndim() == 2 ? meta(scale)->sizes[1] : 0;
  for (const CodePart& part : kCodeParts) {
    const std::optional<PartMeta> expected = meta_of(entry.kind, part, entry.matrix, groups);
    const PartMeta* held = meta(part);
    if (!expected && held == nullptr) continue;
    if (!expected) return fmt::format("the source holds {}, which {} does not have", name(part), name_of(entry.kind));
    if (held == nullptr) return fmt::format("the source does not hold {}", name(part));
    if (held->dtype != expected->dtype || held->sizes != expected->sizes)
      return fmt::format("the source holds {} {} {}; expected {} {}", name(part), held->sizes, name_of(held->dtype),
                         expected->sizes, name_of(expected->dtype));
  }
  const int64_t in = entry.matrix[1];
  if (row_of(entry.kind).has_groups() && in > 0 && (groups <= 0 || in % groups != 0 || in / groups % 8 != 0))
    return fmt::format("the source holds {} groups of rows of {} elements; expected groups of a multiple of 8", groups,
                       in);
  return "";
}

bool is_scale(float v) { return v > 0 && std::isfinite(1.0F / v); }

}  // namespace

std::optional<CodeName> code_name_in(std::string_view name) {
  for (const CodePart& part : kCodeParts) {
    std::string_view rest = name;
    if (!part.name.empty()) {
      if (!rest.ends_with(part.name)) continue;
      rest.remove_suffix(part.name.size());
      if (!rest.ends_with('.')) continue;
      rest.remove_suffix(1);
    }
    for (const Quantization kind : kQuantizations) {
      const std::string_view ending = name_of(kind);
      if (!rest.ends_with(ending) || rest.size() < ending.size() + 2) continue;
      const std::string_view before = rest.substr(0, rest.size() - ending.size());
      if (before.ends_with('.')) return CodeName{before.substr(0, before.size() - 1), kind, &part};
    }
  }
  return std::nullopt;
}

void append_code_entries(StateDict& state, const std::string& parameter, const CodedOperand& operand) {
  const WeightCodes codes = operand.codes();
  for (const CodePart& part : kCodeParts) {
    if (const Tensor& value = codes.*part.tensor; value.defined())
      state.emplace_back(name_of_entry(parameter, operand.quantization(), part), value);
  }
}

StateDict code_entries(Module& module) {
  StateDict state;
  for (const NamedModule& named : module.named_modules()) {
    const auto* layer = dynamic_cast<const Linear*>(named.module);
    const CodedOperand* operand = layer == nullptr ? nullptr : coded_operand_of(*layer);
    if (operand != nullptr)
      append_code_entries(state, named.name.empty() ? "weight" : named.name + ".weight", *operand);
  }
  return state;
}

bool CodeEntries::add(std::string_view name, const Extents& sizes, DType dtype) {
  const std::optional<CodeName> parsed = code_name_in(name);
  if (!parsed) return false;
  const auto [at, is_new] = entries_.emplace(std::string(parsed->parameter), Entry{parsed->kind});
  Entry& entry = at->second;
  TUTTI_CHECK(entry.kind == parsed->kind, "the values of '{}' are there twice, as '{}' and as '{}'", at->first,
              entry.names.begin()->second, name);
  TUTTI_CHECK(entry.names.emplace(parsed->part, name).second, "'{}' is there twice", name);
  entry.metas.emplace(parsed->part, PartMeta{dtype, sizes});
  return true;
}

const std::map<std::string, CodeEntries::Entry>& CodeEntries::complete() {
  for (auto& [parameter, entry] : entries_) entry.fault = fault_of(entry, parameter);
  return entries_;
}

const CodeEntries::Entry* CodeEntries::find(const std::string& parameter) const {
  const auto found = entries_.find(parameter);
  return found == entries_.end() ? nullptr : &found->second;
}

WeightCodes codes_of(const CodeEntries::Entry& entry, FunctionRef<Tensor(const std::string& name)> value_of,
                     bool shares_memory) {
  WeightCodes codes;
  for (const auto& [part, name] : entry.names) {
    const Tensor held = detach(value_of(name)), value = shares_memory ? held : clone(held);
    if (value.dtype() == DType::f32) {
      const Tensor dense = to_contiguous(value);
      const float* numbers = dense.data<float>();
      TUTTI_CHECK(std::all_of(numbers, numbers + dense.numel(), [](float v) { return std::isfinite(v); }),
                  "'{}' holds a number that is not finite", name);
      TUTTI_CHECK(part->tensor != &WeightCodes::x_scale || std::all_of(numbers, numbers + dense.numel(), is_scale),
                  "'{}' holds {}; expected a positive number whose inverse is one, too", name, numbers[0]);
    }
    if (part->tensor == &WeightCodes::x_zero_point) {
      const int32_t zero_point = to_contiguous(value).data<int32_t>()[0];
      TUTTI_CHECK(zero_point >= 0 && zero_point <= 255, "'{}' holds {}; expected 0 to 255", name, zero_point);
    }
    codes.*part->tensor = value;
  }
  return codes;
}

}  // namespace tutti::nn
