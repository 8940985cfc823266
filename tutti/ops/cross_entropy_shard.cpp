#include "tutti/ops/cross_entropy_shard.h"

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/softmax_rows/nodes.h"
#include "tutti/ops/softmax_rows/reference.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using codegen::TreeKind;

constexpr const char* kNoGradient =
    "it is a part of cross entropy over ranks, whose gradient is cross_entropy_shard_backward";

struct ShardAttrs {
  int64_t first_class;
  int64_t classes = 0;  // of the whole vocabulary, against which labels are checked; 0: unknown
  static constexpr auto fields() {
    return field_list(field::number<&ShardAttrs::first_class>("first_class"),
                      field::number<&ShardAttrs::classes>("classes"));
  }
};
int first_class_param(const OpCall& call, codegen::ParamValue* params) {
  params[0].i = call.attrs.as<ShardAttrs>().first_class;
  return 1;
}

Expr is_label(RecipeBuilder& b, Expr label) {
  return apply_scalar(ScalarOp::eq, b.inner_index() + b.param(0, DType::i64), label);
}
Expr is_ignored(RecipeBuilder& b, Expr label) {
  return apply_scalar(ScalarOp::eq, label, b.pool.constant_int(kIgnoreLabel, DType::i64));
}

// ---- class_statistics: logits [T, C], labels [T, 1] -> maximum, rest, target [T, 1] ---------------------------------

void infer_statistics(const OpCall& call, OutputMetas& out) {
  for (int k = 0; k < 3; ++k) out.add(compute_dtype(call[0].dtype()), {call[0].size(0), 1});
}
void check_labels(const OpCall& call) {
  const int64_t classes = call.attrs.as<ShardAttrs>().classes;
  const Tensor& labels = call[1];
  for (int64_t t = 0; classes > 0 && t < labels.extent(0); ++t) {
    const int64_t label = facets::read_int64(labels, t * labels.strides()[0]);
    TUTTI_CHECK(label == kIgnoreLabel || (label >= 0 && label < classes),
                "cross_entropy: label {} at row {} is outside [0, {}); use {} for rows to ignore", label, t, classes,
                kIgnoreLabel);
  }
}
void build_statistics(RecipeBuilder& b) {
  const Expr x = b.in(0), label = cast(b.in(1), DType::i64);
  const auto [m, r] = b.softmax_rest(x, TreeKind::halving);
  b.out(m);
  b.out(r);
  b.out(b.reduce(ReduceOp::sum, where(is_label(b, label), x, b.constant(-0.0, x.dtype()))));
}

double at(const Tensor& t, int64_t row, int64_t column = 0) {
  return facets::read_double(t, row * t.strides()[0] + column * t.strides()[1]);
}
int64_t label_at(const Tensor& labels, int64_t row) { return facets::read_int64(labels, row * labels.strides()[0]); }

void reference_statistics(const OpCall& call, std::span<const Tensor> outputs) {
  const int64_t first = call.attrs.as<ShardAttrs>().first_class;
  for (int64_t t = 0; t < call[0].extent(0); ++t) {
    const int64_t classes = call[0].extent(1), label = label_at(call[1], t) - first;
    const RestOfRow rest = rest_of_row(classes, [&](int64_t c) { return at(call[0], t, c); });
    const double row[] = {rest.m, rest.r, label >= 0 && label < classes ? at(call[0], t, label) : -0.0};
    for (size_t k = 0; k < 3; ++k) facets::write_double(outputs[k], t, row[k]);
  }
}

// ---- combine: (m, r, target) of two parts, each [T, 1] --------------------------------------------------------------

void infer_combine(const OpCall& call, OutputMetas& out) {
  for (size_t k = 0; k < 3; ++k) out.add(call[k].dtype(), call[k].sizes());
}
void build_combine(RecipeBuilder& b) {
  const RestNode both = combined(b, {b.in(0), b.in(1)}, {b.in(3), b.in(4)});
  b.out(both.m);
  b.out(both.r);
  b.out(b.in(2) + b.in(5));
}
void reference_combine(const OpCall& call, std::span<const Tensor> outputs) {
  for (int64_t t = 0; t < call[0].extent(0); ++t) {
    const RestOfRow both =
        combined(RestOfRow{at(call[0], t), at(call[1], t)}, RestOfRow{at(call[3], t), at(call[4], t)});
    facets::write_double(outputs[0], t, both.m);
    facets::write_double(outputs[1], t, both.r);
    facets::write_double(outputs[2], t, at(call[2], t) + at(call[5], t));
  }
}

// ---- loss from all statistics: m, r, target, labels -> loss ---------------------------------------------------------

void infer_loss(const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); }
void build_loss(RecipeBuilder& b) {
  const Expr target = b.in(2);
  b.out(where(is_ignored(b, cast(b.in(3), DType::i64)), b.constant(0.0, target.dtype()),
              surprise_of({b.in(0), b.in(1)}, target)));
}
void reference_loss(const OpCall& call, std::span<const Tensor> outputs) {
  for (int64_t t = 0; t < call[0].extent(0); ++t) {
    const RestOfRow rest{at(call[0], t), at(call[1], t)};
    facets::write_double(outputs[0], t, label_at(call[3], t) == kIgnoreLabel ? 0.0 : rest.surprise(at(call[2], t)));
  }
}

// ---- backward: logits [T, C], grad, labels, m, r [T, 1] -> [T, C] ---------------------------------------------------

void infer_backward(const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); }
void build_backward(RecipeBuilder& b) {
  const Expr x = b.in(0), g = cast(b.in(1), x.dtype()), label = cast(b.in(2), DType::i64);
  const RestNode all{cast(b.in(3), x.dtype()), cast(b.in(4), x.dtype())};
  const Expr d = probability_less(b, all, x, is_label(b, label)) * g;
  b.out(where(is_ignored(b, label), b.constant(0.0, x.dtype()), d));
}
void reference_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const int64_t first = call.attrs.as<ShardAttrs>().first_class, classes = call[0].extent(1);
  for (int64_t t = 0; t < call[0].extent(0); ++t) {
    const int64_t label = label_at(call[2], t);
    const RestOfRow all{at(call[3], t), at(call[4], t)};
    for (int64_t c = 0; c < classes; ++c) {
      const double d = all.probability_less(at(call[0], t, c), first + c == label) * at(call[1], t);
      facets::write_double(outputs[0], t * classes + c, label == kIgnoreLabel ? 0.0 : d);
    }
  }
}

// ---- samples --------------------------------------------------------------------------------------------------------

Tensor column(uint64_t seed, int64_t rows, DType dtype, double lo, double hi) {
  return facets::sample_tensor(seed, {rows, 1}, dtype, lo, hi);
}
template <class Make>
std::vector<Sample> samples(Make make) {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Extents& sizes : {Extents{5, 7}, Extents{3, 33}, Extents{2, 1300}, Extents{1, 1}, Extents{0, 4}}) {
      const Tensor labels = column(4, sizes[0], DType::i64, 0, static_cast<double>(2 * sizes[1]));
      if (sizes[0] > 1) facets::write_int64(labels, 1, kIgnoreLabel);
      list.push_back({fmt::format("{}_{}", name_of(dtype), list.size()), make(sizes, dtype, labels),
                      Attrs::of(ShardAttrs{sizes[1] / 2, 2 * sizes[1]})});
    }
  }
  return list;
}

const OpDef kStatistics{.name = "class_statistics",
                        .num_inputs = 2,
                        .num_outputs = 3,
                        .infer = infer_statistics,
                        .reference = reference_statistics,
                        .gradient = {.none = kNoGradient},
                        .check = check_labels,
                        .recipe = {.kind = LoopKind::row,
                                   .build = build_statistics,
                                   .per_row = 0b111 | kRowsOnly,
                                   .params = first_class_param,
                                   .leaf = [](const OpCall&) { return class_leaf(); }},
                        .sharding = [](const OpCall&) { return std::string("#x[aC] #t[a1] -> m[a1] r[a1] y[a1] | |"); },
                        .samples =
                            [] {
                              return samples([](const Extents& sizes, DType dtype, const Tensor& labels) {
                                return std::vector<Tensor>{facets::sample_tensor(3, sizes, dtype, -6, 6), labels};
                              });
                            }};
const OpDef kCombine{
    .name = "class_statistics_combine",
    .num_inputs = 6,
    .num_outputs = 3,
    .infer = infer_combine,
    .reference = reference_combine,
    .gradient = {.none = kNoGradient},
    .recipe = {.build = build_combine},
    .sharding =
        [](const OpCall&) { return std::string("#m[a1] #l[a1] #t[a1] #n[a1] #k[a1] #u[a1] -> x[a1] y[a1] z[a1] | |"); },
    .samples =
        [] {
          return samples([](const Extents& sizes, DType dtype, const Tensor&) {
            const DType d = compute_dtype(dtype);
            std::vector<Tensor> parts;
            for (uint64_t k = 0; k < 6; ++k)
              parts.push_back(column(k, sizes[0], d, k % 3 == 1 ? 0 : -6, k % 3 == 1 ? 40 : 6));
            return parts;
          });
        }};
const OpDef kLoss{.name = "class_loss",
                  .num_inputs = 4,
                  .infer = infer_loss,
                  .reference = reference_loss,
                  .gradient = {.none = kNoGradient},
                  .recipe = {.build = build_loss},
                  .sharding = [](const OpCall&) { return std::string("#m[a1] #r[a1] #t[a1] #i[a1] -> y[a1] | |"); },
                  .samples =
                      [] {
                        return samples([](const Extents& sizes, DType dtype, const Tensor& labels) {
                          const DType d = compute_dtype(dtype);
                          return std::vector<Tensor>{column(1, sizes[0], d, 2, 6), column(2, sizes[0], d, 0, 40),
                                                     column(3, sizes[0], d, -6, 2), labels};
                        });
                      }};
const OpDef kBackward{
    .name = "cross_entropy_shard_backward",
    .num_inputs = 5,
    .infer = infer_backward,
    .reference = reference_backward,
    .gradient = {.none = "gradients of this gradient are not defined"},
    .recipe = {.kind = LoopKind::row, .build = build_backward, .params = first_class_param},
    .sharding = [](const OpCall&) { return std::string("#x[aC] g[a1] #t[a1] #m[a1] #r[a1] -> y[aC] | | lin"); },
    .samples =
        [] {
          return samples([](const Extents& sizes, DType dtype, const Tensor& labels) {
            const DType d = compute_dtype(dtype);
            return std::vector<Tensor>{facets::sample_tensor(3, sizes, dtype, -6, 6), column(5, sizes[0], d, -2, 2),
                                       labels, column(6, sizes[0], d, 6, 9), column(7, sizes[0], d, 0, 40)};
          });
        },
    .tolerance = {.f32 = 3e-5}};

Tensor as_column(const Tensor& t) { return reshape(t, {-1, 1}); }
Tensor as_row(const Tensor& t) { return reshape(t, {-1}); }

}  // namespace

ClassStatistics class_statistics(const Tensor& logits, const Tensor& labels, int64_t first_class, int64_t classes) {
  TUTTI_CHECK(
      logits.ndim() == 2 && is_floating(logits.dtype()) && labels.ndim() == 1 && labels.size(0) == logits.size(0),
      "class_statistics: logits are {}, labels {}; expected floats [T, C] and integers [T]", describe(logits),
      describe(labels));
  const Tensor inputs[] = {logits, as_column(labels)};
  Tensor outputs[3];
  apply(kStatistics, inputs, Attrs::of(ShardAttrs{first_class, classes}), outputs);
  return {as_row(outputs[0]), as_row(outputs[1]), as_row(outputs[2])};
}

ClassStatistics combine(const ClassStatistics& a, const ClassStatistics& b) {
  const Tensor inputs[] = {as_column(a.maximum), as_column(a.rest), as_column(a.target),
                           as_column(b.maximum), as_column(b.rest), as_column(b.target)};
  Tensor outputs[3];
  apply(kCombine, inputs, {}, outputs);
  return {as_row(outputs[0]), as_row(outputs[1]), as_row(outputs[2])};
}

Tensor cross_entropy_of(const ClassStatistics& all, const Tensor& labels) {
  return as_row(
      call_op(kLoss, {}, as_column(all.maximum), as_column(all.rest), as_column(all.target), as_column(labels)));
}

Tensor cross_entropy_shard_backward(const Tensor& logits, const Tensor& grad, const Tensor& labels,
                                    const ClassStatistics& all, int64_t first_class) {
  return call_op(kBackward, Attrs::of(ShardAttrs{first_class}), logits, as_column(grad), as_column(labels),
                 as_column(all.maximum), as_column(all.rest));
}

}  // namespace tutti

TUTTI_OPS(cross_entropy_shard, &::tutti::kStatistics, &::tutti::kCombine, &::tutti::kLoss, &::tutti::kBackward)
