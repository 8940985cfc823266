// Checks a sharding rule by doing what it says: inputs are cut (or split in terms) over simulated ranks, each rank runs
// the op's reference kernel on its part, the parts are put together and compared with the undivided run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/shard_parts.h"
#include "tutti/core/sharding_rule.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::testing {

class ShardSimulator {
 public:
  ShardSimulator(const OpDef& op, const Sample& sample) : op_(op), sample_(sample) {
    OutputMetas metas;
    op.infer(call(sample.inputs, sample.attrs), metas);
    for (int k = 0; k < metas.count; ++k)
      outputs_.push_back(concrete(metas.meta[k].sizes)), dtypes_.push_back(metas.meta[k].dtype);
    for (const Tensor& t : sample.inputs) inputs_.push_back(t.extents());
  }

  // The fault of `text` as the rule of this call; empty when it has none.
  std::string check(const std::string& text, bool ignore_even = false) {
    const ShardingRule rule = ShardingRule::parse(text);
    for (const ShardingRow& row : rule.rows(inputs_, outputs_)) {
      for (const int n : {2, 3, 4}) {
        for (const Cut cut : {Cut::chunk, Cut::halving, Cut::growing}) {
          if (row.even_factor && !ignore_even &&
              (rule.factor_sizes(inputs_, outputs_)[factor_index(row.even_factor)] % n != 0 || cut != Cut::chunk))
            continue;
          if (std::string failure = check_row(rule, row, n, cut); !failure.empty())
            return fmt::format("{} / {}: rule '{}', row '{}', {} ranks, cut {}: {}", op_.name, sample_.name, text,
                               row.name, n, static_cast<int>(cut), failure);
          ++rows_checked;
          const auto is_shard = [](const Placement& p) { return p.is_shard(); };
          if (std::none_of(row.inputs.begin(), row.inputs.end(), is_shard) &&
              std::none_of(row.outputs.begin(), row.outputs.end(), is_shard))
            break;  // nothing is cut
        }
      }
    }
    return "";
  }

  int rows_checked = 0;

 private:
  OpCall call(std::span<const Tensor> inputs, const Attrs& attrs) const { return {op_, inputs, attrs}; }

  std::vector<Tensor> run(std::vector<Tensor> inputs, const Attrs& attrs) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (std::find(std::begin(op_.writes), std::end(op_.writes), static_cast<int8_t>(i)) != std::end(op_.writes))
        inputs[i] = dense_copy(inputs[i]);
    }
    std::vector<Tensor> outputs(outputs_.size());
    run_reference(call(inputs, attrs), outputs);
    return outputs;
  }

  // Rows that a dtype cannot express or that its rounding blurs are left out.
  bool is_testable(const ShardingRow& row) const {
    // Rules about terms suppose that integer arithmetic does not wrap; u8 wraps below 0.
    const auto wraps = [](const Placement& p, DType dtype) { return p.is_partial() && dtype == DType::u8; };
    const auto sums = [](const Placement& p) {
      return p.is_partial() && p.op() != PartialOp::max && p.op() != PartialOp::min;
    };
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      const DType dtype = sample_.inputs[i].dtype();
      if (wraps(row.inputs[i], dtype)) return false;
      if (sums(row.inputs[i]) &&
          (dtype == DType::boolean || (row.inputs[i].op() == PartialOp::avg && !is_floating(dtype))))
        return false;
      if (!row.exact && is_floating(dtype) && itemsize(dtype) < 4) return false;
      if (row.inputs[i].is_partial() && (sample_.inputs[i].numel() == 0 || has_nan(sample_.inputs[i]))) return false;
    }
    for (size_t k = 0; k < row.outputs.size(); ++k) {
      if (wraps(row.outputs[k], dtypes_[k])) return false;
      if (sums(row.outputs[k]) &&
          (dtypes_[k] == DType::boolean || (row.outputs[k].op() == PartialOp::avg && !is_floating(dtypes_[k]))))
        return false;
      if (!row.exact && is_floating(dtypes_[k]) && itemsize(dtypes_[k]) < 4) return false;
    }
    return true;
  }

  std::string check_row(const ShardingRule& rule, const ShardingRow& row, int n, Cut cut) {
    if (!is_testable(row)) return "";
    // The inputs of every rank, and the undivided ones that they come from.
    std::vector<Tensor> whole = sample_.inputs;
    std::vector<std::vector<Tensor>> local(static_cast<size_t>(n));
    for (size_t i = 0; i < whole.size(); ++i) {
      const Placement& p = row.inputs[i];
      std::vector<Tensor> terms;
      if (p.is_partial()) {
        terms = split_in_terms(whole[i], p.op(), n, 100 + i);
        whole[i] = combine(terms, p.op());
      }
      for (int r = 0; r < n; ++r) {
        if (p.is_shard())
          local[static_cast<size_t>(r)].push_back(
              take(whole[i], p.dim(), local_indices(inputs_[i][static_cast<size_t>(p.dim())], p, n, r, cut)));
        else local[static_cast<size_t>(r)].push_back(p.is_partial() ? terms[static_cast<size_t>(r)] : whole[i]);
      }
    }
    const std::vector<Tensor> expected = run(whole, sample_.attrs);

    std::vector<std::vector<Tensor>> results;
    for (int r = 0; r < n; ++r) {
      try {
        results.push_back(run_rank(rule, row, local[static_cast<size_t>(r)], n, r, cut));
      } catch (const Error& error) {
        return fmt::format("rank {} failed: {}", r, error.what());
      }
    }
    for (size_t k = 0; k < outputs_.size(); ++k) {
      const Placement& p = row.outputs[k];
      Tensor combined = Tensor::empty(outputs_[k], dtypes_[k]);
      std::vector<Tensor> parts;
      for (int r = 0; r < n; ++r) {
        const Tensor& part = results[static_cast<size_t>(r)][k];
        parts.push_back(part);
        Extents sizes = outputs_[k];
        if (p.is_shard()) {
          const auto indices = local_indices(sizes[static_cast<size_t>(p.dim())], p, n, r, cut);
          sizes[static_cast<size_t>(p.dim())] = static_cast<int64_t>(indices.size());
          if (part.extents() == sizes) put(combined, part, p.dim(), indices);
        }
        if (!(part.extents() == sizes))
          return fmt::format("output {} of rank {} is {}, expected {}", k, r, part.sizes(), sizes);
      }
      if (p.is_partial()) combined = combine(parts, p.op());
      if (p.is_replicate()) {
        for (const Tensor& part : parts) {
          if (std::string difference = compare(part, expected[k], row.exact); !difference.empty())
            return fmt::format("output {}: {}", k, difference);
        }
      } else if (std::string difference = compare(combined, expected[k], row.exact); !difference.empty()) {
        return fmt::format("output {}: {}", k, difference);
      }
    }
    return "";
  }

  std::vector<Tensor> run_rank(const ShardingRule& rule, const ShardingRow& row, std::vector<Tensor> inputs, int n,
                               int rank, Cut cut) const {
    LocalBox part{outputs_[0], Extents(outputs_[0].size(), 0)};
    if (row.outputs[0].is_shard()) {
      const size_t d = static_cast<size_t>(row.outputs[0].dim());
      const auto indices = local_indices(outputs_[0][d], row.outputs[0], n, rank, cut);
      part.sizes[d] = static_cast<int64_t>(indices.size());
      part.offsets[d] = indices.empty() ? outputs_[0][d] : indices[0];
    }
    const Attrs attrs = op_.local_attrs ? op_.local_attrs(call(sample_.inputs, sample_.attrs), part) : sample_.attrs;
    if (row.masked_factor) return run_masked(rule, row, inputs, attrs, n, rank, cut);
    const bool reduces_nothing = std::any_of(row.inputs.begin(), row.inputs.end(), [&](const Placement& p) {
      return p.is_shard() &&
             inputs[static_cast<size_t>(&p - row.inputs.data())].extents()[static_cast<size_t>(p.dim())] == 0;
    });
    // An extreme of nothing is no call of the op: the rank contributes the identity.
    const auto is_extreme = [](const Placement& p) {
      return p.is_partial() && (p.op() == PartialOp::max || p.op() == PartialOp::min);
    };
    if (reduces_nothing && is_extreme(row.outputs[0])) {
      std::vector<Tensor> outputs;
      for (size_t k = 0; k < outputs_.size(); ++k) {
        outputs.push_back(Tensor::empty(outputs_[k], dtypes_[k]));
        fill_extreme(outputs.back(), row.outputs[k].op());
      }
      return outputs;
    }
    return run(inputs, attrs);
  }

  // The indices of the opaque input are made local; what stems from an index of another rank is -0.0.
  std::vector<Tensor> run_masked(const ShardingRule& rule, const ShardingRow& row, std::vector<Tensor> inputs,
                                 const Attrs& attrs, int n, int rank, Cut cut) const {
    size_t table = 0, index = 0;
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      if (row.inputs[i].is_shard()) table = i;
      if (rule.inputs()[i].opaque) index = i;
    }
    const Placement& p = row.inputs[table];
    const auto borders = cut_borders(inputs_[table][static_cast<size_t>(p.dim())], n, cut);
    const int64_t begin = borders[static_cast<size_t>(rank)], end = borders[static_cast<size_t>(rank) + 1];
    const Tensor global = dense_copy(inputs[index]);
    inputs[index] = dense_copy(global);
    for (int64_t i = 0; i < global.numel(); ++i) {
      const int64_t value = facets::read_int64(global, i);
      facets::write_int64(inputs[index], i, value >= begin && value < end ? value - begin : 0);
    }
    std::vector<Tensor> outputs = {Tensor::empty(outputs_[0], dtypes_[0])};
    if (end > begin) outputs = run(inputs, attrs);
    facets::for_each_index(outputs_[0], [&](const Extents& at) {
      int64_t offset = 0;
      for (size_t d = 0; d < rule.inputs()[index].dims.size(); ++d) {
        for (size_t o = 0; o < at.size(); ++o) {
          if (rule.outputs()[0].dims[o] == rule.inputs()[index].dims[d]) offset += at[o] * global.strides()[d];
        }
      }
      const int64_t value = facets::read_int64(global, offset);
      if (value < begin || value >= end) facets::write_double(outputs[0], facets::offset_at(outputs[0], at), -0.0);
    });
    return outputs;
  }

  std::string compare(const Tensor& actual, const Tensor& wanted, bool exact) const {
    const Tensor a = dense_copy(actual), b = dense_copy(wanted);
    const int64_t item = itemsize(a.dtype());
    bool is_double = a.dtype() == DType::f64;
    for (const Tensor& t : sample_.inputs)
      is_double = is_double && (!is_floating(t.dtype()) || t.dtype() == DType::f64);
    double largest = 0.0;
    if (is_floating(a.dtype())) {
      for (int64_t i = 0; i < b.numel(); ++i) {
        const double y = std::fabs(facets::read_double(b, i));
        if (std::isfinite(y)) largest = std::max(largest, y);
      }
    }
    for (int64_t i = 0; i < a.numel(); ++i) {
      const char* p = static_cast<const char*>(a.raw_data()) + i * item;
      const char* q = static_cast<const char*>(b.raw_data()) + i * item;
      if (std::memcmp(p, q, static_cast<size_t>(item)) == 0) continue;
      const double x = load_as_double(p, a.dtype()), y = load_as_double(q, b.dtype());
      const double tolerance = (is_double ? 1e-11 : 2e-5) * std::max(largest, 1.0);
      if (!exact && is_floating(a.dtype()) && (std::fabs(x - y) <= tolerance || (std::isnan(x) && std::isnan(y))))
        continue;
      return fmt::format("element {} is {:.17g}, the undivided call gives {:.17g}{}", i, x, y,
                         exact ? " (the row is exact)" : "");
    }
    return "";
  }

  const OpDef& op_;
  const Sample& sample_;
  std::vector<Extents> inputs_, outputs_;
  std::vector<DType> dtypes_;
};

}  // namespace tutti::testing
