#include "tests/dtensor/support/public_calls.h"

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/ops.h"
#include "tutti/ops/quantized/blocks.h"

namespace tutti::dist {
namespace {

using List = std::vector<Tensor>;

Tensor of(const Extents& sizes, uint64_t seed = 1) { return sample(sizes, DType::f32, seed); }
Tensor positive(const Extents& sizes, uint64_t seed = 1) { return add(abs(sample(sizes, DType::f32, seed)), 1.0); }
Tensor ids(const std::vector<int64_t>& values, const Extents& sizes) {
  return reshape(Tensor::of<int64_t>(values), to_shape(sizes));
}
Tensor i8(const Extents& sizes) { return cast(mul(of(sizes), 4.0), DType::i8); }
Tensor mask(const Extents& sizes) { return gt(of(sizes, 9), 0.0); }

class Calls {
 public:
  using Unary = Tensor (*)(const Tensor&);
  using Binary = Tensor (*)(const Tensor&, const Tensor&);

  template <class Run>
  PublicCall& add_call(std::string name, List operands, Run run) {
    all.push_back({.name = std::move(name), .operands = std::move(operands), .run = [run](const List& t) -> List {
                     if constexpr (std::is_same_v<std::invoke_result_t<Run, const List&>, Tensor>) return {run(t)};
                     else return run(t);
                   }});
    return all.back();
  }
  // What `run` writes is its first operands, which are then its results.
  template <class Run>
  void writing(std::string name, List operands, size_t written, Run run) {
    add_call(std::move(name), std::move(operands), [run, written](const List& t) {
      run(t);
      return List(t.begin(), t.begin() + static_cast<std::ptrdiff_t>(written));
    }).written = written;
  }
  void refused(const char* refusal) { all.back().refusal = refusal; }
  void refused_of_divided(const char* refusal) { all.back().refusal_of_divided = refusal; }
  void unary(const char* name, Unary fn, const Tensor& x) {
    add_call(name, {x}, [fn](const List& t) { return fn(t[0]); });
  }
  void binary(const char* name, Binary fn, const Tensor& a, const Tensor& b) {
    add_call(name, {a, b}, [fn](const List& t) { return fn(t[0], t[1]); });
  }

  std::vector<PublicCall> all;
};

void add_pointwise(Calls& c) {
  const Tensor x = of({4, 6}), y = of({4, 6}, 2), p = positive({4, 6}), unit = truediv(of({4, 6}), 4.0),
               whole = ids({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {4, 3});
  const std::pair<const char*, Calls::Unary> smooth[] = {{"relu", relu},
                                                         {"silu", silu},
                                                         {"abs", abs},
                                                         {"neg", neg},
                                                         {"sign", sign},
                                                         {"ceil", ceil},
                                                         {"floor", floor},
                                                         {"trunc", trunc},
                                                         {"round", round},
                                                         {"exp", exp},
                                                         {"exp2", exp2},
                                                         {"expm1", expm1},
                                                         {"sin", sin},
                                                         {"cos", cos},
                                                         {"tan", tan},
                                                         {"atan", atan},
                                                         {"sinh", sinh},
                                                         {"cosh", cosh},
                                                         {"tanh", tanh},
                                                         {"asinh", asinh},
                                                         {"erf", erf},
                                                         {"sigmoid", sigmoid},
                                                         {"signbit", signbit},
                                                         {"logical_not", logical_not},
                                                         {"isnan", isnan},
                                                         {"isinf", isinf},
                                                         {"zeros_like", zeros_like},
                                                         {"ones_like", ones_like},
                                                         {"clone", clone},
                                                         {"contiguous", contiguous},
                                                         {"t", t}};
  for (const auto& [name, fn] : smooth) c.unary(name, fn, x);
  const std::pair<const char*, Calls::Unary> of_positive[] = {
      {"log", log},   {"log2", log2},   {"log10", log10},           {"log1p", log1p},
      {"sqrt", sqrt}, {"rsqrt", rsqrt}, {"reciprocal", reciprocal}, {"acosh", acosh}};
  for (const auto& [name, fn] : of_positive) c.unary(name, fn, p);
  const std::pair<const char*, Calls::Unary> of_unit[] = {
      {"asin", asin}, {"acos", acos}, {"atanh", atanh}, {"erfinv", erfinv}};
  for (const auto& [name, fn] : of_unit) c.unary(name, fn, unit);
  c.unary("bitwise_not", bitwise_not, whole);
  c.unary("lgamma", lgamma, p);
  const std::pair<const char*, Calls::Binary> of_two[] = {{"add", add},
                                                          {"sub", sub},
                                                          {"mul", mul},
                                                          {"truediv", truediv},
                                                          {"floordiv", floordiv},
                                                          {"truncdiv", truncdiv},
                                                          {"remainder", remainder},
                                                          {"fmod", fmod},
                                                          {"maximum", maximum},
                                                          {"minimum", minimum},
                                                          {"fmax", fmax},
                                                          {"fmin", fmin},
                                                          {"atan2", atan2},
                                                          {"copysign", copysign},
                                                          {"nextafter", nextafter},
                                                          {"eq", eq},
                                                          {"ne", ne},
                                                          {"lt", lt},
                                                          {"le", le},
                                                          {"gt", gt},
                                                          {"ge", ge},
                                                          {"swiglu", swiglu},
                                                          {"expand_as", expand_as}};
  for (const auto& [name, fn] : of_two) c.binary(name, fn, x, y);
  c.binary("pow", pow, p, y);
  const std::pair<const char*, Calls::Binary> of_integers[] = {
      {"bit_and", bit_and}, {"bit_or", bit_or}, {"bit_xor", bit_xor}, {"shl", shl}, {"shr", shr}};
  for (const auto& [name, fn] : of_integers) c.binary(name, fn, whole, remainder(whole, 5));
  c.add_call("gelu", {x}, [](const List& l) { return gelu(l[0]); });
  c.add_call("gelu tanh", {x}, [](const List& l) { return gelu(l[0], GeluForm::tanh); });
  c.add_call("fma", {x, y, p}, [](const List& l) { return fma(l[0], l[1], l[2]); });
  c.add_call("clamp", {x}, [](const List& l) { return clamp(l[0], {.min = -1.0, .max = 1.0}); });
  c.add_call("cast", {x}, [](const List& l) { return cast(l[0], DType::bf16); });
  c.add_call("bitcast", {x}, [](const List& l) { return bitcast(l[0], DType::i32); });
  c.add_call("full_like", {x}, [](const List& l) { return full_like(l[0], 3.0); });
  c.add_call("full_beside", {x}, [](const List& l) { return full_beside(l[0], {3, 5}, 2.0, DType::f32); });
  c.add_call("where", {mask({4, 6}), x, y}, [](const List& l) { return where(l[0], l[1], l[2]); });
  c.add_call("where number", {mask({4, 6}), x},
             [](const List& l) { return List{where(l[0], l[1], 2.0), where(l[0], 2.0, l[1])}; });
  c.add_call("masked_fill", {x, mask({4, 6})}, [](const List& l) { return masked_fill(l[0], l[1], 2.0); });
  c.add_call("dropout", {x}, [](const List& l) { return dropout(l[0], 0.5, random_key("drop")); });
  c.add_call("add_in_order", {x, y, p}, [](const List& l) { return add_in_order(l); });
  c.writing("copy_", {x, y}, 1, [](const List& l) { copy_(l[0], l[1]); });
  c.writing("add_", {x, y}, 1, [](const List& l) { add_(add_(l[0], l[1]), 2.0); });
  c.writing("sub_", {x, y}, 1, [](const List& l) { sub_(sub_(l[0], l[1]), 2.0); });
  c.writing("truediv_", {x, y}, 1, [](const List& l) { truediv_(truediv_(l[0], l[1]), 2.0); });
  c.writing("mul_", {x, y}, 1, [](const List& l) { mul_(mul_(l[0], l[1]), 2.0); });
  c.writing("fill_", {x}, 1, [](const List& l) { fill_(l[0], 2.0); });
  c.writing("zero_", {x}, 1, [](const List& l) { zero_(l[0]); });
}

void add_views(Calls& c) {
  const Tensor x = of({4, 6}), y = of({4, 6}, 2);
  c.add_call("view", {x}, [](const List& l) { return view(l[0], {4, 2, 3}); });
  c.add_call("reshape", {x}, [](const List& l) { return reshape(l[0], {2, 12}); });
  c.add_call("flatten", {x}, [](const List& l) { return flatten(l[0]); });
  c.add_call("unflatten", {x}, [](const List& l) { return unflatten(l[0], 1, {3, 2}); });
  c.add_call("permute", {x}, [](const List& l) { return permute(l[0], {1, 0}); });
  c.add_call("transpose", {x}, [](const List& l) { return transpose(l[0], 0, 1); });
  c.add_call("squeeze", {of({4, 1, 6})}, [](const List& l) { return List{squeeze(l[0]), squeeze(l[0], 1)}; });
  c.add_call("unsqueeze", {x}, [](const List& l) { return unsqueeze(l[0], 1); });
  c.add_call("expand", {of({4, 1})}, [](const List& l) { return expand(l[0], {4, 5}); });
  c.add_call("expand_backward", {x}, [](const List& l) { return expand_backward(l[0], {4, 1}); });
  c.add_call("sum_to", {x}, [](const List& l) { return sum_to(l[0], {1, 6}); });
  c.add_call("slice", {x}, [](const List& l) { return slice(l[0], 0, 1, 4, 2); });
  c.add_call("narrow", {x}, [](const List& l) { return narrow(l[0], 1, 1, 3); });
  c.add_call("select", {x}, [](const List& l) { return select(l[0], 0, 2); });
  c.add_call("split", {x}, [](const List& l) { return split(l[0], 2, 1); });
  c.add_call("split sizes", {x}, [](const List& l) { return split(l[0], std::vector<int64_t>{1, 3}, 0); });
  c.add_call("chunk", {x}, [](const List& l) { return chunk(l[0], 2, 1); });
  c.add_call("slice_backward", {x}, [](const List& l) { return slice_backward(l[0], 0, 9, 1, 2); });
  c.add_call("diagonal", {x}, [](const List& l) { return diagonal(l[0], 1); });
  c.add_call("diagonal_backward", {of({4})}, [](const List& l) { return diagonal_backward(l[0], {4, 6}); });
  c.add_call("unfold", {x}, [](const List& l) { return unfold(l[0], 1, 3, 2); });
  c.add_call("unfold_backward", {of({4, 2, 3})}, [](const List& l) { return unfold_backward(l[0], {4, 6}, 1, 3, 2); });
  c.add_call("flip", {x}, [](const List& l) { return flip(l[0], {1}); });
  c.add_call("tril", {x}, [](const List& l) { return tril(l[0], 1); });
  c.add_call("triu", {x}, [](const List& l) { return triu(l[0], -1); });
  c.add_call("roll", {x}, [](const List& l) { return roll(l[0], 2, 1); });
  c.add_call("pad", {x}, [](const List& l) { return pad(l[0], 1, 1, 2, 3.0); });
  c.add_call("cat", {x, y}, [](const List& l) { return cat(l, 1); });
  c.add_call("stack", {x, y}, [](const List& l) { return stack(l, 1); });
  c.add_call("as_strided", {x}, [](const List& l) { return as_strided(l[0], {3, 2}, {6, 1}, 0); });
  c.add_call("resize_storage_", {x}, [](const List& l) { return resize_storage_(l[0], 0); });
  c.refused("gives a tensor other memory, which a distributed one does not have");
}

void add_reductions(Calls& c) {
  const Tensor x = of({4, 6}), y = positive({4, 6}, 2);
  c.add_call("sum", {x}, [](const List& l) { return List{sum(l[0]), sum(l[0], {.dims = {1}})}; });
  c.add_call("prod", {x}, [](const List& l) { return prod(l[0], {.dims = {1}}); });
  c.add_call("any", {mask({4, 6})}, [](const List& l) { return any(l[0], {.dims = {1}}); });
  c.add_call("all", {mask({4, 6})}, [](const List& l) { return all(l[0]); });
  c.add_call("mean", {x}, [](const List& l) { return List{mean(l[0]), mean(l[0], {.dims = {0}})}; });
  c.add_call("var", {x}, [](const List& l) { return var(l[0], {.dims = {1}}); });
  c.add_call("stddev", {x}, [](const List& l) { return stddev(l[0], {.dims = {0}}); });
  c.add_call("amax", {x}, [](const List& l) { return amax(l[0], {.dims = {1}}); });
  c.add_call("amin", {x}, [](const List& l) { return amin(l[0]); });
  c.add_call("argmax", {x}, [](const List& l) { return argmax(l[0], {.dim = 1}); });
  c.add_call("argmin", {x}, [](const List& l) { return argmin(l[0]); });
  c.add_call("softmax", {x}, [](const List& l) { return softmax(l[0], -1); });
  c.add_call("log_softmax", {x}, [](const List& l) { return log_softmax(l[0], -1); });
  c.add_call("logsumexp", {x}, [](const List& l) { return logsumexp(l[0], 1); });
  c.add_call("cumsum", {x}, [](const List& l) { return cumsum(l[0], 1); });
  c.add_call("cumprod", {x}, [](const List& l) { return cumprod(l[0], 1); });
  c.add_call("cummax", {x}, [](const List& l) { return List{cummax(l[0], 1).first, cummax(l[0], 1).second}; });
  c.add_call("cummin", {x}, [](const List& l) { return List{cummin(l[0], 0).first, cummin(l[0], 0).second}; });
  c.add_call("logcumsumexp", {x}, [](const List& l) { return logcumsumexp(l[0], 1); });
  c.add_call("decayed_cumsum", {x, y}, [](const List& l) { return decayed_cumsum(l[0], l[1], 1); });
  const auto both = [](const SortResult& r) { return List{r.values, r.indices}; };
  c.add_call("sort", {x}, [=](const List& l) { return both(sort(l[0])); });
  c.add_call("argsort", {x}, [](const List& l) { return argsort(l[0]); });
  c.add_call("topk", {x}, [=](const List& l) { return both(topk(l[0], 2)); });
  c.add_call("kthvalue", {x}, [=](const List& l) { return both(kthvalue(l[0], 2, 1)); });
  c.add_call("median", {x}, [](const List& l) { return median(l[0]); });
  c.add_call("median dim", {x}, [=](const List& l) { return both(median(l[0], 1)); });
  c.add_call("nanmedian", {x}, [](const List& l) { return nanmedian(l[0]); });
  c.add_call("nanmedian dim", {x}, [=](const List& l) { return both(nanmedian(l[0], 0)); });
  c.add_call("mode", {x}, [=](const List& l) { return both(mode(l[0], 1)); });
  c.add_call("rms_norm", {x, of({6}, 3)}, [](const List& l) { return rms_norm(l[0], l[1]); });
  c.add_call("rms_norm alone", {x}, [](const List& l) { return rms_norm(l[0]); });
  c.add_call("layer_norm", {x, of({6}, 3), of({6}, 4)}, [](const List& l) { return layer_norm(l[0], l[1], l[2]); });
  c.add_call("layer_norm alone", {x}, [](const List& l) { return layer_norm(l[0]); });
  c.add_call("layer_norm weight", {x, of({6}, 3)}, [](const List& l) { return layer_norm(l[0], l[1]); });
  c.add_call("layer_norm bias", {x, of({6}, 3)}, [](const List& l) { return layer_norm(l[0], {}, l[1]); });
}

void add_products(Calls& c) {
  const Tensor a = of({4, 6}), b = of({6, 8}, 2), w = of({8, 6}, 3);
  c.add_call("matmul", {a, b}, [](const List& l) { return matmul(l[0], l[1]); });
  c.add_call("matmul batch", {of({2, 4, 6}), of({2, 6, 3}, 2)}, [](const List& l) { return matmul(l[0], l[1]); });
  c.add_call("bmm", {of({2, 4, 6}), of({2, 6, 3}, 2)}, [](const List& l) { return bmm(l[0], l[1]); });
  c.add_call("linear", {a, w}, [](const List& l) { return linear(l[0], l[1]); });
  c.add_call("matmul_sum", {a, a, b, of({6, 8}, 5)},
             [](const List& l) { return matmul_sum(std::span(l).first(2), std::span(l).subspan(2)); });
  c.writing("matmul_into", {of({4, 8}), a, b}, 1, [](const List& l) { matmul_into(l[0], l[1], l[2]); });
  c.refused("take to_local() for the part of this rank");  // it is below autograd and wrappers, as matmul_sum_into
  c.writing("matmul_sum_into", {of({4, 8}), a, b}, 1,
            [](const List& l) { matmul_sum_into(l[0], std::span(l).subspan(1, 1), std::span(l).subspan(2)); });
  c.refused("take to_local() for the part of this rank");
  c.add_call("einsum", {a, b},
             [](const List& l) { return List{einsum("ab,bc->ac", l[0], l[1]), einsum("ab->b", l[0])}; });
  c.add_call("int_mm", {i8({4, 6}), i8({6, 8})}, [](const List& l) { return int_mm(l[0], l[1]); });
  const Tensor one = tutti::full({1}, 0.5), u8 = cast(add(i8({4, 6}), 100), DType::u8);
  c.add_call("scaled_linear", {a, i8({8, 6}), of({8}, 3), of({8}, 4)},
             [](const List& l) { return scaled_linear(l[0], {l[1], l[2], l[3]}); });
  c.add_call("scaled_linear of codes", {u8, i8({8, 6}), one, one, cast(one, DType::i32)}, [](const List& l) {
    const AffineScale scale{l[3], l[4]};
    return scaled_linear(l[0], {l[1], l[2]}, {.x = scale, .out = scale});
  });
  c.add_call("weight_only_linear", {a, i8({8, 6}), of({8}, 3)},
             [](const List& l) { return weight_only_linear(l[0], {l[1], l[2]}); });
  c.add_call("weight_only_linear of groups",
             {of({4, 16}), cast(add(i8({8, 8}), 50), DType::u8), of({8, 2}), of({8, 2}, 2)},
             [](const List& l) { return weight_only_linear(l[0], {l[1], l[2], l[3]}); });
  c.add_call("pack_weight", {w}, [](const List& l) { return pack_weight(l[0]); });
  c.add_call("packed_linear", {a, pack_weight(w)}, [](const List& l) { return packed_linear(l[0], l[1], 8); });
  const Tensor blocks = quantized::sample_blocks(5, BlockFormat::q4_1, 8, 64);
  c.add_call("quantized_linear", {of({4, 64}), blocks},
             [](const List& l) { return quantized_linear(l[0], l[1], BlockFormat::q4_1); });
  c.add_call("quantized_grouped_mm", {of({4, 64}), reshape(blocks, {2, 4, 40}), ids({1, 4}, {2})},
             [](const List& l) { return quantized_grouped_mm(l[0], l[1], l[2], BlockFormat::q4_1); });
  c.add_call("quantized_embedding", {blocks, ids({3, 0, 7}, {3})},
             [](const List& l) { return quantized_embedding(l[0], l[1], BlockFormat::q4_1); });
  c.add_call("dequantize", {blocks}, [](const List& l) { return dequantize(l[0], BlockFormat::q4_1); });
  c.add_call("grouped_mm", {a, of({3, 6, 5}, 2), ids({1, 1, 4}, {3})},
             [](const List& l) { return grouped_mm(l[0], l[1], l[2]); });
  c.add_call("grouped_mm equal", {of({3, 4, 6}), of({3, 6, 5}, 2)},
             [](const List& l) { return grouped_mm(l[0], l[1]); });
  c.add_call("grouped_mm positions", {a, of({3, 6, 5}, 2), ids({1, 1, 4}, {3}), ids({3, 0, 1, 2}, {4})},
             [](const List& l) { return grouped_mm(l[0], l[1], l[2], {.positions = l[3], .position_count = 4}); });
  const Tensor expert_ids = ids({0, 2, 1, 0, 2, 1, 2, 0}, {4, 2});
  c.add_call("sort_slots", {expert_ids},
             [](const List& l) { return List{sort_slots(l[0]).slot_of_row, sort_slots(l[0]).row_of_slot}; });
  c.add_call("dispatch_rows", {a, expert_ids}, [](const List& l) { return dispatch_rows(l[0], sort_slots(l[1])); });
  c.add_call("combine_rows", {of({8, 6}), expert_ids, of({4, 2}, 2)},
             [](const List& l) { return combine_rows(l[0], sort_slots(l[1]), l[2]); });
  c.add_call("combine_rows alone", {of({8, 6}), expert_ids},
             [](const List& l) { return combine_rows(l[0], sort_slots(l[1])); });
  const RopeTable angles = rope_table(4, 6, 1e4);
  c.add_call("rope", {of({4, 2, 6}), angles.cos, angles.sin}, [](const List& l) { return rope(l[0], l[1], l[2]); });
}

void add_windows(Calls& c) {
  const Tensor line = of({2, 4, 12}), plane = of({2, 4, 6, 6}), space = of({2, 4, 4, 4, 4}), bias = of({6}, 4);
  c.add_call("conv1d", {line, of({6, 4, 3}, 2), bias},
             [](const List& l) { return List{conv1d(l[0], l[1], l[2]), conv1d(l[0], l[1])}; });
  c.add_call("conv2d", {plane, of({6, 4, 3, 3}, 2), bias}, [](const List& l) { return conv2d(l[0], l[1], l[2]); });
  c.add_call("conv3d", {space, of({6, 4, 2, 2, 2}, 2), bias}, [](const List& l) { return conv3d(l[0], l[1], l[2]); });
  c.add_call("conv_transpose1d", {line, of({4, 6, 3}, 2), bias},
             [](const List& l) { return conv_transpose1d(l[0], l[1], l[2]); });
  c.add_call("conv_transpose2d", {plane, of({4, 6, 2, 2}, 2)},
             [](const List& l) { return conv_transpose2d(l[0], l[1]); });
  c.add_call("conv_transpose3d", {space, of({4, 6, 2, 2, 2}, 2)},
             [](const List& l) { return conv_transpose3d(l[0], l[1]); });
  c.add_call("convolution_input_gradient", {of({2, 6, 10}), of({6, 4, 3}, 2)},
             [](const List& l) { return convolution_input_gradient(l[0], l[1], {12}); });
  c.add_call("convolution_weight_gradient", {of({2, 6, 10}), line},
             [](const List& l) { return convolution_weight_gradient(l[0], l[1], {3}); });
  c.add_call("add_channel_bias", {line, of({4}, 2)},
             [](const List& l) { return add_channel_bias("test", l[0], l[1]); });
  c.add_call("avg_pool1d", {line}, [](const List& l) {
    return avg_pool1d(l[0], {.kernel = {3}, .padding = {1}, .count_include_pad = false});
  });
  c.add_call("avg_pool2d", {plane}, [](const List& l) { return avg_pool2d(l[0], {.kernel = {2}}); });
  c.add_call("avg_pool3d", {space}, [](const List& l) { return avg_pool3d(l[0], {.kernel = {2}}); });
  c.add_call("adaptive_avg_pool1d", {line}, [](const List& l) { return adaptive_avg_pool1d(l[0], {5}); });
  c.add_call("adaptive_avg_pool2d", {plane}, [](const List& l) { return adaptive_avg_pool2d(l[0], {4}); });
  c.add_call("adaptive_avg_pool3d", {space}, [](const List& l) { return adaptive_avg_pool3d(l[0], {3}); });
  const auto both = [](const MaxPoolResult& r) { return List{r.values, r.indices}; };
  c.add_call("max_pool1d", {line}, [](const List& l) { return max_pool1d(l[0], {.kernel = {3}, .padding = {1}}); });
  c.add_call("max_pool2d", {plane}, [](const List& l) { return max_pool2d(l[0], {.kernel = {2}}); });
  c.add_call("max_pool3d", {space}, [](const List& l) { return max_pool3d(l[0], {.kernel = {2}}); });
  c.add_call("max_pool1d_with_indices", {line},
             [=](const List& l) { return both(max_pool1d_with_indices(l[0], {.kernel = {3}})); });
  c.add_call("max_pool2d_with_indices", {plane},
             [=](const List& l) { return both(max_pool2d_with_indices(l[0], {.kernel = {2}})); });
  c.add_call("max_pool3d_with_indices", {space},
             [=](const List& l) { return both(max_pool3d_with_indices(l[0], {.kernel = {2}})); });
  c.add_call("adaptive_max_pool1d", {line}, [](const List& l) { return adaptive_max_pool1d(l[0], {5}); });
  c.add_call("adaptive_max_pool2d", {plane}, [](const List& l) { return adaptive_max_pool2d(l[0], {4}); });
  c.add_call("adaptive_max_pool3d", {space}, [](const List& l) { return adaptive_max_pool3d(l[0], {3}); });
  c.add_call("adaptive_max_pool1d_with_indices", {line},
             [=](const List& l) { return both(adaptive_max_pool1d_with_indices(l[0], {5})); });
  c.add_call("adaptive_max_pool2d_with_indices", {plane},
             [=](const List& l) { return both(adaptive_max_pool2d_with_indices(l[0], {4})); });
  c.add_call("adaptive_max_pool3d_with_indices", {space},
             [=](const List& l) { return both(adaptive_max_pool3d_with_indices(l[0], {3})); });
  c.add_call("max_unpool",
             {of({2, 4, 3}), ids({0, 2, 4, 1, 3, 5, 0, 2, 4, 1, 3, 5, 0, 2, 4, 1, 3, 5, 0, 2, 4, 1, 3, 5}, {2, 4, 3})},
             [](const List& l) { return max_unpool(l[0], l[1], {6}); });
}

void add_lookups(Calls& c) {
  const Tensor table = of({8, 6}), rows = ids({1, 7, 0, 3, 3, 2}, {2, 3}), flat = ids({1, 7, 0, 3, 3, 2}, {6}),
               offsets = ids({0, 2, 2}, {3});
  c.add_call("gather", {table, ids({1, 0, 3, 2, 5, 4, 3, 3, 0, 1, 2, 4}, {2, 6})},
             [](const List& l) { return gather(l[0], 0, l[1]); });
  c.add_call("index_select", {table, flat}, [](const List& l) { return index_select(l[0], 0, l[1]); });
  c.add_call("scatter", {table, ids({1, 0, 3, 2, 5, 4}, {1, 6}), of({1, 6}, 2)},
             [](const List& l) { return scatter(l[0], 0, l[1], l[2]); });
  c.add_call("scatter_add", {table, ids({1, 0, 1, 2, 5, 4}, {1, 6}), of({1, 6}, 2)},
             [](const List& l) { return scatter_add(l[0], 0, l[1], l[2]); });
  c.add_call("embedding", {table, rows}, [](const List& l) { return embedding(l[0], l[1], 3); });
  c.add_call("embedding nothing", {table, ids({}, {0})}, [](const List& l) { return embedding(l[0], l[1]); });
  c.add_call("embedding_backward", {of({2, 3, 6}), rows},
             [](const List& l) { return embedding_backward(l[0], l[1], 8); });
  const auto of_rows = [](const RowGradients& r) { return List{r.rows, r.values, r.count}; };
  c.add_call("embedding_row_gradients", {of({2, 3, 6}), rows},
             [=](const List& l) { return of_rows(embedding_row_gradients(l[0], l[1], 8)); });
  c.add_call("add_row_gradients", {of({2, 3, 6}), rows}, [=](const List& l) {
    const RowGradients uses[] = {embedding_row_gradients(l[0], l[1], 8), embedding_row_gradients(neg(l[0]), l[1], 8)};
    return of_rows(add_row_gradients(uses, 8));
  });
  for (const auto& [name, mode] : {std::pair("sum", BagMode::sum), {"mean", BagMode::mean}, {"max", BagMode::max}}) {
    c.add_call(fmt::format("embedding_bag {}", name), {table, flat, offsets},
               [m = mode](const List& l) { return embedding_bag(l[0], l[1], l[2], {.mode = m, .padding_idx = 3}); });
    c.add_call(fmt::format("embedding_bag of equal bags {}", name), {table, rows},
               [m = mode](const List& l) { return embedding_bag(l[0], l[1], {.mode = m}); });
  }
  c.add_call("pairwise_dots", {of({4, 3, 5})}, [](const List& l) { return pairwise_dots(l[0]); });
  c.add_call("pairwise_dots_backward", {of({4, 3}), of({4, 3, 5}, 2)},
             [](const List& l) { return pairwise_dots_backward(l[0], l[1]); });
  c.add_call("embedding_bag weighted", {table, rows, of({2, 3}, 5)},
             [](const List& l) { return embedding_bag(l[0], l[1], {.per_sample_weights = l[2]}); });
  c.add_call("embedding_bag one", {table, flat, ids({0}, {1})},
             [](const List& l) { return embedding_bag(l[0], l[1], l[2]); });
  c.add_call("embedding_bag_with_entries", {table, flat, offsets}, [](const List& l) {
    const BagResult r = embedding_bag_with_entries(l[0], l[1], l[2], {.mode = BagMode::max});
    return List{r.pooled, r.chosen};
  });
  c.add_call("embedding_bag_backward", {of({3, 6}), flat, offsets},
             [](const List& l) { return embedding_bag_backward(l[0], l[1], l[2], 8); });
  c.add_call("embedding_bag_row_gradients", {of({3, 6}), flat, offsets},
             [=](const List& l) { return of_rows(embedding_bag_row_gradients(l[0], l[1], l[2], 8)); });
  c.add_call("embedding_bag_weights_backward", {of({3, 6}), table, flat, offsets},
             [](const List& l) { return embedding_bag_weights_backward(l[0], l[1], l[2], l[3]); });
  const Tensor borders = ids({0, 2, 2, 3, 6}, {5});
  const auto features = [](const Tensor& indices, const Tensor& offsets, const Tensor& weights = {}) {
    return TableBatch{.indices = indices, .offsets = offsets, .per_sample_weights = weights};
  };
  c.add_call("table_batched_embedding_bags", {table, of({8, 3}, 4), flat, borders, of({6}, 5)}, [=](const List& l) {
    const TableBatchResult r = table_batched_embedding_bags(std::vector{l[0], l[1]}, features(l[2], l[3], l[4]));
    return List{r.values, r.report};
  });
  c.add_call("quantize_rows", {table},
             [](const List& l) { return quantize_rows(l[0], RowQuantization::fused_4bit_rowwise_sbhalf_front); });
  c.add_call("dequantize_rows", {quantize_rows(table, RowQuantization::fused_8bit_rowwise)},
             [](const List& l) { return dequantize_rows(l[0], RowQuantization::fused_8bit_rowwise, 6); });
  c.add_call("quantized_table_batched_embedding_bags",
             {quantize_rows(table, RowQuantization::fused_8bit_rowwise),
              quantize_rows(of({8, 3}, 4), RowQuantization::fused_4bit_rowwise_sbhalf), flat, borders, of({6}, 5)},
             [=](const List& l) {
               const std::vector<QuantizedTable> tables = {{l[0], RowQuantization::fused_8bit_rowwise, 6},
                                                           {l[1], RowQuantization::fused_4bit_rowwise_sbhalf, 3}};
               const TableBatchResult r = quantized_table_batched_embedding_bags(tables, features(l[2], l[3], l[4]));
               return List{r.values, r.report};
             });
  c.add_call("table_batched_weights_backward", {of({2, 9}), table, of({8, 3}, 4), flat, borders}, [=](const List& l) {
    return table_batched_weights_backward(std::vector{l[1], l[2]}, {l[0], features(l[3], l[4])});
  });
  c.add_call("table_batched_row_gradients", {of({2, 9}), flat, borders}, [=](const List& l) {
    return of_rows(table_batched_row_gradients(std::vector{TableUse{l[0], features(l[1], l[2])}}, {0, {6, 3}, 8}));
  });
  c.add_call("nonzero", {table}, [](const List& l) { return nonzero(l[0]); });
  c.add_call("nonzero_static", {table}, [](const List& l) { return nonzero_static(l[0], 9); });
  c.add_call("masked_select", {table, mask({8, 6})}, [](const List& l) { return masked_select(l[0], l[1]); });
}

void add_losses(Calls& c) {
  const Tensor x = of({5, 6}), w = of({8, 6}, 2), labels = ids({1, 7, -100, 3, 2}, {5}), bias = of({8}, 3),
               logits = of({5, 8}, 4);
  const auto good = ids({1, 7, 0, 3, 2}, {5});
  c.add_call("cross_entropy", {logits, labels}, [](const List& l) { return cross_entropy(l[0], l[1]); });
  c.add_call("linear_cross_entropy", {x, w, labels},
             [](const List& l) { return linear_cross_entropy(l[0], l[1], l[2]); });
  using Options = LinearCrossEntropyOptions;
  const auto with = [&](const char* name, List more, auto set) {
    List operands{x, w, labels};
    operands.insert(operands.end(), more.begin(), more.end());
    c.add_call(fmt::format("linear_cross_entropy {}", name), std::move(operands), [set](const List& l) {
      Options o;
      set(o, l);
      return linear_cross_entropy(l[0], l[1], l[2], o);
    });
  };
  with("of rows", {}, [](Options& o, const List&) { o.reduction = LossReduction::none; });
  with("with a bias", {bias}, [](Options& o, const List& l) { o.bias = l[3]; });
  with("with weights of classes", {positive({8})},
       [](Options& o, const List& l) { o.class_weight = l[3].defined() ? contiguous(l[3]) : l[3]; });
  with("with weights of rows", {positive({5})}, [](Options& o, const List& l) { o.row_weight = l[3]; });
  with("smoothed", {}, [](Options& o, const List&) { o.label_smoothing = 0.1, o.z_loss = 1e-3, o.softcap = 5; });
  with("with gradients in forward", {}, [](Options& o, const List&) { o.gradients = LossGradients::in_forward; });
  with("with gradients in forward, summed, with a bias", {bias}, [](Options& o, const List& l) {
    o.gradients = LossGradients::in_forward, o.bias = l[3], o.reduction = LossReduction::sum;
  });
  with("with gradients in forward and weights of rows", {positive({5})},
       [](Options& o, const List& l) { o.gradients = LossGradients::in_forward, o.row_weight = l[3]; });
  c.add_call("linear_cross_entropy of probabilities", {x, w, softmax(of({5, 8}), -1)},
             [](const List& l) { return linear_cross_entropy(l[0], l[1], l[2]); });
  const auto statistics = [](const ClassStatistics& s) { return List{s.maximum, s.rest, s.target}; };
  c.add_call("class_statistics", {logits, good},
             [=](const List& l) { return statistics(class_statistics(l[0], l[1], 0)); });
  c.add_call("cross_entropy_of", {logits, good},
             [](const List& l) { return cross_entropy_of(class_statistics(l[0], l[1], 0), l[1]); });
  c.add_call("cross_entropy_shard_backward", {logits, positive({5}), good}, [](const List& l) {
    return cross_entropy_shard_backward(l[0], l[1], l[2], class_statistics(l[0], l[2], 0), 0);
  });
  c.add_call("combine of classes", {logits, of({5, 8}, 6), good}, [=](const List& l) {
    return statistics(combine(class_statistics(l[0], l[2], 0), class_statistics(l[1], l[2], 8)));
  });
  c.add_call("linear_class_statistics", {x, w, good},
             [=](const List& l) { return statistics(linear_class_statistics(l[0], l[1], l[2], 0)); });
  c.add_call("linear_cross_entropy_shard_backward", {x, w, positive({5}), good}, [](const List& l) {
    const LinearShardGradients g =
        linear_cross_entropy_shard_backward(l[0], l[1], l[2], l[3], linear_class_statistics(l[0], l[1], l[3], 0), 0);
    return List{g.input, g.weight};
  });
}

void add_attention(Calls& c) {
  const Tensor q = of({2, 4, 4, 8}), k = of({2, 4, 2, 8}, 2), v = of({2, 4, 2, 8}, 3);
  const auto with = [&](const char* name, List more, auto set) {
    List operands{q, k, v};
    operands.insert(operands.end(), more.begin(), more.end());
    c.add_call(fmt::format("sdpa{}", name), std::move(operands), [set](const List& l) {
      SdpaOptions o;
      set(o, l);
      return sdpa(l[0], l[1], l[2], o);
    });
  };
  with("", {}, [](SdpaOptions&, const List&) {});
  with(" causal", {}, [](SdpaOptions& o, const List&) { o.causal = true; });
  with(" in a window", {}, [](SdpaOptions& o, const List&) { o.causal = true, o.window = 2; });
  with(" of lengths", {ids({2, 4}, {2})}, [](SdpaOptions& o, const List& l) { o.lengths = l[3]; });
  with(" of documents", {ids({0, 0, 2, 2, 0, 0, 0, 3}, {2, 4})},
       [](SdpaOptions& o, const List& l) { o.causal = true, o.first_key = l[3]; });
  with(" masked", {mask({2, 4, 4, 4})}, [](SdpaOptions& o, const List& l) { o.mask = l[3]; });
  const Tensor coded = cast(mul(q, 20.0), DType::i8), unit = tutti::full({1}, 0.1);
  c.add_call("quantized_sdpa", {coded, coded, coded, unit}, [](const List& l) {
    const AffineScale scale{l[3]};
    return quantized_sdpa({l[0], scale}, {l[1], scale}, {l[2], scale}, {.causal = true});
  });
  c.add_call("quantized_sdpa of lengths", {coded, coded, coded, unit, ids({2, 4}, {2})}, [](const List& l) {
    const AffineScale scale{l[3]};
    return quantized_sdpa({l[0], scale}, {l[1], scale}, {l[2], scale}, {.lengths = l[4], .out = scale});
  });
  const auto of_partial = [](const SdpaPartial& p) { return List{p.maximum, p.sum, p.output}; };
  c.add_call("sdpa_with_logsumexp", {q, k, v}, [](const List& l) {
    const SdpaResult r = sdpa_with_logsumexp(l[0], l[1], l[2]);
    return List{r.output, r.logsumexp};
  });
  c.add_call("sdpa_partial", {q, k, v}, [=](const List& l) { return of_partial(sdpa_partial(l[0], l[1], l[2])); });
  c.add_call("combine of keys", {q, k, v}, [=](const List& l) {
    return of_partial(combine(sdpa_partial(l[0], l[1], l[2]), sdpa_partial(l[0], l[2], l[1])));
  });
  c.add_call("sdpa_of", {q, k, v}, [](const List& l) {
    const SdpaResult r = sdpa_of(sdpa_partial(l[0], l[1], l[2]), DType::f32);
    return List{r.output, r.logsumexp};
  });
  c.add_call("sdpa_partial_backward", {of({2, 4, 4, 8}, 4), q, k, v}, [](const List& l) {
    const SdpaGradients g = sdpa_partial_backward(l[0], l[1], l[2], l[3], sdpa_with_logsumexp(l[1], l[2], l[3]));
    return List{g.q, g.k, g.v};
  });
  const Tensor pages = of({5, 4, 4, 8}, 7), last = ids({0, 1, 2, 3, 3, 2, 1, 0}, {2, 4});
  c.add_call("sdpa_paged", {q, pages, of({5, 4, 4, 8}, 8), ids({3, 1}, {2, 1}), last},
             [](const List& l) { return List{sdpa_paged(l[0], {l[1], l[2], l[3]}, l[4])}; });
  c.writing("write_pages_", {pages, of({3, 4, 8}, 2), ids({0, 7, 19}, {3})}, 1,
            [](const List& l) { write_pages_(l[0], l[1], l[2]); });
  c.refused_of_divided("write into a tensor of another layout");  // ranks may divide the heads only
  const Tensor codes = cast(of({5, 4, 4, 8}, 7), DType::f8e4m3fn), scales = of({5, 4, 4}, 9);
  c.add_call("sdpa_paged of codes", {q, codes, codes, ids({3, 1}, {2, 1}), last, scales, scales},
             [](const List& l) { return List{sdpa_paged(l[0], {l[1], l[2], l[3], l[5], l[6]}, l[4])}; });
  c.writing("write_page_codes_", {codes, scales, of({3, 4, 8}, 2), ids({0, 7, 19}, {3})}, 2,
            [](const List& l) { write_page_codes_(l[0], l[1], l[2], l[3]); });
  c.refused_of_divided("write into a tensor of another layout");  // as above
}

void add_steps(Calls& c) {
  const Tensor w = of({8, 6}), g = of({8, 6}, 2), m = of({8, 6}, 3), v = positive({8, 6}, 4),
               rows = ids({1, 7, 3}, {3});
  c.writing("adamw_step_", {w, m, v, g}, 3,
            [](const List& l) { adamw_step_(l[0], l[3], l[1], l[2], {.lr = 1e-2, .step = 3}); });
  c.writing("adamw_step_ of numbers", {w, m, v, g}, 3, [](const List& l) {
    AdamWNumbers numbers;
    numbers.set({.lr = 1e-2, .step = 3});
    adamw_step_(l[0], l[3], l[1], l[2], numbers, {.lr = 1e-2, .step = 3});
  });
  c.writing("sgd_step_", {w, m, g}, 2,
            [](const List& l) { sgd_step_(l[0], l[2], l[1], {.lr = 1e-2, .momentum = 0.9}); });
  c.writing("sgd_step_ of numbers", {w, m, g}, 2, [](const List& l) {
    SgdNumbers numbers;
    numbers.set({.lr = 1e-2, .momentum = 0.9});
    sgd_step_(l[0], l[2], l[1], numbers, {.lr = 1e-2, .momentum = 0.9});
  });
  const auto gradients = [](const Tensor& of_rows, const Tensor& at) {
    return embedding_row_gradients(of_rows, at, 8);
  };
  c.writing("sgd_rows_step_", {w, of({3, 6}, 5), rows}, 1,
            [=](const List& l) { sgd_rows_step_(l[0], gradients(l[1], l[2]), {.lr = 1e-2}); });
  c.refused_of_divided("no row of its sharding rule");
  c.writing("adagrad_rows_step_", {w, positive({8}), of({3, 6}, 5), rows}, 2,
            [=](const List& l) { adagrad_rows_step_(l[0], l[1], gradients(l[2], l[3]), {.lr = 1e-2}); });
  c.refused_of_divided("no row of its sharding rule");
  c.writing("adamw_rows_step_", {w, m, v, of({3, 6}, 5), rows}, 3,
            [=](const List& l) { adamw_rows_step_(l[0], l[1], l[2], gradients(l[3], l[4]), {.lr = 1e-2, .step = 3}); });
  c.refused_of_divided("no row of its sharding rule");
  c.writing("table_batched_step_",
            {w, positive({8}), of({2, 9}, 5), ids({1, 7, 0, 3, 3, 2}, {6}), ids({0, 2, 2, 3, 6}, {5})}, 2,
            [=](const List& l) {
              const TableUse use{l[2], {.indices = l[3], .offsets = l[4]}};
              table_batched_step_(l[0], {.first = l[1]}, std::vector{use}, {0, {6, 3}, 8}, {.lr = 1e-2});
            });
  c.refused_of_divided("no row of its sharding rule");
}

}  // namespace

const std::vector<PublicCall>& public_calls() {
  static const auto& calls = *new Calls([] {
    Calls c;
    add_pointwise(c), add_views(c), add_reductions(c), add_products(c), add_windows(c), add_lookups(c), add_losses(c),
        add_attention(c), add_steps(c);
    return c;
  }());
  return calls.all;
}

}  // namespace tutti::dist
