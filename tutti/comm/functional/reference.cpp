#include "tutti/comm/functional/reference.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "tutti/comm/collective_def.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::comm::functional {
namespace {

std::string bytes_of(const Tensor& t) {
  const Tensor dense = to_contiguous(t);
  return {static_cast<const char*>(dense.raw_data()), static_cast<size_t>(dense.nbytes())};
}

// Input `i` of every rank, dense, as one dim.
std::vector<Tensor> of_all_ranks(const OpCall& call, size_t i = 0) {
  std::vector<Tensor> all;
  for (const std::string& bytes : group_of(call)->all_gather_bytes(bytes_of(call[i]))) {
    all.push_back(Tensor::empty({static_cast<int64_t>(bytes.size()) / itemsize(call[i].dtype())}, call[i].dtype()));
    if (!bytes.empty()) std::memcpy(all.back().raw_data(), bytes.data(), bytes.size());
  }
  return all;
}

template <class T>
T join(ReduceKind kind, T a, T b) {
  switch (kind) {
    case ReduceKind::product:
      return a * b;
    case ReduceKind::min:
      return std::isnan(static_cast<double>(a)) || a < b ? a : b;
    case ReduceKind::max:
      return std::isnan(static_cast<double>(a)) || a > b ? a : b;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (kind == ReduceKind::band) return a & b;
    if (kind == ReduceKind::bor) return a | b;
    if (kind == ReduceKind::bxor) return a ^ b;
  }
  return a + b;
}

// The first half of the ranks, rounded up, and the rest, each likewise.
template <class T>
T tree(ReduceKind kind, std::span<const T> values) {
  if (values.size() == 1) return values[0];
  const size_t half = (values.size() + 1) / 2;
  return join(kind, tree(kind, values.first(half)), tree(kind, values.subspan(half)));
}

// Every rank's factor; empty unless the call is a premul_sum.
std::vector<double> factors_of(const OpCall& call) {
  const ReduceOp& op = attrs_of(call).reduce;
  std::vector<double> factors;
  if (op.kind() != ReduceKind::premul_sum) return factors;
  const double factor = op.factor();
  for (const std::string& bytes :
       group_of(call)->all_gather_bytes({reinterpret_cast<const char*>(&factor), sizeof factor})) {
    factors.push_back(0);
    std::memcpy(&factors.back(), bytes.data(), sizeof(double));
  }
  return factors;
}

// out[i] = the reduction of the elements that `source` names.
void reduce_element(ReduceKind kind, const Source& source, const std::vector<Tensor>& inputs,
                    const std::vector<double>& factors, const Tensor& out, int64_t i) {
  if (out.dtype() == DType::boolean && kind == ReduceKind::sum) kind = ReduceKind::bor;
  const auto reduce = [&]<class T>(T (*read)(const Tensor&, int64_t), void (*write)(const Tensor&, int64_t, T)) {
    std::vector<T> values;
    for (int p = source.first; p < source.last; ++p) {
      const auto rank = static_cast<size_t>(p);
      values.push_back(read(inputs[rank], source.index));
      if constexpr (std::is_floating_point_v<T>) values.back() *= factors.empty() ? 1.0 : factors[rank];
    }
    const T value = tree<T>(kind, values);
    const bool are_equal = std::is_floating_point_v<T> && values[0] != 0 &&
                           std::all_of(values.begin(), values.end(), [&](T v) { return v == values[0]; });
    if (kind != ReduceKind::avg) write(out, i, value);
    else write(out, i, are_equal ? values[0] : value / static_cast<T>(values.size()));
  };
  if (is_floating(out.dtype())) reduce(facets::read_double, facets::write_double);
  else reduce(facets::read_int64, facets::write_int64);
}

// out[to, to + count) = in[from, from + count), elements.
void move_elements(const Tensor& out, int64_t to, const Tensor& in, int64_t from, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    facets::move_element(out.view_as({out.numel()}, {1}, 0), {to + i}, in, {from + i});
}

// Rank p's rows for this rank stand behind those that p cuts for lower ranks.
void take_rows(const OpCall& call, const std::vector<Tensor>& splits, const Tensor& out) {
  const int rank = rank_of(call);
  const std::vector<Tensor> inputs = of_all_ranks(call);
  int64_t row = 1, to = 0;
  for (size_t d = 1; d < call[0].extents().size(); ++d) row *= call[0].extents()[d];
  for (size_t p = 0; p < inputs.size(); ++p) {
    const int64_t* rows = splits[p].data<int64_t>();
    const int64_t from = std::accumulate(rows, rows + rank, int64_t{0}) * row, count = rows[rank] * row;
    move_elements(out, to, inputs[p], from, count);
    to += count;
  }
}

}  // namespace

void source_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const CollectiveDef& row = row_of(call.op);
  const CallAttrs& attrs = attrs_of(call);
  const Seat seat{rank_of(call), attrs.group.ranks};
  const std::vector<Tensor> inputs = of_all_ranks(call);
  const std::vector<double> factors = factors_of(call);
  const int64_t share = row.inputs == Given::whole ? call[0].numel() / seat.ranks : call[0].numel();
  for (int64_t i = 0; i < outputs[0].numel(); ++i) {
    const Source source = row.source(i, share, seat, attrs.peer);
    if (row.reduces) reduce_element(attrs.reduce.kind(), source, inputs, factors, outputs[0], i);
    else move_elements(outputs[0], i, inputs[static_cast<size_t>(source.first)], source.index, 1);
  }
}

void reduce_to_root_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<Tensor> all = of_all_ranks(call);
  facets::fill_elements(outputs[0], facets::kSumIdentity);
  if (rank_of(call) != attrs_of(call).peer) return;
  for (int64_t i = 0; i < outputs[0].numel(); ++i)
    reduce_element(ReduceKind::sum, {0, attrs_of(call).group.ranks, i}, all, {}, outputs[0], i);
}

void all_to_all_v_reference(const OpCall& call, std::span<const Tensor> outputs) {
  take_rows(call, of_all_ranks(call, 2), outputs[0]);
}

void all_to_all_v_padded_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<Tensor> splits = of_all_ranks(call, 1);
  facets::fill_elements(outputs[0], facets::kSumIdentity);
  take_rows(call, splits, outputs[0]);
  for (size_t p = 0; p < splits.size(); ++p) outputs[1].data<int64_t>()[p] = splits[p].data<int64_t>()[rank_of(call)];
}

}  // namespace tutti::comm::functional
