#include "tutti/ops/dropout.h"

#include <cmath>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/philox_words.h"

namespace tutti {
namespace {

struct DropoutAttrs {
  RandomKey key;
  double p;

  // Words below it drop their element.
  int64_t threshold() const { return std::llround(p * 0x1p32); }
  double scale() const { return p == 1.0 ? 0.0 : 1.0 / (1.0 - p); }
  static constexpr auto fields() {
    return field_list(field::random_key<&DropoutAttrs::key>("key"), field::number<&DropoutAttrs::p>("p"));
  }
};

const DropoutAttrs& attrs_of(const OpCall& call) { return call.attrs.as<DropoutAttrs>(); }

void build_dropout(RecipeBuilder& b) {
  const DType dtype = compute_dtype(b.output_dtypes[0]);
  const Expr word = facets::random_word(b, facets::global_index(b, attrs_of(b.call).key));
  const Expr dropped = apply_scalar(ScalarOp::lt, word, b.param(facets::kKeyParams, DType::i64));
  b.out(where(dropped, b.constant(0.0, dtype), b.in(0) * b.param(facets::kKeyParams + 1, dtype)));
}

void dropout_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const DropoutAttrs& a = attrs_of(call);
  facets::for_each_element(call[0].extents(), call.inputs, [&](int64_t i, const int64_t* at) {
    const bool dropped = facets::random_word(a.key, a.key.index_of(i)) < a.threshold();
    facets::write_double(outputs[0], i, dropped ? 0.0 : facets::read_double(call[0], at[0]) * a.scale());
  });
}

const OpDef kDropout{
    .name = "dropout",
    .num_inputs = 1,
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .reference = dropout_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const DropoutAttrs& a = c.attrs.as<DropoutAttrs>();
                       grads[0] = dropout(c.grads[0], a.p, a.key);
                     }},
    .recipe = {.build = build_dropout,
               .params =
                   [](const OpCall& call, codegen::ParamValue* params) {
                     facets::write_key(attrs_of(call).key, params);
                     params[facets::kKeyParams].i = attrs_of(call).threshold();
                     params[facets::kKeyParams + 1].f = attrs_of(call).scale();
                     return facets::kKeyParams + 2;
                   },
               .variant = [](const OpCall& call) { return facets::key_variant(attrs_of(call).key); }},
    .sharding = [](const OpCall& call) { return facets::pointwise_sharding(call, "| lin"); },
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          DropoutAttrs a = attrs_of(call);
          a.key = part_of(a.key, call[0].extents(), part.sizes, part.offsets);
          return Attrs::of(a);
        },
    .samples =
        [] {
          const DType dtypes[] = {DType::f32, DType::bf16, DType::f64};
          std::vector<Sample> samples =
              facets::pointwise_samples(1, dtypes, -2.0, 2.0, Attrs::of(DropoutAttrs{{.key = 77, .step = 3}, 0.3}));
          samples.push_back({"keep_all", {facets::sample_tensor(1, {9})}, Attrs::of(DropoutAttrs{{.key = 1}, 0.0})});
          samples.push_back({"drop_all", {facets::sample_tensor(2, {9})}, Attrs::of(DropoutAttrs{{.key = 1}, 1.0})});
          return samples;
        },
};

}  // namespace

Tensor dropout(const Tensor& x, double p, const RandomKey& key) {
  TUTTI_CHECK(p >= 0.0 && p <= 1.0, "dropout: the probability is {}; it must lie in [0, 1]", p);
  TUTTI_CHECK(is_floating(x.dtype()), "dropout: {} is not of a float dtype; cast it", describe(x));
  return call_op(kDropout, Attrs::of(DropoutAttrs{key, p}), x);
}

Tensor dropout(const Tensor& x, double p) { return dropout(x, p, next_random_key()); }

}  // namespace tutti

TUTTI_OPS(dropout, &kDropout)
