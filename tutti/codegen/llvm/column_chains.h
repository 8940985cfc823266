// The partial results of one leaf of a column reduction.
#pragma once

#include <functional>
#include <vector>

#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/reduction_tree.h"

namespace tutti::codegen {

inline constexpr int64_t kChains = 16;  // chain j of a leaf takes elements j, j + 16, ... of the reduced dim

// The 16 chains of a leaf for every strip of the block, one vector each, in a stack array: chains are picked by a
// run-time index, so that the element expression is emitted once.
class Chains {
 public:
  Chains(Emitter& e, const ReductionGroup& group, unsigned lanes) : e_(e), group_(group), lanes_(lanes) {
    for (const Monoid& monoid : group.monoids) {
      arrays_.emplace_back();
      for (llvm::Value* v : monoid.leaf_identity(lanes))
        arrays_.back().push_back(e.slot(v->getType(), "chains", kChains * kMostStrips));
    }
  }

  // The chains that `used` elements reach.
  void fill_with_identity(llvm::Value* strips, llvm::Value* used) {
    llvm::Value* chains = e_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, used, e_.i64(kChains));
    e_.for_loop("strip", e_.i64(0), strips, e_.i64(1), [&](llvm::Value* strip) {
      llvm::Value* first = e_.b.CreateMul(strip, e_.i64(kChains));
      write_identity(first);  // chain 0 is the result, even of nothing
      e_.for_loop("clear", e_.i64(1), chains, e_.i64(1),
                  [&](llvm::Value* j) { write_identity(e_.b.CreateAdd(first, j)); });
    });
  }

  void write_identity(llvm::Value* chain) {
    for (size_t m = 0; m < group_.monoids.size(); ++m) write(m, chain, group_.monoids[m].leaf_identity(lanes_));
  }

  llvm::Value* read(size_t m, size_t component, llvm::Value* chain) const {
    llvm::Type* type = group_.monoids[m].leaf_identity(lanes_)[component]->getType();
    return e_.b.CreateLoad(type, e_.b.CreateGEP(type, arrays_[m][component], chain));
  }

  Components read(size_t m, llvm::Value* chain) const {
    Components v;
    for (size_t k = 0; k < arrays_[m].size(); ++k) v.push_back(read(m, k, chain));
    return v;
  }

  // The components of a softmax other than the maximum.
  Components sums(size_t m, llvm::Value* chain) const {
    Components v = read(m, chain);
    v.erase(v.begin());
    return v;
  }
  void write_sums(size_t m, llvm::Value* chain, const Components& sums) {
    for (size_t k = 0; k < sums.size(); ++k) write(m, 1 + k, chain, sums[k]);
  }

  void write(size_t m, size_t component, llvm::Value* chain, llvm::Value* v) {
    e_.b.CreateStore(v, e_.b.CreateGEP(v->getType(), arrays_[m][component], chain));
  }

  void write(size_t m, llvm::Value* chain, const Components& v) {
    for (size_t k = 0; k < v.size(); ++k) write(m, k, chain, v[k]);
  }

  // Chain j is joined with j + 8, then + 4, ...; chains at or beyond `used` are empty and change nothing.
  void halve(llvm::Value* strips, llvm::Value* used,
             const std::function<void(llvm::Value* low, llvm::Value* high)>& join) {
    llvm::IRBuilder<>& b = e_.b;
    e_.for_loop("strip", e_.i64(0), strips, e_.i64(1), [&](llvm::Value* strip) {
      llvm::Value* first = b.CreateMul(strip, e_.i64(kChains));
      // round 0, 1, 2, 3: half 8, 4, 2, 1
      e_.for_loop("round", e_.i64(0), e_.i64(4), e_.i64(1), [&](llvm::Value* round) {
        llvm::Value* half = b.CreateLShr(e_.i64(kChains / 2), round);
        llvm::Value* pairs = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateSub(used, half), half);
        e_.for_loop("halve", e_.i64(0), pairs, e_.i64(1), [&](llvm::Value* j) {
          llvm::Value* low = b.CreateAdd(first, j);
          join(low, b.CreateAdd(low, half));
        });
      });
    });
  }

 private:
  Emitter& e_;
  const ReductionGroup& group_;
  unsigned lanes_;
  std::vector<Components> arrays_;
};

}  // namespace tutti::codegen
