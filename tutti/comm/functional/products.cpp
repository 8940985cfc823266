// Collectives joined with the matrix products next to them (asynchronous tensor parallelism): a rank multiplies its own
// part, and each part as it comes, while others are on their way, and sums parts in the order in which others wait for
// them. Compiled functions make these calls of collectives and products that stand side by side
// (plan/passes/join_products.h).
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/matmul_sum.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/symm/ops/all_gather_matmul.h"
#include "tutti/symm/ops/matmul_reduce_scatter.h"

namespace tutti {
namespace comm::functional {
namespace {

struct ProductAttrs {
  GroupRef group;
  DType out_dtype;  // of the products
  static constexpr auto fields() {
    return field_list(field::group<&ProductAttrs::group>("group"),
                      field::output_dtype<&ProductAttrs::out_dtype>("out_dtype"));
  }
};
const ProductAttrs& attrs_of(const OpCall& call) { return call.attrs.as<ProductAttrs>(); }

Attrs joined_attrs(const OpCall& collective, const OpCall& product) {
  OutputMetas metas;
  product.op.infer(product, metas);
  return Attrs::of(ProductAttrs{functional::attrs_of(collective).group, metas.meta[0].dtype});
}

// The ranks of these transports have symmetric memory.
bool shares_memory(ProcessGroup& group) {
  const std::string transport = group.backend(DeviceKind::cpu).name();
  return group.size() > 1 && (transport == "shm" || transport == "threads");
}

void count_sent(ProcessGroup& group, int64_t bytes) {
  RankContext::current().sent_bytes.fetch_add((group.size() - 1) * bytes, std::memory_order_relaxed);
}

Cost product_cost(const OpCall& call, int64_t rows, size_t first) {
  double flops = 0;
  for (size_t i = first; i < call.inputs.size(); ++i)
    flops += 2.0 * static_cast<double>(rows) * static_cast<double>(call[i].numel());
  const double ranks = attrs_of(call).group.ranks;
  return {.flops = flops, .bytes = (ranks - 1) / ranks * static_cast<double>(call[0].nbytes())};
}

// ---- all_gather_single and products of its result: [x, b...] -> [gathered, products...] -----------------------------

void infer_gather(const OpCall& call, OutputMetas& out) {
  const Shape gathered = gathered_sizes(call.op.name, call[0], attrs_of(call).group.ranks);
  out.add(call[0].dtype(), gathered);
  for (size_t i = 1; i < call.inputs.size(); ++i) out.add(attrs_of(call).out_dtype, {gathered[0], call[i].size(1)});
}

void run_gather(const OpCall& call, std::span<const Tensor> outputs) {
  const GroupArgument group = attrs_of(call).group.resolve(call.op.name);
  const std::span<const Tensor> weights = call.inputs.subspan(1), products = outputs.subspan(1);
  const Tensor x = to_contiguous(call[0]);
  if (shares_memory(*group)) {
    count_sent(*group, x.nbytes());
    return symm::all_gather_matmul_into({outputs[0], {products.begin(), products.end()}}, x, weights,
                                        symm_group(*group));
  }
  // The own part lies where it belongs, and is multiplied while the others come.
  const int64_t m = x.extent(0), own = group->rank();
  const auto rows = [&](const Tensor& whole, int64_t begin, int64_t end) {
    return whole.view_as({end - begin, whole.extent(1)}, whole.strides(), whole.offset() + begin * whole.extent(1));
  };
  const auto multiply = [&](int64_t begin, int64_t end) {
    for (size_t i = 0; i < weights.size() && begin < end; ++i)
      matmul_into(rows(products[i], begin * m, end * m), rows(outputs[0], begin * m, end * m), weights[i]);
  };
  const Tensor part = rows(outputs[0], own * m, (own + 1) * m);
  facets::raw_copy(part, x);
  const Work others = group->all_gather_single(outputs[0], part, kStart);
  multiply(own, own + 1);
  others.wait();
  multiply(0, own);
  multiply(own + 1, group->size());
}

Cost gather_cost(const OpCall& call) { return product_cost(call, call[0].extent(0) * attrs_of(call).group.ranks, 1); }

constexpr OpDef gather_with(const char* name, int products) {
  return {.name = name,
          .num_inputs = 1 + products,
          .num_outputs = 1 + products,
          .infer = infer_gather,
          .gradient = {.none = "compiled functions make it of calls that have been recorded"},
          .ordered = true,
          .kernel = run_gather,
          .cost = gather_cost};
}
const OpDef kGatherAndProduct = gather_with("all_gather_matmul", 1);
const OpDef kGatherAndTwoProducts = gather_with("all_gather_two_matmuls", 2);
const OpDef kGatherAndThreeProducts = gather_with("all_gather_three_matmuls", 3);

// ---- a product, or a sum of them, and reduce_scatter_single of its result: [a..., b...] -> part
// ----------------------

size_t products_of(const OpCall& call) { return call.inputs.size() / 2; }

void infer_scatter(const OpCall& call, OutputMetas& out) {
  out.add(attrs_of(call).out_dtype,
          {scattered_sizes(call.op.name, call[0], attrs_of(call).group.ranks)[0], call[products_of(call)].size(1)});
}

void run_scatter(const OpCall& call, std::span<const Tensor> outputs) {
  const std::span<const Tensor> a = call.inputs.first(products_of(call)), b = call.inputs.subspan(products_of(call));
  const GroupArgument group = attrs_of(call).group.resolve(call.op.name);
  if (shares_memory(*group)) {
    count_sent(*group, outputs[0].nbytes());
    return symm::matmul_reduce_scatter_into(outputs[0], a, b, symm_group(*group));
  }
  const Tensor terms = Tensor::empty({a[0].extent(0), b[0].extent(1)}, outputs[0].dtype());
  if (a.size() == 1) matmul_into(terms, a[0], b[0]);
  else matmul_sum_into(terms, a, b);
  group->reduce_scatter_single(outputs[0], terms, ReduceKind::sum);
}

const OpDef kScatterProduct{
    .name = "matmul_reduce_scatter",
    .num_inputs = -1,
    .infer = infer_scatter,
    .gradient = {.none = "compiled functions make it of calls that have been recorded"},
    .ordered = true,
    .kernel = run_scatter,
    .cost = [](const OpCall& call) { return product_cost(call, call[0].extent(0), products_of(call)); }};

bool reads_rows(const OpCall&, const OpCall& product) { return has_rows_apart(product); }

// Terms of a sum over ranks are not rounded before they are added.
bool makes_terms(const OpCall& scatter, const OpCall& product) {
  if (functional::attrs_of(scatter).reduce.kind() != ReduceKind::sum ||
      !(has_rows_apart(product) || is_matmul_sum(product)))
    return false;
  OutputMetas metas;
  product.op.infer(product, metas);
  DType common = product[0].dtype();
  for (const Tensor& t : product.inputs) common = promote(common, t.dtype());
  return metas.meta[0].dtype == compute_dtype(common);
}

}  // namespace

const JoinedOp kGatherWithProducts{.ops = {&kGatherAndProduct, &kGatherAndTwoProducts, &kGatherAndThreeProducts},
                                   .takes = reads_rows,
                                   .attrs = joined_attrs};
const JoinedOp kScatterOfProduct{.ops = {&kScatterProduct}, .takes = makes_terms, .attrs = joined_attrs};

}  // namespace comm::functional
}  // namespace tutti
