#include "tutti/ops/slot_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/tree_sum.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scatter.h"
#include "tutti/ops/sort.h"
#include "tutti/runtime/thread_pool.h"

// The three ops are the three ways to leave out one factor of sum over slots of weight * row * token: each is the
// gradient of the others.
//   dispatch_rows: a row for each slot      y[i]    = w[s] * x[t]            (s: the slot of row i, t: its token; w is
//   optional) combine_rows:  a sum for each token     x[t]    = sum_k w[s] * y[i] slot_dots:     a number for each slot
//   w[t, k] = sum_d y[i, d] * x[t, d]
namespace tutti {
namespace {

extern const OpDef kDispatch, kCombine, kDots;

struct SlotAttrs {
  int64_t slots_per_token = 1;
  DType out_dtype = DType::f32;
  static constexpr auto fields() {
    return field_list(field::number<&SlotAttrs::slots_per_token>("slots_per_token"),
                      field::output_dtype<&SlotAttrs::out_dtype>("out_dtype"));
  }
};

// ---- operands: a float tensor [T, D] or [N, D], a second one for slot_dots, the two lists, and weights if there are
// any -----------

bool is_dots(const OpCall& call) { return &call.op == &kDots; }
size_t lists_at(const OpCall& call) { return is_dots(call) ? 2 : 1; }
int64_t slots_of(const OpCall& call) { return call.attrs.as<SlotAttrs>().slots_per_token; }
DType out_dtype(const OpCall& call) { return call.attrs.as<SlotAttrs>().out_dtype; }
const Tensor* weights_of(const OpCall& call) { return !is_dots(call) && call.inputs.size() > 3 ? &call[3] : nullptr; }

void infer(const OpCall& call, OutputMetas& out) {
  const SymInt K = slots_of(call);
  if (&call.op == &kDispatch) return out.add(out_dtype(call), {call[0].size(0) * K, call[0].size(1)});
  const SymInt T = floordiv(call[0].size(0), K);
  if (&call.op == &kCombine) return out.add(out_dtype(call), {T, call[0].size(1)});
  out.add(out_dtype(call), {T, K});
}

void check(const OpCall& call) {
  const std::vector<int64_t> slot_of_row = facets::dense_indices(call[lists_at(call)]),
                             row_of_slot = facets::dense_indices(call[lists_at(call) + 1]);
  const auto count = static_cast<int64_t>(slot_of_row.size());
  for (int64_t row = 0; row < count; ++row) {
    const int64_t slot = slot_of_row[static_cast<size_t>(row)];
    TUTTI_CHECK(slot >= 0 && slot < count, "{}: row {} is that of slot {}; {}", call.op.name, row, slot,
                facets::legal_indices(count));
    TUTTI_CHECK(row_of_slot[static_cast<size_t>(slot)] == row,
                "{}: row {} is that of slot {}, whose row is given as {}; the lists must be the inverse of each other",
                call.op.name, row, slot, row_of_slot[static_cast<size_t>(slot)]);
  }
}

// ---- kernels
// -------------------------------------------------------------------------------------------------------------------

constexpr int64_t kRowsAtOnce = 16;

template <class Real, class Stored>
Real widened(Stored v) {
  if constexpr (std::is_arithmetic_v<Stored>) return static_cast<Real>(v);
  else return static_cast<Real>(to_float(v));
}

template <class Stored, class Real>
Stored narrowed(Real v) {
  if constexpr (std::is_arithmetic_v<Stored>) return static_cast<Stored>(v);
  else if constexpr (std::is_same_v<Stored, bfloat16>) return to_bfloat16(static_cast<float>(v));
  else return to_float16(static_cast<float>(v));
}

// The row `row` of a tensor, element by element: visit(pointer to its stored type).
template <class Visit>
void visit_row(const Tensor& t, int64_t row, Visit visit) {
  const int64_t D = t.extents()[1];
  visit_dtype(t.dtype(), [&]<class Stored>() {
    if constexpr (std::is_same_v<Stored, double> || std::is_same_v<Stored, float> || std::is_same_v<Stored, bfloat16> ||
                  std::is_same_v<Stored, float16>)
      visit(static_cast<Stored*>(t.raw_data()) + row * D);
  });
}

template <class Real>
void store_row(const Tensor& out, int64_t row, const Real* values) {
  const int64_t D = out.extents()[1];
  visit_row(out, row, [&]<class Stored>(Stored* to) {
    for (int64_t d = 0; d < D; ++d) to[d] = narrowed<Stored>(values[d]);
  });
}

// What the kernels read, with rows that lie densely.
template <class Real>
struct Operands {
  Tensor x, other;
  std::vector<int64_t> slot_of_row, row_of_slot;
  std::vector<Real> weights;  // by slot; empty: all 1
  int64_t K, D;

  explicit Operands(const OpCall& call)
      : x(to_contiguous(call[0])),
        slot_of_row(facets::dense_indices(call[lists_at(call)])),
        row_of_slot(facets::dense_indices(call[lists_at(call) + 1])),
        K(slots_of(call)),
        D(call[0].extents()[1]) {
    if (is_dots(call)) other = to_contiguous(call[1]);
    if (const Tensor* w = weights_of(call)) {
      for (const double v : facets::values(*w, w->extents())) weights.push_back(static_cast<Real>(v));
    }
  }
};

template <class Real>
void dispatch(const Operands<Real>& in, const Tensor& out, int64_t begin, int64_t end) {
  std::vector<Real> row(static_cast<size_t>(in.D));
  const auto row_bytes = static_cast<size_t>(in.D * itemsize(out.dtype()));
  for (int64_t i = begin; i < end; ++i) {
    const int64_t slot = in.slot_of_row[static_cast<size_t>(i)], token = slot / in.K;
    if (in.weights.empty() && out.dtype() == in.x.dtype()) {
      if (row_bytes > 0)
        std::memcpy(static_cast<char*>(out.raw_data()) + static_cast<size_t>(i) * row_bytes,
                    static_cast<const char*>(in.x.raw_data()) + static_cast<size_t>(token) * row_bytes, row_bytes);
      continue;
    }
    visit_row(in.x, token, [&](const auto* from) {
      for (int64_t d = 0; d < in.D; ++d) row[static_cast<size_t>(d)] = widened<Real>(from[d]);
    });
    if (!in.weights.empty()) {
      const Real w = in.weights[static_cast<size_t>(slot)];
      for (Real& v : row) v = w * v;
    }
    store_row(out, i, row.data());
  }
}

template <class Real>
void combine(const Operands<Real>& in, const Tensor& out, int64_t begin, int64_t end) {
  std::vector<Real> sums(static_cast<size_t>(in.D));
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t k = 0; k < in.K; ++k) {
      const auto slot = static_cast<size_t>(t * in.K + k);
      const Real w = in.weights.empty() ? Real(1) : in.weights[slot];  // times 1 changes no bit
      visit_row(in.x, in.row_of_slot[slot], [&](const auto* from) {
        Real* const to = sums.data();
        if (k == 0) {
          for (int64_t d = 0; d < in.D; ++d) to[d] = w * widened<Real>(from[d]);
        } else {
          for (int64_t d = 0; d < in.D; ++d) to[d] += w * widened<Real>(from[d]);
        }
      });
    }
    store_row(out, t, sums.data());
  }
}

template <class Real>
void dots(const Operands<Real>& in, const Tensor& out, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t slot = t * in.K; slot < (t + 1) * in.K; ++slot) {
      visit_row(in.x, in.row_of_slot[static_cast<size_t>(slot)], [&](const auto* y) {
        visit_row(in.other, t, [&](const auto* x) {
          const Real sum =
              facets::tree_sum<Real>(0, in.D, [&](int64_t d) { return widened<Real>(y[d]) * widened<Real>(x[d]); });
          store_from_double(static_cast<char*>(out.raw_data()) + slot * itemsize(out.dtype()), out.dtype(),
                            static_cast<double>(sum));
        });
      });
    }
  }
}

// Kernels and not recipes: which rows are read is in memory, and several of them go into one.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& out = outputs[0];
  const auto run = [&]<class Real>() {
    const Operands<Real> in(call);
    const auto part = &call.op == &kDispatch ? dispatch<Real> : &call.op == &kCombine ? combine<Real> : dots<Real>;
    ThreadPool::current().parallel_for(out.extents()[0], kRowsAtOnce,
                                       [&](int64_t begin, int64_t end) { part(in, out, begin, end); });
  };
  const auto is_wide = [](const Tensor& t) { return t.dtype() == DType::f64; };
  if (out.dtype() == DType::f64 || std::any_of(call.inputs.begin(), call.inputs.end(), is_wide))
    run.template operator()<double>();
  else run.template operator()<float>();
}

// The definition, with sums in double.
void reference(const OpCall& call, std::span<const Tensor> outputs) {
  check(call);
  const std::vector<int64_t> slot_of_row = facets::dense_indices(call[lists_at(call)]);
  const Tensor& out = outputs[0];
  const int64_t K = slots_of(call), D = call[0].extents()[1];
  const std::vector<double> x = facets::values(call[0], call[0].extents());
  const std::vector<double> other = is_dots(call) ? facets::values(call[1], call[1].extents()) : std::vector<double>();
  const std::vector<double> weights = weights_of(call) != nullptr
                                          ? facets::values(*weights_of(call), weights_of(call)->extents())
                                          : std::vector<double>(slot_of_row.size(), 1.0);
  std::vector<double> sums(static_cast<size_t>(out.numel()), facets::kSumIdentity);
  for (size_t row = 0; row < slot_of_row.size(); ++row) {
    const auto slot = static_cast<size_t>(slot_of_row[row]), token = slot / static_cast<size_t>(K);
    for (size_t d = 0; d < static_cast<size_t>(D); ++d) {
      const size_t of_row = row * static_cast<size_t>(D) + d, of_token = token * static_cast<size_t>(D) + d;
      if (&call.op == &kDispatch) sums[of_row] = weights[slot] * x[of_token];
      else if (&call.op == &kCombine) sums[of_token] += weights[slot] * x[of_row];
      else sums[slot] += x[of_row] * other[of_token];
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) facets::write_double(out, static_cast<int64_t>(i), sums[i]);
}

// ---- gradients, sharding, cost
// ------------------------------------------------------------------------------------------------------

Tensor call_slots(const OpDef& op, const Attrs& like, DType out, std::initializer_list<Tensor> inputs) {
  std::vector<Tensor> defined;
  for (const Tensor& t : inputs) {
    if (t.defined()) defined.push_back(t);
  }
  return apply1(op, defined, Attrs::of(SlotAttrs{like.as<SlotAttrs>().slots_per_token, out}));
}

void vjp_of_rows(const VjpCall& c, std::span<Tensor> grads) {
  const bool is_dispatch = &c.op == &kDispatch;
  const Tensor &g = c.grads[0], &order = c.inputs[1], &inverse = c.inputs[2];
  const Tensor weights = c.inputs.size() > 3 ? c.inputs[3] : Tensor();
  if (!g.defined()) return;
  if (c.needs(0))
    grads[0] =
        call_slots(is_dispatch ? kCombine : kDispatch, c.attrs, c.input_metas[0].dtype, {g, order, inverse, weights});
  if (!weights.defined() || !c.needs(3)) return;
  const Tensor &rows = is_dispatch ? g : c.inputs[0], &tokens = is_dispatch ? c.inputs[0] : g;
  grads[3] = call_slots(kDots, c.attrs, compute_dtype(c.input_metas[3].dtype), {rows, tokens, order, inverse});
}

void vjp_of_dots(const VjpCall& c, std::span<Tensor> grads) {
  const Tensor& g = c.grads[0];
  if (!g.defined()) return;
  if (c.needs(0))
    grads[0] = call_slots(kDispatch, c.attrs, c.input_metas[0].dtype, {c.inputs[1], c.inputs[2], c.inputs[3], g});
  if (c.needs(1))
    grads[1] = call_slots(kCombine, c.attrs, c.input_metas[1].dtype, {c.inputs[0], c.inputs[2], c.inputs[3], g});
}

// Rows stay with their slots; features may be cut.
std::string sharding(const OpCall& call) {
  if (is_dots(call)) return "Y[Nd] X[Td] #S[N] #R[N] -> W[TK] | sum{d} | bilin";
  const bool has_weights = weights_of(call) != nullptr;
  const char *from = &call.op == &kDispatch ? "T" : "N", *to = &call.op == &kDispatch ? "N" : "T";
  return fmt::format("X[{}d] #S[N] #R[N]{} -> Y[{}d] | | {}", from, has_weights ? " #W[TK]" : "", to, "lin");
}

Cost cost(const OpCall& call) {
  const double elements = static_cast<double>(call[lists_at(call)].numel()) * static_cast<double>(call[0].extents()[1]);
  return {2.0 * elements, elements * static_cast<double>(itemsize(call[0].dtype()) + itemsize(out_dtype(call)))};
}

// ---- samples
// -------------------------------------------------------------------------------------------------------------------

constexpr int64_t kTokens = 5, kSlots = 3;

Sample sample(const OpDef& op, const char* name, int64_t D, DType dtype, DType out, bool weighted,
              int64_t tokens = kTokens) {
  const int64_t N = tokens * kSlots;
  std::vector<int64_t> order(static_cast<size_t>(N)), inverse(order.size());
  for (int64_t i = 0; i < N; ++i) order[static_cast<size_t>(i)] = i * 7 % N;
  for (int64_t i = 0; i < N; ++i) inverse[static_cast<size_t>(order[static_cast<size_t>(i)])] = i;
  const bool of_rows = &op != &kDispatch;
  std::vector<Tensor> inputs{facets::sample_tensor(1, {of_rows ? N : tokens, D}, dtype)};
  if (&op == &kDots) inputs.push_back(facets::sample_tensor(2, {tokens, D}, dtype));
  inputs.push_back(Tensor::of(order, {N}));
  inputs.push_back(Tensor::of(inverse, {N}));
  if (weighted)
    inputs.push_back(facets::sample_tensor(3, {tokens, kSlots}, dtype == DType::f64 ? DType::f64 : DType::f32));
  return {name, inputs, Attrs::of(SlotAttrs{kSlots, out})};
}

std::vector<Sample> samples_of(const OpDef& op) {
  constexpr DType f32 = DType::f32, f64 = DType::f64, bf16 = DType::bf16;
  if (&op == &kDots)
    return {sample(op, "f32", 600, f32, f32, false), sample(op, "bf16", 17, bf16, f32, false),
            sample(op, "f64", 9, f64, f64, false), sample(op, "empty", 4, f32, f32, false, 0)};
  return {sample(op, "f32", 33, f32, f32, true),         sample(op, "unweighted_f32", 8, f32, f32, false),
          sample(op, "bf16", 17, bf16, bf16, true),      sample(op, "unweighted_bf16", 6, bf16, bf16, false),
          sample(op, "bf16_to_f32", 6, bf16, f32, true), sample(op, "f16", 5, DType::f16, DType::f16, true),
          sample(op, "f64", 9, f64, f64, true),          sample(op, "unweighted_f64", 3, f64, f64, false),
          sample(op, "empty", 4, f32, f32, true, 0)};
}

constexpr OpDef op_named(const char* name, int num_inputs, void (*vjp)(const VjpCall&, std::span<Tensor>),
                         std::vector<Sample> (*samples)()) {
  return {.name = name,
          .num_inputs = num_inputs,
          .infer = infer,
          .reference = reference,
          .gradient = {.vjp = vjp, .saves_inputs = 0b1111},
          .check = check,
          .kernel = kernel,
          .sharding = sharding,
          .recompute = Recompute::costly,
          .cost = cost,
          .samples = samples};
}

const OpDef kDispatch = op_named("dispatch_rows", -1, vjp_of_rows, [] { return samples_of(kDispatch); });
const OpDef kCombine = op_named("combine_rows", -1, vjp_of_rows, [] { return samples_of(kCombine); });
const OpDef kDots = op_named("slot_dots", 4, vjp_of_dots, [] { return samples_of(kDots); });

void check_order(const char* op, const SlotOrder& order, const SymInt& slots) {
  TUTTI_CHECK(order.slots_per_token >= 1, "{}: {} slots per token; expected at least 1", op, order.slots_per_token);
  for (const Tensor& list : {order.slot_of_row, order.row_of_slot}) {
    facets::check_index_dtype(op, list);
    TUTTI_CHECK(list.ndim() == 1 && list.size(0) == slots,
                "{}: a list of the order is {}; expected one element for each of {} slots", op, list.sizes(), slots);
  }
}

void check_rows(const char* op, const Tensor& x) {
  TUTTI_CHECK(x.ndim() == 2 && is_floating(x.dtype()) && !is_fp8(x.dtype()),
              "{}: the rows are {}; expected floats (f64, f32, bf16, f16) of two dims", op, describe(x));
}

}  // namespace

SlotOrder sort_slots(const Tensor& expert_ids) {
  facets::check_index_dtype("sort_slots", expert_ids);
  TUTTI_CHECK(expert_ids.ndim() == 2, "sort_slots: the ids are {}; expected [tokens, choices]", describe(expert_ids));
  const SymInt slots = expert_ids.size(0) * expert_ids.size(1);
  const Tensor order = argsort(reshape(expert_ids, {slots}), 0);
  return {order, scatter(full_beside(order, {slots}, 0, DType::i64), 0, order, beside(order, arange(slots))),
          expert_ids.size(1).guard_int()};
}

Tensor dispatch_rows(const Tensor& x, const SlotOrder& order) {
  check_rows("dispatch_rows", x);
  check_order("dispatch_rows", order, x.size(0) * order.slots_per_token);
  return call_op(kDispatch, Attrs::of(SlotAttrs{order.slots_per_token, x.dtype()}), x, order.slot_of_row,
                 order.row_of_slot);
}

Tensor combine_rows(const Tensor& y, const SlotOrder& order, const Tensor& weights) {
  check_rows("combine_rows", y);
  check_order("combine_rows", order, y.size(0));
  const Attrs attrs = Attrs::of(SlotAttrs{order.slots_per_token, y.dtype()});
  TUTTI_CHECK(remainder(y.size(0), order.slots_per_token) == 0,
              "combine_rows: {} rows with {} slots per token; expected a multiple", y.size(0), order.slots_per_token);
  if (!weights.defined()) return call_op(kCombine, attrs, y, order.slot_of_row, order.row_of_slot);
  TUTTI_CHECK(weights.ndim() == 2 && weights.size(0) * order.slots_per_token == y.size(0) &&
                  weights.size(1) == order.slots_per_token &&
                  (weights.dtype() == DType::f32 || weights.dtype() == DType::f64),
              "combine_rows: the weights are {}; expected f32 or f64 [{}, {}]", describe(weights),
              floordiv(y.size(0), order.slots_per_token), order.slots_per_token);
  return call_op(kCombine, attrs, y, order.slot_of_row, order.row_of_slot, weights);
}

}  // namespace tutti

TUTTI_OPS(slot_rows, &kDispatch, &kCombine, &kDots)
