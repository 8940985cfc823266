// What the shards of a step have looked up in one table: a key for every entry, sorted by row, and for every entry
// where the row of the gradient lies in memory that it adds to its row of the table.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/ops/tables/lookups.h"

namespace tutti::facets {

// The ops that go back to one table share these attrs. From some place on, their inputs are for every shard: the
// gradient of the result, and the operands of the batch.
struct TableAttrs {
  int64_t table, rows, columns;
  int64_t shards;
  int64_t weighted;  // whether batches have weights
  TablePooling pooling;
  BoundsCheck bounds;

  static constexpr auto fields() {
    return field_list(field::number<&TableAttrs::table>("table"), field::number<&TableAttrs::rows>("rows"),
                      field::number<&TableAttrs::columns>("columns"), field::number<&TableAttrs::shards>("shards"),
                      field::number<&TableAttrs::weighted>("weighted"), field::rule<&TableAttrs::pooling>("pooling"),
                      field::rule<&TableAttrs::bounds>("bounds"));
  }
};

// The inputs of a shard, among those of a call whose shards begin at input `first`.
const Tensor& gradient_of_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard);
LookupOperands batch_of_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard);
// Dims and dtypes of these inputs. UsageError.
void check_shards(const OpCall& call, const TableAttrs& a, size_t first);
// The rule of an op over whole operands, for inputs [first, end).
std::string whole_operands(const OpCall& call, size_t first);

// Entries take their terms from sources, which are numbered over all shards and all features of the table: a source is
// a bag, and where the entries of a bag have terms of their own, an entry. Sum: float, or double where the gradients
// are f64.
template <class Sum>
class TableEntries {
 public:
  // UsageError for batches that the ops refuse. Reads the indices and, while it lives, the gradients.
  TableEntries(const OpCall& call, const TableAttrs& a, size_t first);

  // The sources of one feature of one shard: source s has its term at terms + (s - first) * stride.
  struct Part {
    int64_t first;
    const Sum* terms;
    int64_t stride;
  };
  // A range of bags, whose entries are added as a chain. It has its sources before `end`, behind the previous leaf.
  // `path`: the way to it through the tree, a bit for each node from the highest bit on, 1 for the second half. So two
  // leaves meet in the node at the first bit that they differ in.
  struct Leaf {
    int64_t end;
    uint64_t path;
    size_t part;
  };

  // Keys are row << source_bits() | source, ascending; entries of one row and source stay in their order.
  int64_t count() const { return count_; }
  bool in_32_bits() const { return keys_.dtype() == DType::i32; }
  template <class Key>
  const Key* keys() const {
    return static_cast<const Key*>(keys_.raw_data());
  }
  int source_bits() const { return source_bits_; }

  const std::vector<Leaf>& leaves() const { return leaves_; }
  const std::vector<Part>& parts() const { return parts_; }
  const Part& part_of(int64_t source) const;
  size_t leaf_of(int64_t source) const {
    size_t leaf = leaf_of_block_[static_cast<size_t>(source >> kBlockBits)];
    while (leaves_[leaf].end <= source) ++leaf;
    return leaf;
  }
  // Where the terms of batches with weights lie, and their factors, by source. Null without weights.
  const Sum* const* terms() const { return terms_.empty() ? nullptr : terms_.data(); }
  const Sum* factors() const { return factors_.defined() ? factors_.template data<Sum>() : nullptr; }

 private:
  // A feature of a shard that looks the table up.
  struct Use {
    int64_t shard;
    FeatureBags bags;
    int64_t first_entry, entries;  // among the shard's indices
  };
  void add_part(const OpCall& call, const TableAttrs& a, size_t first, const Lookups& lookups, const Use& use);
  void add_leaves(const TableAttrs& a, const Lookups& lookups, std::span<const Use> uses);
  template <class Key>
  int64_t write_keys(const TableAttrs& a, const std::vector<Lookups>& shards, std::span<const Use> uses);
  template <class Key>
  void sort(const TableAttrs& a, const std::vector<Lookups>& shards, std::span<const Use> uses);

  bool of_bags_;  // whether sources are bags
  int source_bits_ = 0;
  int64_t count_ = 0, sources_ = 0;
  Tensor keys_;  // as i32 or i64; memory that the allocator keeps from call to call
  std::vector<Part> parts_;
  std::vector<Leaf> leaves_;
  static constexpr int kBlockBits = 6;
  std::vector<uint32_t> leaf_of_block_;  // of the first of so many sources
  std::vector<const Sum*> terms_;
  Tensor factors_;
  std::vector<Tensor> kept_;  // what terms point to, the gradient of the shard read last among them
  Tensor grad_;
  int64_t shard_of_grad_ = -1;
};

}  // namespace tutti::facets
