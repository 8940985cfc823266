#include "tutti/ops/tables/table_definition.h"

#include <algorithm>
#include <bit>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/sum_to.h"

namespace tutti::facets {
namespace {

// Per row, what each range of bags of each shard adds to it; ranges that have none are absent.
using RowLeaves = std::map<int64_t, std::vector<double>>;  // by the number of the range

std::vector<double> add_nodes(std::vector<double> a, const std::vector<double>& b) {
  if (a.empty()) return b;
  for (size_t d = 0; d < b.size(); ++d) a[d] += b[d];
  return a;
}

std::vector<double> halved(const RowLeaves& leaves, int64_t r0, int64_t r1) {
  if (leaves.lower_bound(r0) == leaves.lower_bound(r1)) return {};
  if (r1 - r0 == 1) return leaves.at(r0);
  const int64_t middle = r0 + (r1 - r0 + 1) / 2;
  return add_nodes(halved(leaves, r0, middle), halved(leaves, middle, r1));
}

// shards[s]: the sum of shard s, empty where it has none.
std::vector<double> sum_of_shards(const std::vector<std::vector<double>>& shards, size_t s0, size_t s1) {
  if (s0 >= shards.size()) return {};
  if (s1 - s0 == 1) return shards[s0];
  const size_t middle = (s0 + s1) / 2;
  return add_nodes(sum_of_shards(shards, s0, middle), sum_of_shards(shards, middle, s1));
}

}  // namespace

std::map<int64_t, std::vector<double>> table_definition(const OpCall& call, const TableAttrs& a, size_t first) {
  std::map<int64_t, std::vector<std::vector<double>>> per_row;
  for (int64_t s = 0; s < a.shards; ++s) {
    const Tensor grad = to_contiguous(gradient_of_shard(call, a, first, s));
    const LookupOperands batch = batch_of_shard(call, a, first, s);
    const Lookups lookups = read_lookups(call, batch, grad.ndim() == 2 ? grad.extents()[1] : a.columns);
    check_places(call, lookups, grad, a.pooling);
    std::map<int64_t, RowLeaves> rows;
    int64_t ranges = 0;
    for (const FeatureBags& f : lookups.features) {
      if (f.table != a.table) continue;
      for (int64_t b = 0; b < f.bags; ++b) {
        const int64_t begin = lookups.offsets[static_cast<size_t>(f.first_bag + b)],
                      end = lookups.offsets[static_cast<size_t>(f.first_bag + b) + 1];
        for (int64_t p = begin; p < end; ++p) {
          const int64_t row = read_int64(lookups.indices, p);
          if (row < 0 || row >= a.rows) continue;
          const double factor = batch.weights ? read_double(*batch.weights, p * batch.weights->strides()[0]) : 1.0,
                       length = a.pooling == TablePooling::mean ? static_cast<double>(end - begin) : 1.0;
          std::vector<double> term(static_cast<size_t>(a.columns));
          for (int64_t d = 0; d < a.columns; ++d)
            term[static_cast<size_t>(d)] =
                read_double(grad, lookups.place(f, f.first_bag + b, p, a.pooling) + d) / length * factor;
          std::vector<double>& leaf = rows[row][ranges + b / token_grain()];
          leaf = add_nodes(std::move(leaf), term);
        }
      }
      ranges += (f.bags + token_grain() - 1) / token_grain();
    }
    for (const auto& [row, leaves] : rows) {
      per_row[row].resize(static_cast<size_t>(a.shards));
      per_row[row][static_cast<size_t>(s)] = halved(leaves, 0, ranges);
    }
  }
  std::map<int64_t, std::vector<double>> result;
  for (const auto& [row, shards] : per_row)
    result[row] = sum_of_shards(shards, 0, std::bit_ceil(static_cast<size_t>(a.shards)));
  return result;
}

std::vector<TableSample> table_samples() {
  // Table 1 of two, of 5 columns, looked up by the first and the last of three features.
  const auto attrs = [](TablePooling pooling, int64_t shards = 1, bool weighted = false, int64_t rows = 7,
                        BoundsCheck bounds = BoundsCheck::fatal) {
    return TableAttrs{1, rows, 5, shards, weighted, pooling, bounds};
  };
  const Tensor layout = Tensor::of<int64_t>({1, -1, 0, 5, 0, -1, 5, 3, 1, -1, 8, 5}, {3, 4});
  const auto shard = [&](uint64_t seed, DType dtype = DType::f32) {
    return std::vector<Tensor>{sample_tensor(seed, {2, 13}, dtype), layout,
                               sample_tensor(seed + 50, {10}, DType::i64, 0, 7),
                               Tensor::of<int64_t>({0, 3, 4, 4, 6, 9, 10})};
  };
  const auto with_weights = [](std::vector<Tensor> list, uint64_t seed) {
    list.push_back(sample_tensor(seed, {list[2].numel()}));
    return list;
  };
  std::vector<Tensor> three = shard(2), last = shard(4);
  three.insert(three.end(),
               {Tensor::empty({0, 13}, DType::f32), layout, Tensor::empty({0}, DType::i64), Tensor::of<int64_t>({0})});
  three.insert(three.end(), last.begin(), last.end());
  std::vector<int64_t> offsets(601);
  for (size_t b = 0; b < offsets.size(); ++b) offsets[b] = static_cast<int64_t>(2 * b);
  const std::vector<Tensor> many = {sample_tensor(5, {600, 5}), Tensor::of<int64_t>({1, -1, 0, 5}, {1, 4}),
                                    sample_tensor(6, {1200}, DType::i32, 0, 7), Tensor::of<int64_t>(offsets)};
  const std::vector<Tensor> own = {sample_tensor(7, {14}),
                                   Tensor::of<int64_t>({1, 1, 0, 5, 0, 3, 5, 3, 1, 0, 14, 5}, {3, 4}),
                                   sample_tensor(8, {8}, DType::i64, 0, 7), Tensor::of<int32_t>({0, 4, 4, 7, 8})};
  const std::vector<Tensor> sequence = {
      sample_tensor(9, {10, 5}), Tensor::of<int64_t>({0, -1, 0, 5, 1, -1, 5, 5}, {2, 4}),
      sample_tensor(10, {10}, DType::i64, 0, 7), Tensor::of<int64_t>({0, 3, 5, 10, 10})};
  return {{"sum", shard(1), attrs(TablePooling::sum)},
          {"mean", shard(1), attrs(TablePooling::mean)},
          {"weighted", with_weights(shard(1), 11), attrs(TablePooling::sum, 1, true)},
          {"weighted_mean_bf16", with_weights(shard(1, DType::bf16), 12), attrs(TablePooling::mean, 1, true)},
          {"three_shards", three, attrs(TablePooling::sum, 3)},
          {"many_ranges_i32", many, attrs(TablePooling::sum)},
          {"own_bags", own, attrs(TablePooling::sum)},
          {"sequence", sequence, attrs(TablePooling::none)},
          {"f64", shard(13, DType::f64), attrs(TablePooling::mean)},
          {"out_of_range", shard(14), attrs(TablePooling::mean, 1, false, 4, BoundsCheck::ignore)},
          {"no_rows",
           {Tensor::empty({0, 13}, DType::f32), layout, Tensor::empty({0}, DType::i64), Tensor::of<int64_t>({0})},
           attrs(TablePooling::sum, 1, false, 0)}};
}

}  // namespace tutti::facets
