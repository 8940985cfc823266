#include "tutti/ops/packed_linear.h"

#include <algorithm>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/tile_product.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/pad.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

// Rows of x that are packed at a time: with k = 2048 of f32 a strip of them stays in the second-level cache.
constexpr int64_t kRowsAtOnce = 96;
// Multiply-adds below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 18;

struct PackedLinearAttrs {
  SymInt out_features;
  static constexpr auto fields() { return field_list(field::size<&PackedLinearAttrs::out_features>("out_features")); }
};
int64_t out_features(const OpCall& call) { return call.attrs.as<PackedLinearAttrs>().out_features.value(); }

void infer(const OpCall& call, OutputMetas& out) {
  out.add(promote(call[0].dtype(), call[1].dtype()),
          {call[0].sizes()[0], call.attrs.as<PackedLinearAttrs>().out_features});
}

// Rows [first, first + rows) of x times all panels.
class RowBlock {
 public:
  RowBlock(const OpCall& call, const Tensor& out, const codegen::ContractionTree& tree, int64_t first, int64_t rows)
      : x_(call[0]),
        packed_(call[1]),
        out_(out),
        tree_(tree),
        first_(first),
        rows_(rows),
        k_(x_.extents()[1]),
        depth_(tree.depth()),
        product_(
            x_.dtype() == DType::bf16 && packed_.dtype() == DType::bf16 ? DType::bf16 : compute_dtype(packed_.dtype()),
            rows),
        item_(codegen::item_bytes(product_.kind())) {}

  void run() const {
    void* a = codegen::gemm_workspaces().a.reserve(product_.packed_size(k_) * item_);
    int64_t k = 0, items = 0;
    for (const int32_t length :
         tree_.leaf_lengths) {  // in order: what packing writes behind a leaf belongs to the next
      const int64_t element = first_ * x_.strides()[0] + k * x_.strides()[1];
      const char* rows = static_cast<const char*>(x_.raw_data()) + element * itemsize(x_.dtype());
      product_.pack({rows, x_.dtype(), x_.strides()[1], x_.strides()[0]}, length,
                    static_cast<char*>(a) + items * rows_ * item_);
      k += length;
      items += codegen::items_of(product_.kind(), length);
    }
    const int64_t work = rows_ * k_ * kPackedColumns;
    ThreadPool::current().parallel_for(packed_.extents()[0], kWorthATask / work + 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) run_panel(a, panel);
    });
  }

 private:
  // Leaf by leaf: that part of the panel stays in the first-level cache while tile after tile takes it.
  void run_panel(const void* a, int64_t panel) const {
    const int64_t n = out_.extents()[1], column = panel * kPackedColumns;
    codegen::GemmWorkspaces& mine = codegen::gemm_workspaces();
    void* tile = mine.tile.reserve(rows_ * kPackedColumns * item_);
    codegen::TileProductCall call{};
    const char* b =
        static_cast<const char*>(packed_.raw_data()) + panel * k_ * kPackedColumns * itemsize(packed_.dtype());
    call.b_stride = kPackedColumns;
    call.c = tile;
    call.c_stride = kPackedColumns;
    call.columns = kPackedColumns;
    call.stack = mine.stack.reserve(depth_ * rows_ * kPackedColumns * item_);
    call.depth = depth_;
    int64_t k = 0, items = 0;
    for (size_t leaf = 0; leaf < tree_.leaf_lengths.size(); ++leaf) {
      call.a = static_cast<const char*>(a) + items * rows_ * item_;
      call.b = b + k * kPackedColumns * itemsize(packed_.dtype());
      call.leaf_lengths = &tree_.leaf_lengths[leaf];
      call.merges = &tree_.merges[leaf];
      call.is_last = leaf + 1 == tree_.leaf_lengths.size();
      product_.run(call, packed_.dtype());
      call.pending += 1 - tree_.merges[leaf];
      k += tree_.leaf_lengths[leaf];
      items += codegen::items_of(product_.kind(), tree_.leaf_lengths[leaf]);
    }
    char* to = static_cast<char*>(out_.raw_data()) + (first_ * n + column) * itemsize(out_.dtype());
    codegen::store_tile(tile, codegen::sum_dtype(product_.kind()), kPackedColumns, rows_,
                        std::min(kPackedColumns, n - column), to, out_.dtype(), n, 1);
  }

  const Tensor &x_, &packed_, &out_;
  const codegen::ContractionTree& tree_;
  const int64_t first_, rows_, k_, depth_;
  const codegen::TileProduct product_;
  const int64_t item_;
};

// A kernel and not a recipe: the tiles of GEMM.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& out = outputs[0];
  const int64_t m = out.extents()[0], k = call[0].extents()[1];
  if (out.numel() == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < out.numel(); ++i) facets::write_double(out, i, facets::kSumIdentity);
    return;
  }
  KernelTrace::note_extern(
      call.op, [&] { return fmt::format("tree gemm {}, b packed before", name_of(codegen::cpu_target())); });
  const Tensor packed = to_contiguous(call[1]);
  const Tensor inputs[] = {call[0], packed};
  const codegen::ContractionTree tree = codegen::ContractionTree::halving(k);
  for (int64_t row = 0; row < m; row += kRowsAtOnce)
    RowBlock({call.op, inputs, call.attrs}, out, tree, row, std::min(kRowsAtOnce, m - row)).run();
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &x = call[0], &packed = call[1];
  const int64_t m = x.extents()[0], k = x.extents()[1], n = out_features(call);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = facets::kSumIdentity;
      for (int64_t p = 0; p < k; ++p) {
        const int64_t at = j / kPackedColumns * packed.strides()[0] + p * packed.strides()[1] +
                           j % kPackedColumns * packed.strides()[2];
        sum += facets::read_double(x, i * x.strides()[0] + p * x.strides()[1]) * facets::read_double(packed, at);
      }
      facets::write_double(outputs[0], i * n + j, sum);
    }
  }
}

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.needs(0)) return;
  const Tensor& packed = c.inputs[1];
  const Tensor rows = reshape(permute(packed, {0, 2, 1}), {packed.size(0) * kPackedColumns, packed.size(1)});
  const Tensor weight = narrow(rows, 0, 0, c.attrs.as<PackedLinearAttrs>().out_features);
  grads[0] = matmul(c.grads[0], weight, {.out_dtype = c.input_metas[0].dtype});
}

Cost cost(const OpCall& call) {
  const double m = static_cast<double>(call[0].extents()[0]), n = static_cast<double>(out_features(call)),
               k = static_cast<double>(call[0].extents()[1]);
  const double item = static_cast<double>(itemsize(promote(call[0].dtype(), call[1].dtype())));
  return {2.0 * m * n * k, static_cast<double>(call[0].nbytes() + call[1].nbytes()) + m * n * item};
}

std::vector<Sample> samples() {
  const auto sample = [](const char* name, int64_t m, int64_t n, int64_t k, DType x, DType weight) {
    const int64_t panels = (n + kPackedColumns - 1) / kPackedColumns;
    return Sample{name,
                  {facets::sample_tensor(1, {m, k}, x), facets::sample_tensor(2, {panels, k, kPackedColumns}, weight)},
                  Attrs::of(PackedLinearAttrs{n})};
  };
  return {sample("one_row_f32", 1, 50, 33, DType::f32, DType::f32),
          sample("odd_f32", 7, 48, 130, DType::f32, DType::f32),
          sample("f64", 3, 5, 6, DType::f64, DType::f64),
          sample("bf16", 2, 97, 9, DType::bf16, DType::bf16),
          sample("no_rows_f32", 0, 3, 4, DType::f32, DType::f32),
          sample("no_inner_f32", 2, 3, 0, DType::f32, DType::f32)};
}

// Panels are of one rank: cut the weight before it is packed.
const OpDef kPackedLinear{.name = "packed_linear",
                          .num_inputs = 2,
                          .infer = infer,
                          .reference = reference,
                          .gradient = {.vjp = vjp, .saves_inputs = 0b10, .constant_inputs = 0b10},
                          .kernel = kernel,
                          .sharding = [](const OpCall&) { return std::string("x[mk] #w[PkC] -> y[mN] | sum{k} | "); },
                          .recompute = Recompute::costly,
                          .cost = cost,
                          .samples = samples,
                          .tolerance = {.f32 = 2e-5}};

bool is_gemm_dtype(DType dtype) { return is_floating(dtype) && !is_fp8(dtype); }

}  // namespace

Tensor pack_weight(const Tensor& weight) {
  TUTTI_CHECK(weight.ndim() == 2 && is_gemm_dtype(weight.dtype()),
              "pack_weight: the weight is {}; expected [out, in] of f64, f32, bf16 or f16", describe(weight));
  const SymInt panels = floordiv(weight.size(0) + kPackedColumns - 1, kPackedColumns);
  const Tensor whole = pad(weight, 0, 0, (panels * kPackedColumns - weight.size(0)).guard_int());
  return contiguous(permute(reshape(whole, {panels, kPackedColumns, weight.size(1)}), {0, 2, 1}));
}

Tensor packed_linear(const Tensor& x, const Tensor& packed, SymInt out_features) {
  TUTTI_CHECK(is_gemm_dtype(x.dtype()) && is_gemm_dtype(packed.dtype()) &&
                  (x.dtype() != DType::f64 || packed.dtype() == DType::f64),
              "packed_linear: x is {}, the packed weight {}; expected f32, bf16 or f16, or a weight of f64",
              describe(x), describe(packed));
  TUTTI_CHECK(packed.ndim() == 3 && packed.size(2) == kPackedColumns && x.ndim() >= 1 && x.size(-1) == packed.size(1),
              "packed_linear: x is {}, the packed weight {}; expected [..., in] and [panels, in, {}], as pack_weight() "
              "gives it",
              x.sizes(), packed.sizes(), kPackedColumns);
  TUTTI_CHECK(out_features >= 0 && floordiv(out_features + kPackedColumns - 1, kPackedColumns) == packed.size(0),
              "packed_linear: {} features out of {} panels of {}; expected {} to {}", out_features, packed.size(0),
              kPackedColumns, (packed.size(0) - 1) * kPackedColumns + 1, packed.size(0) * kPackedColumns);
  const Tensor y = call_op(kPackedLinear, Attrs::of(PackedLinearAttrs{out_features}),
                           x.ndim() == 2 ? x : reshape(x, {-1, x.size(-1)}), packed);
  if (x.ndim() == 2) return y;
  Shape sizes = x.sizes();
  sizes.back() = out_features;
  return reshape(y, sizes);
}

}  // namespace tutti

TUTTI_OPS(packed_linear, &kPackedLinear)
