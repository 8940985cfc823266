#include "tutti/dist/plan_table.h"

#include <algorithm>

#include "tutti/core/hash.h"
#include "tutti/dist/stage.h"

namespace tutti::dist {

uint64_t PlanQuery::hash() const {
  uint64_t h =
      mix_hash(reinterpret_cast<uintptr_t>(&op), op.sharding_reads_numbers ? attrs.hash() : attrs.hash_of_layout());
  for (const uint32_t id : specs) h = mix_hash(h, id);
  for (const uint64_t dims : symbols) h = mix_hash(h, dims);
  h = mix_hash(h, wanted == nullptr ? 0 : uint64_t{wanted->id()} + 1);
  h = mix_hash(h, static_cast<uint64_t>(strict) | static_cast<uint64_t>(strict_placement) << 1 | rules << 2);
  return place_of(mix_hash(mix_hash(h, static_cast<uint64_t>(token_grain)), static_cast<uint64_t>(contraction_leaf)));
}

bool operator==(const PlanQuery& a, const PlanQuery& b) {
  return &a.op == &b.op && a.wanted == b.wanted && a.strict == b.strict && a.strict_placement == b.strict_placement &&
         a.rules == b.rules && a.token_grain == b.token_grain && a.contraction_leaf == b.contraction_leaf &&
         std::ranges::equal(a.specs, b.specs) && std::ranges::equal(a.symbols, b.symbols) &&
         (a.op.sharding_reads_numbers ? a.attrs == b.attrs : a.attrs.has_layout_of(b.attrs));
}

PlanKey::PlanKey(const PlanQuery& q)
    : op_(&q.op),
      attrs_(q.attrs),
      specs_(q.specs.begin(), q.specs.end()),
      wanted_(q.wanted),
      symbols_(q.symbols.begin(), q.symbols.end()),
      strict_(q.strict),
      strict_placement_(q.strict_placement),
      rules_(q.rules),
      token_grain_(q.token_grain),
      contraction_leaf_(q.contraction_leaf) {}

PlanQuery PlanKey::query() const {
  return {.op = *op_,
          .attrs = attrs_,
          .specs = specs_,
          .wanted = wanted_,
          .symbols = symbols_,
          .strict = strict_,
          .strict_placement = strict_placement_,
          .rules = rules_,
          .token_grain = token_grain_,
          .contraction_leaf = contraction_leaf_};
}

std::shared_ptr<const PlannedCall> PlanTable::find(const PlanQuery& query, const DeviceMesh& mesh) const {
  const std::lock_guard lock(mutex_);
  const auto it = plans_.find(query);
  if (it == plans_.end()) return nullptr;
  const Mesh planned_on = it->second->mesh.lock();
  const bool is_same = planned_on.get() == &mesh || (planned_on != nullptr && planned_on->has_groups_of(mesh));
  return is_same ? it->second : nullptr;
}

void PlanTable::put(const PlanQuery& query, std::shared_ptr<const PlannedCall> plan) {
  const std::lock_guard lock(mutex_);
  ++made_;
  const auto [place, is_new] = plans_.insert_or_assign(PlanKey(query), std::move(plan));
  if (!is_new) return;
  order_.push_back(&place->first);
  if (order_.size() <= kMostPlans) return;
  plans_.erase(plans_.find(*order_.front()));
  order_.pop_front();
}

int64_t PlanTable::size() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(order_);
}

int64_t PlanTable::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

bool PlanTable::is_new_warning(const OpDef& op) {
  const std::lock_guard lock(mutex_);
  return warned_.insert(&op).second;
}

}  // namespace tutti::dist
