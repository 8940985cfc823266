#include "tutti/comm/functional/reference.h"

#include <cmath>
#include <cstring>

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
    case ReduceKind::product: return a * b;
    case ReduceKind::min: return std::isnan(static_cast<double>(a)) || a < b ? a : b;
    case ReduceKind::max: return std::isnan(static_cast<double>(a)) || a > b ? a : b;
    default: break;
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

// out[i] = the reduction of element first + i of all ranks.
void reduce_elements(const OpCall& call, const std::vector<Tensor>& inputs, int64_t first, const Tensor& out) {
  const ReduceOp& op = attrs_of(call).reduce;
  const bool is_bool = out.dtype() == DType::boolean;
  ReduceKind kind = op.kind();
  if (is_bool && kind == ReduceKind::sum) kind = ReduceKind::bor;
  std::vector<double> factors(inputs.size(), 1.0), reals(inputs.size());
  if (kind == ReduceKind::premul_sum) {
    const double factor = op.factor();
    const std::string own(reinterpret_cast<const char*>(&factor), sizeof factor);
    const std::vector<std::string> bytes = group_of(call)->all_gather_bytes(own);
    for (size_t p = 0; p < bytes.size(); ++p) std::memcpy(&factors[p], bytes[p].data(), sizeof(double));
  }
  std::vector<int64_t> integers(inputs.size());
  for (int64_t i = 0; i < out.numel(); ++i) {
    if (is_floating(out.dtype())) {
      for (size_t p = 0; p < inputs.size(); ++p) reals[p] = facets::read_double(inputs[p], first + i) * factors[p];
      const double value = tree<double>(kind, reals);
      facets::write_double(out, i, kind == ReduceKind::avg ? value / static_cast<double>(inputs.size()) : value);
    } else {
      for (size_t p = 0; p < inputs.size(); ++p) integers[p] = facets::read_int64(inputs[p], first + i);
      const int64_t value = tree<int64_t>(kind, integers);
      facets::write_int64(out, i, kind == ReduceKind::avg ? value / static_cast<int64_t>(inputs.size()) : value);
    }
  }
}

// out[to, to + count) = in[from, from + count), elements.
void move_elements(const Tensor& out, int64_t to, const Tensor& in, int64_t from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) facets::move_element(out.view_as({out.numel()}, {1}, 0), {to + i}, in, {from + i});
}

}  // namespace

void all_reduce_reference(const OpCall& call, std::span<const Tensor> outputs) { reduce_elements(call, of_all_ranks(call), 0, outputs[0]); }

void reduce_scatter_reference(const OpCall& call, std::span<const Tensor> outputs) {
  reduce_elements(call, of_all_ranks(call), rank_of(call) * outputs[0].numel(), outputs[0]);
}

void reduce_to_root_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<Tensor> all = of_all_ranks(call);
  if (rank_of(call) == attrs_of(call).peer) reduce_elements(call, all, 0, outputs[0]);
  else facets::fill_elements(outputs[0], facets::kSumIdentity);
}

void all_gather_reference(const OpCall& call, std::span<const Tensor> outputs) {
  int64_t to = 0;
  for (const Tensor& input : of_all_ranks(call)) {
    move_elements(outputs[0], to, input, 0, input.numel());
    to += input.numel();
  }
}

// Rank p's rows for this rank stand behind those that p cuts for lower ranks.
void all_to_all_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const int rank = rank_of(call), ranks = attrs_of(call).group.ranks;
  const std::vector<Tensor> inputs = of_all_ranks(call);
  const std::vector<Tensor> splits = call.inputs.size() == 3 ? of_all_ranks(call, 2) : std::vector<Tensor>();
  int64_t row = 1, to = 0;
  for (size_t d = 1; d < call[0].extents().size(); ++d) row *= call[0].extents()[d];
  for (size_t p = 0; p < inputs.size(); ++p) {
    const int64_t equal = inputs[p].numel() / ranks;
    int64_t from = rank * equal, count = equal;
    if (!splits.empty()) {
      from = 0;
      for (int r = 0; r < rank; ++r) from += splits[p].data<int64_t>()[r] * row;
      count = splits[p].data<int64_t>()[rank] * row;
    }
    move_elements(outputs[0], to, inputs[p], from, count);
    to += count;
  }
}

void broadcast_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<Tensor> all = of_all_ranks(call);
  move_elements(outputs[0], 0, all[static_cast<size_t>(attrs_of(call).peer)], 0, outputs[0].numel());
}

}  // namespace tutti::comm::functional
