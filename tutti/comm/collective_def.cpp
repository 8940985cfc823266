#include "tutti/comm/collective_def.h"

#include <algorithm>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

bool all_equal_sizes(Tensors tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.numel() == tensors[0].numel(); });
}

bool is_list(Given given) { return given == Given::list || given == Given::list_on_root; }

Tensors side_of(TensorSide side, const CollectiveCall& call) {
  return side == TensorSide::input ? call.inputs : call.outputs;
}

}  // namespace

CollectiveKind kind_of(const CollectiveDef& def) {
  const auto table = collective_table();
  return static_cast<CollectiveKind>(std::find(table.begin(), table.end(), &def) - table.begin());
}

CollectiveKind collective_from_name(std::string_view name) {
  std::vector<std::string> names;
  for (const CollectiveDef* def : collective_table()) {
    const auto is_it = [&](const char* former) { return former != nullptr && name == former; };
    if (name == def->name || std::any_of(def->former_names.begin(), def->former_names.end(), is_it))
      return kind_of(*def);
    names.emplace_back(def->name);
  }
  throw UsageError(unknown_name_message("collective", name, names));
}

const CollectiveDef& definition_of(const CollectiveCall& call) {
  const CollectiveDef& def = definition(call.kind);
  return def.uneven_of == nullptr ? def : *def.uneven_of;
}

size_t parts_of(const CollectiveDef& def, const CollectiveCall& call) {
  return def.in_place == InPlace::no ? call.inputs.size() : call.outputs.size();
}

CollectiveCall part_of(const CollectiveDef& def, const CollectiveCall& call, size_t i) {
  CollectiveCall part = call;
  part.output_lists = {};
  part.outputs = is_list(def.outputs) ? Tensors(call.output_lists[i]) : call.outputs.subspan(i, 1);
  if (def.in_place == InPlace::no) part.inputs = call.inputs.subspan(i, 1);
  return part;
}

const Tensor* described_tensor(const CollectiveDef& def, const CollectiveCall& call, const Seat& seat) {
  const Tensors side = side_of(def.described, call);
  if (side.empty()) return nullptr;
  const bool is_own = is_list(def.described == TensorSide::input ? def.inputs : def.outputs) &&
                      static_cast<size_t>(seat.rank) < side.size();
  return &side[is_own ? static_cast<size_t>(seat.rank) : 0];
}

CallRecord record_of(const CollectiveDef& def, const CollectiveCall& call, const Seat& seat) {
  CallRecord record;
  record.kind = &definition(call.kind) == &def ? call.kind : kind_of(def);
  if (def.is_rooted) record.root = call.root;
  if (def.reduces) record.reduce = call.reduce.kind();
  if (const Tensor* tensor = described_tensor(def, call, seat))
    record.describe_tensor(tensor->dtype(), tensor->extents());
  if (def.evenness == Evenness::pairwise) record.same_sizes = record.ndim < 0;
  if (def.evenness != Evenness::listed) return record;
  if (!call.output_lists.empty()) {
    record.same_sizes = std::all_of(call.output_lists.begin(), call.output_lists.end(),
                                    [](const auto& list) { return all_equal_sizes(list); });
  } else {
    record.same_sizes = all_equal_sizes(is_list(def.outputs) ? call.outputs : call.inputs);
    if (!record.same_sizes && def.uneven != nullptr) record.kind = kind_of(*def.uneven);
  }
  return record;
}

std::vector<Tensor> results_of(const CollectiveCall& call) {
  std::vector<Tensor> results(call.outputs.begin(), call.outputs.end());
  for (const std::vector<Tensor>& list : call.output_lists) results.insert(results.end(), list.begin(), list.end());
  return results;
}

}  // namespace tutti::comm
