// The plans that a rank remembers, by everything that a plan depends on.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tutti/dist/op_plan.h"
#include "tutti/ops/engine/attrs.h"

namespace tutti::dist {

// A call, as far as its plan depends on it, in memory of the caller.
struct PlanQuery {
  const OpDef& op;
  const Attrs& attrs;                 // without the values of numbers, unless the op's sharding rule reads them
  std::span<const uint32_t> specs;    // of the inputs, by id: mesh, sizes, dtype and layout
  const DTensorSpec* wanted;          // see LayoutQuery
  std::span<const uint64_t> symbols;  // see LayoutQuery
  bool strict, strict_placement;
  uint64_t rules = sharding_rules_version();
  int64_t token_grain, contraction_leaf;  // leaves of trees, which rules name
  uint64_t hash() const;
};

// The same, kept.
class PlanKey {
 public:
  explicit PlanKey(const PlanQuery& query);
  PlanQuery query() const;

 private:
  const OpDef* op_;
  Attrs attrs_;
  std::vector<uint32_t> specs_;
  const DTensorSpec* wanted_;
  std::vector<uint64_t> symbols_;
  bool strict_, strict_placement_;
  uint64_t rules_;
  int64_t token_grain_, contraction_leaf_;
};

bool operator==(const PlanQuery& a, const PlanQuery& b);

struct PlannedCall {
  std::weak_ptr<const DeviceMesh> mesh;
  OpPlan plan;
};

// Any thread of the rank. The oldest plan goes when a new one finds no room.
class PlanTable {
 public:
  // nullptr: there is none, or its mesh has ended or has other groups than `mesh`, whose costs may be others.
  std::shared_ptr<const PlannedCall> find(const PlanQuery& query, const DeviceMesh& mesh) const;
  void put(const PlanQuery& query, std::shared_ptr<const PlannedCall> plan);
  int64_t size() const;
  int64_t made() const;  // how often put() was called
  // Whether this op has been warned about; it has from now on.
  bool is_new_warning(const OpDef& op);

 private:
  // Not noexcept on purpose: the table then keeps the hash beside each entry.
  struct Hash {
    using is_transparent = void;
    size_t operator()(const PlanQuery& query) const { return query.hash(); }
    size_t operator()(const PlanKey& key) const { return key.query().hash(); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const PlanKey& a, const PlanKey& b) const { return a.query() == b.query(); }
    bool operator()(const PlanQuery& a, const PlanKey& b) const { return a == b.query(); }
    bool operator()(const PlanKey& a, const PlanQuery& b) const { return a.query() == b; }
  };

  mutable std::mutex mutex_;
  std::unordered_map<PlanKey, std::shared_ptr<const PlannedCall>, Hash, Equal> plans_;
  std::deque<const PlanKey*> order_;  // of plans_, oldest first
  std::unordered_set<const OpDef*> warned_;
  int64_t made_ = 0;
};

}  // namespace tutti::dist
