#include "tutti/ops/rope.h"

#include <cmath>

#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

extern const OpDef kRope, kRotate;

struct RopeAttrs {
  int64_t inverse;  // turn the other way: the gradient
  static constexpr auto fields() { return field_list(field::rule<&RopeAttrs::inverse>("inverse")); }
};

void infer(const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); }

// One half of the result: a * cos +- b * sin, with operands of one shape [T, heads, H/2].
void build_half(RecipeBuilder& b) {
  const Expr c = b.in(2), s = b.in(3);
  const Expr x = cast(b.in(0), c.dtype()), y = cast(b.in(1), c.dtype());
  const Expr xc = x * c, ys = y * s;
  b.out(b.call.attrs.as<RopeAttrs>().inverse ? xc + ys : xc - ys);
}

Tensor half(const Tensor& x, int which) {
  const Extents& e = x.extents();
  const int64_t h = e[2] / 2;
  return x.view_as({e[0], e[1], h}, x.strides(), x.offset() + which * h * x.strides()[2]);
}

// Both halves are pointwise calls that write into views of the output.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &x = call[0], &y = outputs[0];
  const int64_t T = x.extents()[0], h = x.extents()[2] / 2;
  const auto per_token = [&](const Tensor& t) {
    return t.view_as({T, 1, h}, {t.strides()[0], 0, t.strides()[1]}, t.offset());
  };
  const Tensor cos = per_token(call[1]), sin = per_token(call[2]);
  const int64_t inverse = call.attrs.as<RopeAttrs>().inverse;
  for (int which = 0; which < 2; ++which) {
    const Tensor inputs[] = {half(x, which), half(x, 1 - which), cos, sin, half(y, which)};
    Tensor out[1];
    apply(kRotate, inputs, Attrs::of(RopeAttrs{which == 0 ? inverse : 1 - inverse}), out);
  }
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& x = call[0];
  const int64_t T = x.extents()[0], heads = x.extents()[1], h = x.extents()[2] / 2;
  const auto at = [&](int64_t t, int64_t k, int64_t i) {
    return facets::read_double(x, t * x.strides()[0] + k * x.strides()[1] + i * x.strides()[2]);
  };
  const double sign = call.attrs.as<RopeAttrs>().inverse ? -1 : 1;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t k = 0; k < heads; ++k) {
      for (int64_t i = 0; i < h; ++i) {
        const double c = facets::read_double(call[1], t * call[1].strides()[0] + i * call[1].strides()[1]);
        const double s = sign * facets::read_double(call[2], t * call[2].strides()[0] + i * call[2].strides()[1]);
        facets::write_double(outputs[0], (t * heads + k) * 2 * h + i, at(t, k, i) * c - at(t, k, i + h) * s);
        facets::write_double(outputs[0], (t * heads + k) * 2 * h + i + h, at(t, k, i + h) * c + at(t, k, i) * s);
      }
    }
  }
}

void vjp(const VjpCall& call, std::span<Tensor> grads) {
  if (!call.grads[0].defined() || !call.needs(0)) return;
  const Tensor inputs[] = {call.grads[0], call.inputs[1], call.inputs[2]};
  grads[0] = apply1(kRope, inputs, Attrs::of(RopeAttrs{1 - call.attrs.as<RopeAttrs>().inverse}));
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Extents& sizes : {Extents{5, 3, 8}, Extents{1, 1, 2}, Extents{33, 2, 64}, Extents{0, 2, 4}}) {
      list.push_back({fmt::format("{}_{}", name_of(dtype), list.size()),
                      {facets::sample_tensor(1, sizes, dtype),
                       facets::sample_tensor(2, {sizes[0], sizes[2] / 2}, compute_dtype(dtype)),
                       facets::sample_tensor(3, {sizes[0], sizes[2] / 2}, compute_dtype(dtype))},
                      Attrs::of(RopeAttrs{static_cast<int64_t>(list.size() % 2)})});
    }
  }
  return list;
}

// Writes input 4; a private step of rope.
void infer_rotate(const OpCall& call, OutputMetas& out) { out.add(call[4].dtype(), call[4].sizes()); }
void reference_rotate(const OpCall& call, std::span<const Tensor> outputs) {
  const double sign = call.attrs.as<RopeAttrs>().inverse ? 1 : -1;
  facets::for_each_element(outputs[0].extents(), call.inputs, [&](int64_t, const int64_t* at) {
    const auto in = [&](size_t i) { return facets::read_double(call[i], at[i]); };
    facets::write_double(outputs[0], at[4], in(0) * in(2) + sign * in(1) * in(3));
  });
}
std::vector<Sample> rotate_samples() {
  std::vector<Sample> list =
      facets::pointwise_samples(5, std::array{DType::f32, DType::f64}, -2, 2, Attrs::of(RopeAttrs{1}));
  std::erase_if(list, [](const Sample& s) { return s.name.starts_with("broadcast"); });
  return list;
}

const OpDef kRope{.name = "rope",
                  .num_inputs = 3,
                  .infer = infer,
                  .reference = reference,
                  .gradient = {.vjp = vjp, .saves_inputs = 0b110, .constant_inputs = 0b110},
                  .kernel = kernel,  // two calls of the recipe below on the halves of the last dim
                  .sharding = [](const OpCall&) { return std::string("x[tkH] #c[tI] #s[tI] -> y[tkH] | | lin"); },
                  .recompute = Recompute::costly,
                  .samples = samples};
const OpDef kRotate{.name = "rope_half_",
                    .num_inputs = 5,
                    .writes = {4, -1, -1, -1},
                    .infer = infer_rotate,
                    .reference = reference_rotate,
                    .gradient = {.none = "writes in place; rope has the gradient"},
                    .recipe = {.build = build_half},
                    .sharding = [](const OpCall& call) { return facets::pointwise_sharding(call, "|", 0b11111); },
                    .samples = rotate_samples};

}  // namespace

RopeTable rope_table(int64_t positions, int64_t head_dim, double theta) {
  TUTTI_CHECK(head_dim > 0 && head_dim % 2 == 0, "rope_table: head_dim is {}; it must be even and positive", head_dim);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i)
    frequencies.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  return rope_table(positions, frequencies);
}

RopeTable rope_table(int64_t positions, std::span<const double> frequencies, double factor) {
  TUTTI_CHECK(positions >= 0, "rope_table: {} positions; expected 0 or more", positions);
  const int64_t half = std::ssize(frequencies);
  RopeTable table{Tensor::empty({positions, half}), Tensor::empty({positions, half})};
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
      table.cos.data<float>()[p * half + i] = static_cast<float>(std::cos(angle) * factor);
      table.sin.data<float>()[p * half + i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
  return table;
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  TUTTI_CHECK(x.ndim() == 3 && is_floating(x.dtype()) && remainder(x.size(2), 2) == 0,
              "rope: x must be float [tokens, heads, even head_dim], got {}", describe(x));
  const Shape expected{x.size(0), floordiv(x.size(2), 2)};
  TUTTI_CHECK(cos.sizes() == expected && sin.sizes() == expected, "rope: cos is {} and sin {}; expected {} for x {}",
              cos.sizes(), sin.sizes(), expected, x.sizes());
  const Tensor inputs[] = {x, cos, sin};
  return apply1(kRope, inputs, Attrs::of(RopeAttrs{0}));
}

}  // namespace tutti

TUTTI_OPS(rope, &::tutti::kRope, &::tutti::kRotate)
