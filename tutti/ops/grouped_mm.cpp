#include "tutti/ops/grouped_mm.h"

#include <algorithm>

#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/grouped/groups.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

extern const OpDef kGroupedMm;

using namespace grouped;

DType out_dtype(const OpCall& call) { return call.attrs.as<GroupedAttrs>().out_dtype; }

void infer(const OpCall& call, OutputMetas& out) {
  const Shape &a = call[0].sizes(), &b = call[1].sizes();
  switch (form_of(call)) {
    case Form::rows:
      return out.add(out_dtype(call), {a[0], b[2]});
    case Form::columns:
      return out.add(out_dtype(call), {a[1], b[1]});
    case Form::contraction:
      return out.add(out_dtype(call), {call[2].sizes()[0], a[0], b[1]});
  }
}

void store_identity(const Tensor& out, int64_t begin, int64_t end) {
  constexpr int64_t kElementsAtOnce = 1 << 14;
  const int64_t item = itemsize(out.dtype());
  char* const to = static_cast<char*>(out.raw_data()) + begin * item;
  ThreadPool::current().parallel_for(end - begin, kElementsAtOnce, [&](int64_t first, int64_t last) {
    codegen::store_sum_identity(to + first * item, out.dtype(), last - first);
  });
}

// What no group owns.
void store_rest(Form form, const Tensor& out, int64_t end) {
  const int64_t n = out.extents().back();
  if (form == Form::rows) store_identity(out, end * n, out.numel());
  if (form != Form::columns) return;
  for (int64_t i = 0; i < out.extents()[0]; ++i) store_identity(out, i * n + end, (i + 1) * n);
}

// A kernel and not a recipe: where the operands of a product begin is in memory.
void multiply(const OpCall& call, const Tensor& out, const RowProducer* producer) {
  const std::vector<Group> groups = groups_of(call);
  store_rest(form_of(call), out, groups.empty() ? 0 : groups.back().end);
  if (out.numel() == 0) return;
  const Trees trees(call);
  const auto multiply_group = [&](size_t g) {
    const Product p = product_of(call, out, static_cast<int64_t>(g), groups[g]);
    if (producer == nullptr) return codegen::gemm(p.m, p.n, p.k, p.a, p.b, p.c, trees.of(groups[g]));
    const auto produce = [&](const codegen::GemmOperandBlock& block) { (*producer)(groups[g].begin, block); };
    const codegen::GemmProducer rows(produce);
    codegen::gemm(p.m, p.n, p.k, p.a, p.b, p.c, trees.of(groups[g]), {.producer = &rows});
  };
  KernelTrace::note_extern(call.op, [&] {
    const auto is_smaller = [](const Group& x, const Group& y) { return x.size() < y.size(); };
    const auto largest = std::max_element(groups.begin(), groups.end(), is_smaller);
    if (largest == groups.end()) return std::string("no groups");
    const Product p = product_of(call, out, largest - groups.begin(), *largest);
    return fmt::format("{} groups, largest {}x{}x{}: {}", groups.size(), p.m, p.n, p.k,
                       codegen::describe_gemm(p.m, p.n, p.k, p.a, p.b, p.c, trees.of(*largest)));
  });
  // Products that are a large part of the work take the threads one after the other; then the others run side by side,
  // the larger ones first.
  constexpr double kWorthAllThreads = 1 << 21;
  std::vector<std::pair<double, size_t>> work;
  double all = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const Product p = product_of(call, out, static_cast<int64_t>(g), groups[g]);
    work.emplace_back(static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k), g);
    all += work.back().first;
  }
  std::stable_sort(work.begin(), work.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
  ThreadPool& pool = ThreadPool::current();
  const double large = std::max(kWorthAllThreads, all / (4.0 * pool.threads()));
  size_t first_small = 0;
  while (first_small < work.size() && work[first_small].first >= large) multiply_group(work[first_small++].second);
  pool.parallel_for(static_cast<int64_t>(work.size() - first_small), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) multiply_group(work[first_small + static_cast<size_t>(i)].second);
  });
}

void kernel(const OpCall& call, std::span<const Tensor> outputs) { multiply(call, outputs[0], nullptr); }

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  check_groups(call);
  const Tensor& out = outputs[0];
  const std::vector<Group> groups = groups_of(call);
  store_rest(form_of(call), out, groups.empty() ? 0 : groups.back().end);
  const auto element = [](const codegen::GemmOperand& x, int64_t i, int64_t j) {
    const int64_t offset = (i * x.row_stride + j * x.column_stride) * itemsize(x.dtype);
    return load_as_double(static_cast<const char*>(x.data) + offset, x.dtype);
  };
  for (size_t g = 0; g < groups.size(); ++g) {
    const Product p = product_of(call, out, static_cast<int64_t>(g), groups[g]);
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = facets::kSumIdentity;
        for (int64_t k = 0; k < p.k; ++k) sum += element(p.a, i, k) * element(p.b, k, j);
        char* row = static_cast<char*>(p.c.data) + i * p.c.row_stride * itemsize(p.c.dtype);
        store_from_double(row + j * itemsize(p.c.dtype), p.c.dtype, sum);
      }
    }
  }
}

// ---- gradient, sharding, cost ---------------------------------------------------------------------------------------

Tensor product(const Tensor& a, const Tensor& b, const Tensor& offsets, const Tensor& positions, SymInt position_count,
               DType out) {
  const Attrs attrs = Attrs::of(GroupedAttrs{positions.defined() ? position_count : SymInt(0), out});
  return positions.defined() ? call_op(kGroupedMm, attrs, a, b, offsets, positions)
                             : call_op(kGroupedMm, attrs, a, b, offsets);
}

// As the weights of linear layers lie when they are multiplied.
bool is_transposed_view(const Tensor& t) { return t.ndim() == 3 && t.strides()[1] == 1 && t.strides()[2] != 1; }

// Both gradients are grouped products of the cotangent again: what is 3-D contracts the ragged dim, what is 2-D keeps
// it. The gradient of a 3-D operand lies as the operand does, so that the sums over virtual shards, norms and
// optimizers walk through memory: the same products in the same order.
void vjp(const VjpCall& c, std::span<Tensor> grads) {
  const Tensor& g = c.grads[0];
  if (!g.defined()) return;
  const Tensor positions = c.inputs.size() > 3 ? c.inputs[3] : Tensor();
  const SymInt position_count = c.attrs.as<GroupedAttrs>().position_count;
  const auto gradient = [&](const Tensor& a, const Tensor& b, const OutputMeta& of) {
    const DType dtype = of.sizes.ndim() == 3 ? compute_dtype(of.dtype) : of.dtype;
    return product(a, b, c.inputs[2], positions, position_count, dtype);
  };
  const auto turned = [](const Tensor& t) { return transpose(t, -1, -2); };
  if (c.needs(0)) {
    grads[0] = is_transposed_view(c.inputs[0]) ? turned(gradient(c.inputs[1], turned(g), c.input_metas[0]))
                                               : gradient(g, turned(c.inputs[1]), c.input_metas[0]);
  }
  if (c.needs(1)) {
    grads[1] = is_transposed_view(c.inputs[1]) ? turned(gradient(turned(g), c.inputs[0], c.input_metas[1]))
                                               : gradient(turned(c.inputs[0]), g, c.input_metas[1]);
  }
}

// Offsets count through the whole ragged dim, and a group is what they say: neither is cut. So a sum over the ragged
// dim stays whole, too; what its ranges of positions allow to divide is divided by those who know which rank has which
// rows (expert parallelism).
std::string sharding(const OpCall& call) {
  const char* positions = has_positions(call) ? " #P[T]" : "";
  const int32_t leaf = codegen::contraction_leaf();
  switch (form_of(call)) {
    case Form::rows:
      return fmt::format("A[Tk] B[Gkn] #O[G]{} -> C[Tn] | tree:{}{{k}} | bilin", positions, leaf);
    case Form::columns:
      return fmt::format("A[Gmk] B[kT] #O[G]{} -> C[mT] | tree:{}{{k}} | bilin", positions, leaf);
    case Form::contraction:
      return fmt::format("A[mT] B[Tn] #O[G]{} -> C[Gmn] | | bilin", positions);
  }
  throw InternalError("grouped_mm: no such form");
}

// As if every element were in a group: how many are is in memory.
Cost cost(const OpCall& call) {
  OutputMetas metas;
  infer(call, metas);
  const double out = static_cast<double>(numel_of(metas.meta[0].sizes).guard_int());
  // A contraction of T rows meets each of them in one group.
  const double groups = form_of(call) == Form::contraction ? std::max(1.0, static_cast<double>(call[2].numel())) : 1.0;
  const double bytes =
      static_cast<double>(call[0].nbytes() + call[1].nbytes()) + out * static_cast<double>(itemsize(out_dtype(call)));
  return {2.0 * out * static_cast<double>(call[0].extents().back()) / groups, bytes};
}

Sample sample(const char* name, const Extents& a, const Extents& b, const Tensor& offsets, DType dtype, DType out) {
  return {name,
          {facets::sample_tensor(1, a, dtype), facets::sample_tensor(2, b, dtype), offsets},
          Attrs::of(GroupedAttrs{0, out})};
}

std::vector<Sample> samples() {
  constexpr DType f32 = DType::f32, f64 = DType::f64, bf16 = DType::bf16;
  const Tensor uneven = Tensor::of<int64_t>({3, 3, 10, 11}), rest = Tensor::of<int32_t>({0, 5, 9});
  std::vector<Sample> list{sample("rows_f32", {11, 7}, {4, 7, 5}, uneven, f32, f32),
                           sample("rows_with_a_rest_f32", {12, 130}, {3, 130, 3}, rest, f32, f32),
                           sample("rows_bf16", {12, 9}, {3, 9, 5}, rest, bf16, bf16),
                           sample("columns_f64", {4, 5, 6}, {6, 11}, uneven, f64, f64),
                           sample("columns_with_a_rest_f32", {3, 2, 9}, {9, 12}, rest, f32, f32),
                           sample("contraction_f32", {5, 11}, {11, 7}, uneven, f32, f32),
                           sample("contraction_bf16_to_f32", {5, 12}, {12, 3}, rest, bf16, f32),
                           sample("no_rows_f32", {0, 4}, {2, 4, 3}, Tensor::of<int64_t>({0, 0}), f32, f32),
                           sample("no_groups_f32", {3, 4}, {0, 4, 3}, Tensor::of<int64_t>({}), f32, f32)};
  Sample placed = sample("positions_f64", {3, 9}, {9, 4}, Tensor::of<int64_t>({4, 4, 8}), f64, f64);
  placed.inputs.push_back(Tensor::of<int64_t>({0, 1, 250, 511, 3, 128, 300, 301, 7}));
  placed.attrs = Attrs::of(GroupedAttrs{512, f64});
  list.push_back(placed);
  return list;
}

const OpDef kGroupedMm{.name = "grouped_mm",
                       .num_inputs = -1,
                       .infer = infer,
                       .reference = reference,
                       .gradient = {.vjp = vjp, .saves_inputs = 0b1111},
                       .check = check_groups,
                       .kernel = kernel,
                       .sharding = sharding,
                       .recompute = Recompute::costly,
                       .cost = cost,
                       .samples = samples,
                       .tolerance = {.f32 = 2e-5}};

bool is_gemm_dtype(DType dtype) { return is_floating(dtype) && !is_fp8(dtype); }

// Sizes that hold before any data is looked at.
void check_sizes(const Tensor& a, const Tensor& b, const Tensor& offsets, const GroupedMmOptions& options) {
  const int an = a.ndim(), bn = b.ndim();
  TUTTI_CHECK(
      (an == 2 || an == 3) && (bn == 2 || bn == 3) && an + bn < 6,
      "grouped_mm: a is {}, b is {}; with offsets expected [T, k] x [G, k, n], [G, m, k] x [k, T] or [m, T] x [T, n]{}",
      a.sizes(), b.sizes(), an == 3 && bn == 3 ? ". Two 3-D operands take no offsets" : "");
  TUTTI_CHECK(is_gemm_dtype(a.dtype()) && is_gemm_dtype(b.dtype()),
              "grouped_mm: needs float operands (f64, f32, bf16, f16): a is {}, b is {}; cast() them", describe(a),
              describe(b));
  TUTTI_CHECK(a.size(-1) == b.size(-2), "grouped_mm: inner sizes differ: a is {}, b is {}; expected b.size(-2) == {}",
              a.sizes(), b.sizes(), a.size(-1));
  facets::check_index_dtype("grouped_mm", offsets);
  TUTTI_CHECK(offsets.ndim() == 1, "grouped_mm: the offsets are {}; expected one dim, the end of each group",
              offsets.sizes());
  const Form form = form_of(an, bn);
  if (form != Form::contraction) {
    const SymInt groups = form == Form::rows ? b.size(0) : a.size(0);
    TUTTI_CHECK(offsets.size(0) == groups,
                "grouped_mm: {} offsets for {} groups: a is {}, b is {}; give the end of each group", offsets.size(0),
                groups, a.sizes(), b.sizes());
  }
  if (!options.positions.defined()) return;
  facets::check_index_dtype("grouped_mm", options.positions);
  const SymInt ragged = form == Form::rows ? a.size(0) : b.size(form == Form::columns ? 1 : 0);
  TUTTI_CHECK(
      options.positions.ndim() == 1 && options.positions.size(0) == ragged,
      "grouped_mm: the positions are {}, a is {}, b is {}; expected one for each of {} elements of the ragged dim",
      options.positions.sizes(), a.sizes(), b.sizes(), ragged);
  TUTTI_CHECK(options.position_count >= 1,
              "grouped_mm: position_count is {}; with positions it is the number of token positions of the whole batch",
              options.position_count);
}

}  // namespace

void grouped::multiply_groups(std::span<const Tensor> inputs, int64_t position_count, const Tensor& out,
                              const RowProducer* producer) {
  const Attrs attrs = Attrs::of(GroupedAttrs{position_count, out.dtype()});
  multiply({kGroupedMm, inputs, attrs}, out, producer);
}

Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& offsets, const GroupedMmOptions& options) {
  check_sizes(a, b, offsets, options);
  const DType out = options.out_dtype.value_or(promote(a.dtype(), b.dtype()));
  return product(a, b, offsets, options.positions, options.position_count, out);
}

Tensor grouped_mm(const Tensor& a, const Tensor& b, const GroupedMmOptions& options) {
  TUTTI_CHECK(
      a.ndim() == 3 && b.ndim() == 3 && a.size(0) == b.size(0),
      "grouped_mm: without offsets it needs [G, m, k] and [G, k, n] with one number of groups: a is {}, b is {}",
      a.sizes(), b.sizes());
  const Tensor offsets = beside(a, mul(add(arange(a.size(0)), 1), a.size(1)));
  const Tensor rows = reshape(a, {a.size(0) * a.size(1), a.size(2)});
  return reshape(grouped_mm(rows, b, offsets, options), {a.size(0), a.size(1), b.size(2)});
}

}  // namespace tutti

TUTTI_OPS(grouped_mm, &kGroupedMm)
