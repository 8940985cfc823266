#include "tutti/ops/tables/table_entries.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/indexing/radix_sort.h"
#include "tutti/ops/sum_to.h"

namespace tutti::facets {
namespace {

size_t inputs_of_shard(const TableAttrs& a) { return a.weighted ? 5 : 4; }

int64_t ranges_of(int64_t bags) { return (bags + token_grain() - 1) / token_grain(); }

}  // namespace

const Tensor& gradient_of_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard) {
  return call[first + static_cast<size_t>(shard) * inputs_of_shard(a)];
}

LookupOperands batch_of_shard(const OpCall& call, const TableAttrs& a, size_t first, int64_t shard) {
  return LookupOperands::at(call, first + static_cast<size_t>(shard) * inputs_of_shard(a) + 1, a.weighted != 0);
}

void check_shards(const OpCall& call, const TableAttrs& a, size_t first) {
  for (int64_t s = 0; s < a.shards; ++s) {
    const Tensor& grad = gradient_of_shard(call, a, first, s);
    const LookupOperands batch = batch_of_shard(call, a, first, s);
    const bool equal_bags = a.pooling != TablePooling::none && grad.ndim() == 2;
    const SymInt bags = check_lookup_operands(call, batch, a.pooling, equal_bags);
    TUTTI_CHECK(is_floating(grad.dtype()) && !is_fp8(grad.dtype()), "{}: the gradient is {}; expected floats",
                call.op.name, describe(grad));
    if (a.pooling == TablePooling::none) {
      TUTTI_CHECK(grad.ndim() == 2 && grad.size(0) == batch.indices.size(0) && grad.size(1) == a.columns,
                  "{}: the gradient is {}; expected [{}, {}], a row for each index", call.op.name, describe(grad),
                  batch.indices.size(0), a.columns);
    } else {
      TUTTI_CHECK(grad.ndim() == 1 || (equal_bags && grad.size(0) == bags),
                  "{}: the gradient is {} for {} bags of each feature", call.op.name, describe(grad), bags);
    }
  }
}

std::string whole_operands(const OpCall& call, size_t first) {
  std::string text;
  for (size_t i = first; i < call.inputs.size(); ++i)
    text += fmt::format("#a{}[{}] ", i, std::string(static_cast<size_t>(call[i].ndim()), 'A'));
  return text;
}

template <class Sum>
TableEntries<Sum>::TableEntries(const OpCall& call, const TableAttrs& a, size_t first)
    : of_bags_(a.pooling != TablePooling::none && a.weighted == 0) {
  std::vector<Lookups> shards;
  std::vector<Use> uses;
  int64_t entries = 0, ranges = 0;
  for (int64_t s = 0; s < a.shards; ++s) {
    const Tensor& grad = gradient_of_shard(call, a, first, s);
    shards.push_back(read_lookups(call, batch_of_shard(call, a, first, s),
                                  grad.ndim() == 2 ? grad.extents()[1] : a.columns, a.table));
    const Lookups& lookups = shards.back();
    check_places(call, lookups, grad, a.pooling);
    for (const FeatureBags& f : lookups.features) {
      if (f.table != a.table) continue;
      TUTTI_CHECK(f.width == a.columns, "{}: a feature of the layout has {} columns; the table has {}", call.op.name,
                  f.width, a.columns);
      const int64_t begin = lookups.offsets[static_cast<size_t>(f.first_bag)];
      const int64_t n = lookups.offsets[static_cast<size_t>(f.first_bag + f.bags)] - begin;
      uses.push_back({s, f, begin, n});
      entries += n;
      ranges += ranges_of(f.bags);
    }
  }
  TUTTI_CHECK(ranges <= std::numeric_limits<int32_t>::max(), "{}: {} ranges of bags, more than 31 bits can count",
              call.op.name, ranges);
  count_ = entries;
  if (a.weighted) {
    terms_.resize(static_cast<size_t>(entries));
    factors_ = Tensor::empty({entries}, dtype_of<Sum>);
  }
  for (auto use = uses.begin(); use != uses.end();) {
    const auto behind = std::find_if(use, uses.end(), [&](const Use& u) { return u.shard != use->shard; });
    const Lookups& lookups = shards[static_cast<size_t>(use->shard)];
    add_leaves(a, lookups, {use, behind});
    for (; use != behind; ++use) add_part(call, a, first, lookups, *use);
  }
  uint32_t leaf = 0;
  for (int64_t source = 0; source < sources_; source += int64_t{1} << kBlockBits) {
    while (leaves_[leaf].end <= source) ++leaf;
    leaf_of_block_.push_back(leaf);
  }
  const int row_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(a.rows - 1, 1))));
  source_bits_ = static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(sources_ - 1, 1))));
  TUTTI_CHECK(row_bits + source_bits_ < 64,
              "{}: the gradient of {} lookups in {} rows: {} + {} bits number a row and where its gradient comes from, "
              "63 are there; look up in several calls",
              call.op.name, entries, a.rows, row_bits, source_bits_);
  keys_ = Tensor::empty({entries}, row_bits + source_bits_ < 32 ? DType::i32 : DType::i64);
  if (in_32_bits()) sort<uint32_t>(a, shards, uses);
  else sort<uint64_t>(a, shards, uses);
  if (count_ < entries && a.bounds == BoundsCheck::fatal) {
    for (int64_t s = 0; s < a.shards; ++s) {
      std::vector<int64_t> rows(static_cast<size_t>(a.table) + 1, -1);
      for (const FeatureBags& f : shards[static_cast<size_t>(s)].features)
        rows.resize(std::max(rows.size(), static_cast<size_t>(f.table) + 1), -1);
      rows[static_cast<size_t>(a.table)] = a.rows;
      tell_bad_indices(call, find_bad_indices(shards[static_cast<size_t>(s)], rows), a.bounds);
    }
  }
}

// The leaves of one shard: those of its features one after another, halved together below the shard's place.
template <class Sum>
void TableEntries<Sum>::add_leaves(const TableAttrs& a, const Lookups& lookups, std::span<const Use> uses) {
  const int shard_bits = std::bit_width(static_cast<uint64_t>(a.shards - 1));
  const uint64_t place = shard_bits == 0 ? 0 : static_cast<uint64_t>(uses.front().shard) << (64 - shard_bits);
  int64_t ranges = 0;
  for (const Use& use : uses) ranges += ranges_of(use.bags.bags);
  int64_t sources = sources_, range = 0;
  for (const Use& use : uses) {
    const auto offset = [&](int64_t b) { return lookups.offsets[static_cast<size_t>(use.bags.first_bag + b)]; };
    const size_t part = parts_.size() + static_cast<size_t>(&use - uses.data());
    for (int64_t b = 0; b < use.bags.bags; b += token_grain()) {
      const int64_t behind = std::min(b + token_grain(), use.bags.bags);
      uint64_t path = place, bit = uint64_t{1} << (63 - shard_bits);
      for (int64_t low = 0, high = ranges; high - low > 1; bit >>= 1) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (range < middle) high = middle;
        else low = middle, path |= bit;
      }
      leaves_.push_back({sources + (of_bags_ ? behind : offset(behind) - offset(0)), path, part});
      ++range;
    }
    sources += of_bags_ ? use.bags.bags : use.entries;
  }
}

template <class Sum>
void TableEntries<Sum>::add_part(const OpCall& call, const TableAttrs& a, size_t first, const Lookups& lookups,
                                 const Use& use) {
  if (use.shard != shard_of_grad_) {
    grad_ = dense_as(gradient_of_shard(call, a, first, use.shard), dtype_of<Sum>);
    shard_of_grad_ = use.shard;
    kept_.push_back(grad_);
  }
  const FeatureBags& f = use.bags;
  const auto offset = [&](int64_t b) { return lookups.offsets[static_cast<size_t>(f.first_bag + b)]; };
  const bool pooled = a.pooling != TablePooling::none;
  Part part{sources_, grad_.template data<Sum>() + (pooled ? f.base : use.first_entry * f.width),
            pooled ? f.stride : f.width};
  if (a.pooling == TablePooling::mean) {
    // The gradient of each bag, divided by its length.
    kept_.push_back(Tensor::empty({f.bags, f.width}, dtype_of<Sum>));
    Sum* const divided = kept_.back().template data<Sum>();
    ThreadPool::current().parallel_for(
        f.bags, std::max<int64_t>(kParallelGrain / (f.width + 1), 1), [&](int64_t begin, int64_t end) {
          for (int64_t b = begin; b < end; ++b) {
            const Sum length = static_cast<Sum>(std::max<int64_t>(offset(b + 1) - offset(b), 1));
            const Sum* row = part.terms + b * f.stride;
            for (int64_t d = 0; d < f.width; ++d) divided[b * f.width + d] = row[d] / length;
          }
        });
    part.terms = divided, part.stride = f.width;
  }
  if (a.weighted) {
    const Tensor weights = dense_as(*batch_of_shard(call, a, first, use.shard).weights, dtype_of<Sum>);
    Sum* const factors = factors_.template data<Sum>() + sources_;
    std::copy_n(weights.template data<Sum>() + use.first_entry, use.entries, factors);
    for (int64_t b = 0; b < f.bags; ++b)
      std::fill(terms_.begin() + sources_ + offset(b) - use.first_entry,
                terms_.begin() + sources_ + offset(b + 1) - use.first_entry, part.terms + b * part.stride);
  }
  parts_.push_back(part);
  sources_ += of_bags_ ? f.bags : use.entries;
}

// Returns how many entries are in range; their keys are in the order of the entries.
template <class Sum>
template <class Key>
int64_t TableEntries<Sum>::write_keys(const TableAttrs& a, const std::vector<Lookups>& shards,
                                      std::span<const Use> uses) {
  constexpr Key kOutside = std::numeric_limits<Key>::max();  // no key: those have a bit less
  Key* const keys = static_cast<Key*>(keys_.raw_data());
  std::atomic<int64_t> outside{0};
  int64_t entry = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    const Use& use = uses[i];
    const Lookups& lookups = shards[static_cast<size_t>(use.shard)];
    const int64_t* offsets = lookups.offsets.data() + use.bags.first_bag;
    Key* const mine = keys + entry;
    const auto write = [&](const auto* indices, int64_t begin, int64_t end) {
      int64_t bad = 0;
      for (int64_t b = begin; b < end; ++b) {
        Key source = static_cast<Key>(parts_[i].first + (of_bags_ ? b : offsets[b] - use.first_entry));
        const Key step = of_bags_ ? 0 : 1;
        for (int64_t p = offsets[b]; p < offsets[b + 1]; ++p, source += step) {
          const uint64_t row = static_cast<uint64_t>(static_cast<int64_t>(indices[p]));
          const bool taken = row < static_cast<uint64_t>(a.rows);
          mine[p - use.first_entry] = taken ? static_cast<Key>(row << source_bits_ | source) : kOutside;
          bad += !taken;
        }
      }
      if (bad > 0) outside += bad;
    };
    const int64_t of_bag = use.entries / std::max<int64_t>(use.bags.bags, 1) + 1;
    ThreadPool::current().parallel_for(use.bags.bags, std::max<int64_t>(kParallelGrain / of_bag, 1),
                                       [&](int64_t begin, int64_t end) {
                                         if (lookups.indices.dtype() == DType::i64)
                                           write(lookups.indices.template data<int64_t>(), begin, end);
                                         else write(lookups.indices.template data<int32_t>(), begin, end);
                                       });
    entry += use.entries;
  }
  if (outside == 0) return entry;
  return std::remove(keys, keys + entry, kOutside) - keys;
}

template <class Sum>
template <class Key>
void TableEntries<Sum>::sort(const TableAttrs& a, const std::vector<Lookups>& shards, std::span<const Use> uses) {
  count_ = write_keys<Key>(a, shards, uses);
  const int row_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(a.rows - 1, 1))));
  const Tensor other = Tensor::empty(keys_.extents(), keys_.dtype());
  Key* const mine = static_cast<Key*>(keys_.raw_data());
  if (sort_bits(mine, static_cast<Key*>(other.raw_data()), count_, source_bits_, source_bits_ + row_bits) != mine)
    keys_ = other;
}

template <class Sum>
auto TableEntries<Sum>::part_of(int64_t source) const -> const Part& {
  if (parts_.size() == 1) return parts_[0];
  return std::upper_bound(parts_.begin(), parts_.end(), source,
                          [](int64_t s, const Part& p) { return s < p.first; })[-1];
}

template class TableEntries<float>;
template class TableEntries<double>;

}  // namespace tutti::facets
