#include "tutti/ops/attention.h"

#include <atomic>
#include <cmath>

#include "tutti/ops/attention/backward.h"
#include "tutti/ops/attention/forward.h"
#include "tutti/ops/attention/geometry.h"
#include "tutti/ops/attention/nodes.h"
#include "tutti/ops/attention/reference.h"
#include "tutti/ops/attention/samples.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using attention::SdpaAttrs;
using codegen::LoopKind;

extern const OpDef kSdpa, kSdpaBackward, kSdpaMasked, kSdpaMaskedBackward;

std::atomic<int64_t>& block_setting() {
  static std::atomic<int64_t> keys{64};
  return keys;
}

void infer(const OpCall& call, OutputMetas& out) {
  const Tensor& q = call[0];
  out.add(q.dtype(), q.sizes());
  out.add(compute_dtype(q.dtype()), {q.size(0), q.size(1), q.size(2)});
}

void infer_partial(const OpCall& call, OutputMetas& out) {
  const Tensor& q = call[0];
  const DType compute = compute_dtype(q.dtype());
  for (int k = 0; k < 2; ++k) out.add(compute, {q.size(0), q.size(1), q.size(2), 1});
  out.add(compute, q.sizes());
}

void infer_backward(const OpCall& call, OutputMetas& out) {
  const bool partial = call.attrs.as<SdpaAttrs>().partial;
  for (size_t i : {1, 2, 3}) out.add(partial ? compute_dtype(call[i].dtype()) : call[i].dtype(), call[i].sizes());
}

void vjp(const VjpCall& call, std::span<Tensor> grads) {
  TUTTI_CHECK(!call.grads[1].defined(), "sdpa: the statistics output has no gradient");
  if (!call.grads[0].defined()) return;
  std::vector<Tensor> inputs{call.grads[0],   call.inputs[0],  call.inputs[1], call.inputs[2],
                             call.outputs[0], call.outputs[1], call.inputs[3], call.inputs[4]};
  if (call.inputs.size() == 6) {
    TUTTI_CHECK(!call.needs(5),
                "sdpa: the mask wants a gradient, which attention does not give; detach it, or write attention with "
                "matmul and softmax");
    inputs.push_back(call.inputs[5]);
  }
  apply(inputs.size() == 8 ? kSdpaBackward : kSdpaMaskedBackward, inputs, call.attrs, grads.first(3));
}

// Operands of a sharding rule. Heads are divided with the key heads that they share (k), in whole groups (G), so that
// every sum stays on a rank.
struct HeadDims {
  HeadDims(const Tensor& q, const Tensor& k) : query(q.extents()[2] == k.extents()[2] ? "k" : "(kG)") {}
  std::string queries(const char* name) const { return fmt::format("{}[bS{}D]", name, query); }
  std::string rows(const char* name) const { return fmt::format("{}[bS{}]", name, query); }
  std::string classes() const { return query == "k" ? "" : "even{k}"; }
  // A dim of size 1 of the mask is the same for all.
  std::string mask(const Tensor& t) const {
    std::string dims;
    const std::string letters[] = {"b", query, "S", "T"};
    for (size_t d = 0; d < 4; ++d) dims += t.extents()[d] == 1 ? "1" : letters[d];
    return fmt::format("#m[{}]", dims);
  }
  std::string query;
};

std::string sharding_forward(const OpCall& call) {
  const HeadDims h(call[0], call[1]);
  const std::string mask = call.inputs.size() == 6 ? " " + h.mask(call[5]) : "";
  return fmt::format("{} #k[bTkD] #v[bTkD] #f[bS] #e[bS]{} -> {} {} | {} |", h.queries("#q"), mask, h.queries("o"),
                     h.rows("l"), h.classes());
}
std::string sharding_backward(const OpCall& call) {
  const HeadDims h(call[1], call[2]);
  const std::string mask = call.inputs.size() == 9 ? " " + h.mask(call[8]) : "";
  return fmt::format("{} {} #k[bTkD] #v[bTkD] {} {} #f[bS] #e[bS]{} -> {} dk[bTkD] dv[bTkD] | {} |", h.queries("#g"),
                     h.queries("#q"), h.queries("#o"), h.rows("#l"), mask, h.queries("dq"), h.classes());
}

Cost attention_cost(const OpCall& call, size_t q, double products) {
  const attention::Sizes n = attention::sizes_of(call[q], call[q + 1]);
  const double pairs = static_cast<double>(n.B * n.Hq) * static_cast<double>(n.Sq * n.Sk);
  double bytes = 0;
  for (const Tensor& t : call.inputs) bytes += static_cast<double>(t.nbytes());
  return {2 * products * pairs * static_cast<double>(n.D), 2 * bytes};
}

const OpDef kSdpa{.name = "sdpa",
                  .num_inputs = 5,
                  .num_outputs = 2,
                  .infer = infer,
                  .reference = attention::reference,
                  .gradient = {.vjp = vjp, .saves_inputs = 0b11111, .saves_outputs = 0b11},
                  .kernel = attention::kernel,  // matrix products and row recipes in turn on tiles: no single loop nest
                  .sharding = sharding_forward,
                  .recompute = Recompute::costly,
                  .cost = [](const OpCall& call) { return attention_cost(call, 0, 2); },
                  .samples = [] { return attention::samples(kSdpa, false); },
                  .tolerance = {.f32 = 2e-5}};
const OpDef kSdpaBackward{
    .name = "sdpa_backward",
    .num_inputs = 8,
    .num_outputs = 3,
    .infer = infer_backward,
    .reference = attention::reference_backward,
    .gradient = {.none = "gradients of this gradient are not defined; write attention with matmul and softmax"},
    .kernel = attention::kernel_backward,  // as sdpa
    .sharding = sharding_backward,
    .room = attention::room_of_backward,
    .cost = [](const OpCall& call) { return attention_cost(call, 1, 5); },
    .samples = [] { return attention::samples(kSdpa, true); },
    .tolerance = {.f32 = 1e-4}};

const OpDef kSdpaMasked{
    .name = "sdpa_masked",
    .num_inputs = 6,
    .num_outputs = 2,
    .infer = infer,
    .reference = attention::reference,
    .gradient = {.vjp = vjp, .saves_inputs = 0b111111, .saves_outputs = 0b11, .constant_inputs = 0b100000},
    .kernel = attention::kernel,  // as sdpa
    .sharding = sharding_forward,
    .cost = [](const OpCall& call) { return attention_cost(call, 0, 2); },
    .samples = [] { return attention::samples(kSdpaMasked, false); },
    .tolerance = {.f32 = 2e-5}};
const OpDef kSdpaMaskedBackward{
    .name = "sdpa_masked_backward",
    .num_inputs = 9,
    .num_outputs = 3,
    .infer = infer_backward,
    .reference = attention::reference_backward,
    .gradient = {.none = "gradients of this gradient are not defined; write attention with matmul and softmax"},
    .kernel = attention::kernel_backward,  // as sdpa
    .sharding = sharding_backward,
    .room = attention::room_of_backward,
    .cost = [](const OpCall& call) { return attention_cost(call, 1, 5); },
    .samples = [] { return attention::samples(kSdpaMasked, true); },
    .tolerance = {.f32 = 1e-4}};

constexpr const char* kPart = "it is a part of attention over ranks, whose gradient is sdpa_partial_backward";
const OpDef kSdpaPartial{.name = "sdpa_partial",
                         .num_inputs = 5,
                         .num_outputs = 3,
                         .infer = infer_partial,
                         .reference = attention::reference_partial,
                         .gradient = {.none = kPart},
                         .kernel = attention::kernel_partial,  // as sdpa
                         .sharding =
                             [](const OpCall& call) {
                               const HeadDims h(call[0], call[1]);
                               return fmt::format("{} #k[bTkD] #v[bTkD] #f[bS] #e[bS] -> m[bS{}1] l[bS{}1] {} | {} |",
                                                  h.queries("#q"), h.query, h.query, h.queries("o"), h.classes());
                             },
                         .cost = [](const OpCall& call) { return attention_cost(call, 0, 2); },
                         .samples = [] { return attention::samples(kSdpa, false); },
                         .tolerance = {.f32 = 2e-5}};
const OpDef kSdpaNodes{
    .name = "sdpa_combine_nodes",
    .num_inputs = 6,
    .num_outputs = 3,
    .infer = attention::infer_nodes,
    .reference = attention::reference_nodes,
    .gradient = {.none = kPart},
    .recipe = {.kind = LoopKind::row, .build = attention::build_nodes, .per_row = 0b11},
    .sharding =
        [](const OpCall&) {
          return std::string("#m[abc1] #l[abc1] #o[abcD] #n[abc1] #k[abc1] #p[abcD] -> x[abc1] y[abc1] z[abcD] | |");
        },
    .samples = [] { return attention::node_samples(2, {}); }};
const OpDef kSdpaResult{
    .name = "sdpa_result",
    .num_inputs = 3,
    .num_outputs = 2,
    .infer = attention::infer_result,
    .reference = attention::reference_result,
    .gradient = {.none = kPart},
    .recipe = {.kind = LoopKind::row, .build = attention::build_result, .per_row = 0b10},
    .sharding = [](const OpCall&) { return std::string("#m[abc1] #l[abc1] #o[abcD] -> y[abcD] s[abc1] | |"); },
    .samples = [] { return attention::node_samples(1, Attrs::of(attention::ResultAttrs{DType::bf16})); }};

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  TUTTI_CHECK(
      q.ndim() == 4 && k.ndim() == 4 && v.sizes() == k.sizes() && q.size(0) == k.size(0) && q.size(3) == k.size(3),
      "sdpa: q is {}, k {}, v {}; expected q [B, Sq, Hq, D] and k, v [B, Sk, Hkv, D]", q.sizes(), k.sizes(), v.sizes());
  TUTTI_CHECK(is_floating(q.dtype()) && k.dtype() == q.dtype() && v.dtype() == q.dtype(),
              "sdpa: q, k and v must have one float dtype, they are {}, {} and {}", name_of(q.dtype()),
              name_of(k.dtype()), name_of(v.dtype()));
  TUTTI_CHECK(k.extent(2) > 0 && q.extent(2) % k.extent(2) == 0,
              "sdpa: {} query heads cannot share {} key heads evenly", q.size(2), k.size(2));
}

constexpr double kNoBound = 2147483647;

// i32 [B, Sq], by default `unbounded` everywhere.
Tensor key_bound(const Tensor& keys, const Tensor& q, double unbounded, const char* what) {
  if (!keys.defined()) return full_beside(q, {q.size(0), q.size(1)}, unbounded, DType::i32);
  TUTTI_CHECK(keys.ndim() == 2 && keys.size(0) == q.size(0) && keys.size(1) == q.size(1) && is_integral(keys.dtype()),
              "sdpa: {} is {}; expected integers [{}, {}]", what, describe(keys), q.size(0), q.size(1));
  return keys;
}

// The last keys of queries at the end of sequences of these lengths.
Tensor last_of_lengths(const SdpaOptions& options, const Tensor& q) {
  const Tensor& lengths = options.lengths;
  TUTTI_CHECK(lengths.ndim() == 1 && lengths.size(0) == q.size(0) && is_integral(lengths.dtype()),
              "sdpa: lengths is {}; expected integers [{}], the keys of each sequence", describe(lengths), q.size(0));
  const Tensor ends = reshape(cast(lengths, DType::i32), {q.size(0), 1});
  const int64_t Sq = q.extent(1);
  const Tensor steps = options.causal ? reshape(beside(q, arange(-Sq, 0, 1, DType::i32)), {1, Sq})
                                      : full_beside(q, {1, Sq}, -1.0, DType::i32);
  const Tensor last = add(ends, steps);
  return options.last_key.defined() ? minimum(key_bound(options.last_key, q, kNoBound, "last_key"), last) : last;
}

// What an op of attention gets from the options, besides q, k and v.
struct Arguments {
  SdpaAttrs attrs;
  Tensor first, last, mask;  // mask: of the compute dtype, or undefined
};
Arguments arguments_of(const SdpaOptions& options, const Tensor& q, const Tensor& k) {
  const bool has_lengths = options.lengths.defined();
  if (options.window)
    TUTTI_CHECK(
        *options.window >= 0 && (options.causal || has_lengths || options.last_key.defined()),
        "sdpa: a window of {} keys before the last one{}", *options.window,
        *options.window < 0 ? "; expected 0 or more" : " needs what sets the last one: causal, lengths or last_key");
  TUTTI_CHECK(options.score_cap >= 0 && std::isfinite(options.score_cap),
              "sdpa: score_cap is {}; expected a positive number, or 0 for scores without a cap", options.score_cap);
  Arguments a{{.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.extent(3)))),
               .causal = options.causal && !has_lengths,
               .window = options.window.value_or(-1),
               .score_cap = options.score_cap},
              key_bound(options.first_key, q, 0, "first_key"),
              has_lengths ? last_of_lengths(options, q) : key_bound(options.last_key, q, kNoBound, "last_key"),
              {}};
  if (!options.mask.defined()) return a;
  const Tensor& mask = options.mask;
  const auto fits = [&](int64_t dim, const SymInt& size) { return mask.size(dim) == size || mask.size(dim) == 1; };
  TUTTI_CHECK(mask.ndim() == 4 && fits(0, q.size(0)) && fits(1, q.size(2)) && fits(2, q.size(1)) &&
                  mask.size(3) == k.size(1) && (is_floating(mask.dtype()) || mask.dtype() == DType::boolean),
              "sdpa: mask is {}; expected booleans or floats [{} or 1, {} or 1, {} or 1, {}]", describe(mask),
              q.size(0), q.size(2), q.size(1), k.size(1));
  const DType compute = compute_dtype(q.dtype());
  a.mask = mask.dtype() == DType::boolean ? where(mask, full({}, 0.0, compute), full({}, -attention::kInf, compute))
                                          : cast(mask, compute);
  return a;
}

}  // namespace

int64_t key_block() { return block_setting().load(std::memory_order_relaxed); }

KeyBlockScope::KeyBlockScope(int64_t keys) : previous_(key_block()) {
  TUTTI_CHECK(keys > 0, "key block: {} keys; expected at least 1", keys);
  block_setting() = keys;
}
KeyBlockScope::~KeyBlockScope() { block_setting() = previous_; }

SdpaResult sdpa_with_logsumexp(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options) {
  check_operands(q, k, v);
  const Arguments a = arguments_of(options, q, k);
  const Tensor inputs[] = {q, k, v, a.first, a.last, a.mask};
  Tensor outputs[2];
  if (a.mask.defined()) apply(kSdpaMasked, inputs, Attrs::of(a.attrs), outputs);
  else apply(kSdpa, std::span(inputs).first(5), Attrs::of(a.attrs), outputs);
  return {outputs[0], outputs[1]};
}

Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options) {
  return sdpa_with_logsumexp(q, k, v, options).output;
}

SdpaPartial sdpa_partial(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options) {
  check_operands(q, k, v);
  TUTTI_CHECK(!options.mask.defined(),
              "sdpa_partial: a mask of {} was given; chunks of keys take none: hide keys with first_key and last_key",
              options.mask.sizes());
  const Arguments a = arguments_of(options, q, k);
  const Tensor inputs[] = {q, k, v, a.first, a.last};
  Tensor outputs[3];
  apply(kSdpaPartial, inputs, Attrs::of(a.attrs), outputs);
  return {outputs[0], outputs[1], outputs[2]};
}

SdpaPartial combine(const SdpaPartial& a, const SdpaPartial& b) {
  const Tensor inputs[] = {a.maximum, a.sum, a.output, b.maximum, b.sum, b.output};
  Tensor outputs[3];
  apply(kSdpaNodes, inputs, {}, outputs);
  return {outputs[0], outputs[1], outputs[2]};
}

SdpaResult sdpa_of(const SdpaPartial& all, DType dtype) {
  const Tensor inputs[] = {all.maximum, all.sum, all.output};
  Tensor outputs[2];
  apply(kSdpaResult, inputs, Attrs::of(attention::ResultAttrs{dtype}), outputs);
  return {outputs[0], squeeze(outputs[1], -1)};
}

SdpaGradients sdpa_partial_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const SdpaResult& result, const SdpaOptions& options) {
  check_operands(q, k, v);
  Arguments a = arguments_of(options, q, k);
  a.attrs.partial = true;
  const Tensor inputs[] = {grad, q, k, v, result.output, result.logsumexp, a.first, a.last, a.mask};
  Tensor outputs[3];
  if (a.mask.defined()) apply(kSdpaMaskedBackward, inputs, Attrs::of(a.attrs), outputs);
  else apply(kSdpaBackward, std::span(inputs).first(8), Attrs::of(a.attrs), outputs);
  return {outputs[0], outputs[1], outputs[2]};
}

}  // namespace tutti

TUTTI_OPS(attention, &::tutti::kSdpa, &::tutti::kSdpaBackward, &::tutti::kSdpaMasked, &::tutti::kSdpaMaskedBackward,
          &::tutti::kSdpaPartial, &::tutti::kSdpaNodes, &::tutti::kSdpaResult)
