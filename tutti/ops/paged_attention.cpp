#include "tutti/ops/paged_attention.h"

#include <cmath>

#include "tutti/codegen/codes/row_codes.h"
#include "tutti/core/error.h"
#include "tutti/ops/attention/forward.h"
#include "tutti/ops/attention/geometry.h"
#include "tutti/ops/attention/reference.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

using attention::SdpaAttrs;

constexpr const char* kNoGradient = "it serves generation; train with sdpa, whose bits are the same";

extern const OpDef kSdpaPaged, kSdpaPagedCodes;

// ---- attention over pages -------------------------------------------------------------------------------------------

void infer(const OpCall& call, OutputMetas& out) {
  const Tensor& q = call[0];
  out.add(q.dtype(), q.sizes());
  out.add(compute_dtype(q.dtype()), {q.size(0), q.size(1), q.size(2)});
}

int64_t read(const Tensor& t, int64_t row, int64_t column) {
  return facets::read_int64(t, row * t.strides()[0] + column * t.strides()[1]);
}

void check_pages(const OpCall& call) {
  const Tensor &last_key = call[4], &table = call[5];
  const int64_t B = table.extent(0), W = table.extent(1), P = call[1].extent(0), N = call[1].extent(2);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t s = 0; s < last_key.extent(1); ++s)
      TUTTI_CHECK(read(last_key, b, s) < W * N,
                  "sdpa_paged: the last key of query {} of sequence {} is {}; its {} pages of {} keys hold {}", s, b,
                  read(last_key, b, s), W, N, W * N);
    for (int64_t w = 0; w < W; ++w)
      TUTTI_CHECK(read(table, b, w) < P, "sdpa_paged: page {} of sequence {} is {}; there are {} pages", w, b,
                  read(table, b, w), P);
  }
}

// The numbers in the pages of one sequence after another, as [B, W * N, Hkv, D].
Tensor in_order(const Tensor& pages, const Tensor* scales, const Tensor& table) {
  const Extents& e = pages.extents();
  const int64_t B = table.extent(0), W = table.extent(1), Hkv = e[1], N = e[2], D = e[3];
  const Tensor keys = zeros({B, W * N, Hkv, D}, scales == nullptr ? pages.dtype() : DType::f32);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t key = 0; key < W * N; ++key) {
      const int64_t page = read(table, b, key / N);
      for (int64_t at = 0; page >= 0 && at < Hkv * D; ++at) {
        const auto offset_in = [&](const Tensor& t) {
          const Extents& st = t.strides();
          return page * st[0] + at / D * st[1] + key % N * st[2];
        };
        double number = facets::read_double(pages, offset_in(pages) + at % D * pages.strides()[3]);
        if (scales != nullptr) number *= facets::read_double(*scales, offset_in(*scales));
        facets::write_double(keys, (b * W * N + key) * Hkv * D + at, number);
      }
    }
  }
  return keys;
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const auto numbers = [&](size_t i) {
    return in_order(call[i], call.inputs.size() > 6 ? &call[i + 5] : nullptr, call[5]);
  };
  const Tensor inputs[] = {call[0], numbers(1), numbers(2), call[3], call[4]};
  SdpaAttrs attrs = call.attrs.as<SdpaAttrs>();
  attrs.paged = false;
  attention::reference({call.op, inputs, Attrs::of(attrs)}, outputs);
}

std::string sharding(const OpCall& call) {
  const char* query = call[0].extents()[2] == call[1].extents()[1] ? "k" : "(kG)";
  return fmt::format("#q[bS{0}D] #k[PkND] #v[PkND] #f[bS] #e[bS] #t[bW]{2} -> o[bS{0}D] l[bS{0}] | {1} |", query,
                     query[0] == 'k' ? "" : "even{k}", call.inputs.size() > 6 ? " #c[PkN] #d[PkN]" : "");
}

// Pages of `code`, or of numbers of each dtype of queries where it is f64.
std::vector<Sample> samples_of(DType code) {
  const bool coded = code != DType::f64;
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, coded ? DType::f16 : DType::f64, DType::bf16}) {
    struct Case {
      const char* name;
      int64_t B, Sq, Hq, Hkv, D, W, window;
    };
    for (const Case& c : {Case{"decode", 3, 1, 4, 2, 16, 10, -1}, Case{"chunk", 2, 37, 2, 2, 8, 5, -1},
                          Case{"window", 1, 20, 2, 1, 8, 9, 30}, Case{"one", 1, 1, 1, 1, 1, 1, -1},
                          Case{"no_queries", 1, 0, 2, 1, 4, 1, -1}, Case{"no_pages", 1, 2, 2, 1, 4, 0, -1}}) {
      constexpr int64_t N = 16;
      const int64_t P = c.B * c.W + 1;
      const Tensor table = Tensor::empty({c.B, c.W}, DType::i32), first = Tensor::empty({c.B, c.Sq}, DType::i32),
                   last = Tensor::empty({c.B, c.Sq}, DType::i32);
      for (int64_t i = 0; i < table.numel(); ++i) table.data<int32_t>()[i] = static_cast<int32_t>(P - 1 - i);
      for (int64_t i = 0; i < last.numel(); ++i) {
        first.data<int32_t>()[i] = 0;
        const int64_t beyond = std::max<int64_t>(c.W * N - c.Sq - 3, 0) + i % c.Sq;
        last.data<int32_t>()[i] = static_cast<int32_t>(c.W == 0 ? -1 : beyond);
      }
      if (c.window >= 0) table.data<int32_t>()[0] = -1;
      const auto pages = [&](uint64_t seed) {
        const Extents sizes{P, c.Hkv, N, c.D};
        return coded ? facets::sample_tensor(seed, sizes, code, -8, 8) : facets::sample_tensor(seed, sizes, dtype);
      };
      Sample sample{fmt::format("{}_{}", c.name, name_of(dtype)),
                    {facets::sample_tensor(1, {c.B, c.Sq, c.Hq, c.D}, dtype), pages(2), pages(3), first, last, table},
                    Attrs::of(SdpaAttrs{
                        .scale = 1 / std::sqrt(double(c.D)), .causal = false, .window = c.window, .paged = true})};
      for (uint64_t seed = 4; coded && seed < 6; ++seed)
        sample.inputs.push_back(facets::sample_tensor(seed, {P, c.Hkv, N}, DType::f32, 0.01, 0.25));
      if (coded) sample.name += fmt::format("_{}", name_of(code));
      list.push_back(std::move(sample));
    }
  }
  return list;
}

std::vector<Sample> samples_of_codes() {
  std::vector<Sample> list = samples_of(DType::i8);
  for (Sample& sample : samples_of(DType::f8e4m3fn)) list.push_back(std::move(sample));
  return list;
}

Cost cost(const OpCall& call) {
  const attention::Sizes n = attention::forward_sizes(call);
  const auto keys = static_cast<double>(n.B * n.Sk), D = static_cast<double>(n.D);
  const double row_bytes =
      D * static_cast<double>(itemsize(call[1].dtype())) + (call.inputs.size() > 6 ? sizeof(float) : 0);
  return {4 * keys * D * static_cast<double>(n.Hq * n.Sq), 2 * keys * static_cast<double>(n.Hkv) * row_bytes};
}

const OpDef kSdpaPaged{.name = "sdpa_paged",
                       .num_inputs = 6,
                       .num_outputs = 2,
                       .infer = infer,
                       .reference = reference,
                       .gradient = {.none = kNoGradient},
                       .check = check_pages,
                       .kernel = attention::kernel,  // as sdpa
                       .sharding = sharding,
                       .cost = cost,
                       .samples = [] { return samples_of(DType::f64); },
                       .tolerance = {.f32 = 2e-5}};

// Keys and values as codes; inputs 6 and 7 are their scales.
const OpDef kSdpaPagedCodes{.name = "sdpa_paged_codes",
                            .num_inputs = 8,
                            .num_outputs = 2,
                            .infer = infer,
                            .reference = reference,
                            .gradient = {.none = kNoGradient},
                            .check = check_pages,
                            .kernel = attention::kernel,  // as sdpa
                            .sharding = sharding,
                            .cost = cost,
                            .samples = samples_of_codes,
                            .tolerance = {.f32 = 2e-5}};

void check_codes(const Tensor& q, const KeyPages& pages) {
  TUTTI_CHECK(
      codegen::has_row_codes(q.dtype()) && codegen::is_row_code(pages.keys.dtype()) &&
          pages.values.dtype() == pages.keys.dtype(),
      "sdpa_paged: q is {}, keys and values with scales are {} and {}; expected q of f32, bf16 or f16 and codes "
      "of one dtype, i8 or f8e4m3fn",
      name_of(q.dtype()), name_of(pages.keys.dtype()), name_of(pages.values.dtype()));
  const Tensor& k = pages.keys;
  for (const Tensor* scales : {&pages.key_scales, &pages.value_scales})
    TUTTI_CHECK(scales->defined() && scales->dtype() == DType::f32 && scales->ndim() == 3 &&
                    scales->size(0) == k.size(0) && scales->size(1) == k.size(1) && scales->size(2) == k.size(2),
                "sdpa_paged: scales of {} are {}; expected f32 [{}, {}, {}]",
                scales == &pages.key_scales ? "keys" : "values", describe(*scales), k.size(0), k.size(1), k.size(2));
}

void check_operands(const Tensor& q, const KeyPages& pages, const Tensor& last_key, const PagedSdpaOptions& options) {
  const Tensor &k = pages.keys, &v = pages.values, &table = pages.table;
  TUTTI_CHECK(q.ndim() == 4 && k.ndim() == 4 && v.sizes() == k.sizes() && q.size(3) == k.size(3),
              "sdpa_paged: q is {}, pages of keys {}, of values {}; expected q [B, Sq, Hq, D] and pages [P, Hkv, N, D]",
              q.sizes(), k.sizes(), v.sizes());
  if (pages.holds_codes()) check_codes(q, pages);
  else
    TUTTI_CHECK(is_floating(q.dtype()) && k.dtype() == q.dtype() && v.dtype() == q.dtype(),
                "sdpa_paged: q, keys and values must have one float dtype, they are {}, {} and {}; give codes their "
                "scales",
                name_of(q.dtype()), name_of(k.dtype()), name_of(v.dtype()));
  TUTTI_CHECK(k.extent(1) > 0 && q.extent(2) % k.extent(1) == 0 && k.extent(2) > 0,
              "sdpa_paged: {} query heads cannot share {} key heads in pages of {} keys evenly", q.size(2), k.size(1),
              k.size(2));
  TUTTI_CHECK(table.ndim() == 2 && table.size(0) == q.size(0) && is_integral(table.dtype()),
              "sdpa_paged: the table is {}; expected integers [{}, pages]", describe(table), q.size(0));
  const auto fits = [&](const Tensor& t) {
    return t.ndim() == 2 && t.size(0) == q.size(0) && t.size(1) == q.size(1) && is_integral(t.dtype());
  };
  TUTTI_CHECK(fits(last_key), "sdpa_paged: last_key is {}; expected integers [{}, {}]", describe(last_key), q.size(0),
              q.size(1));
  TUTTI_CHECK(!options.first_key.defined() || fits(options.first_key),
              "sdpa_paged: first_key is {}; expected integers [{}, {}]", describe(options.first_key), q.size(0),
              q.size(1));
  TUTTI_CHECK(options.score_cap >= 0 && std::isfinite(options.score_cap),
              "sdpa_paged: score_cap is {}; expected a positive number, or 0 for scores without a cap",
              options.score_cap);
  TUTTI_CHECK(!options.window || *options.window >= 0,
              "sdpa_paged: a window of {} keys before the last one; expected 0 or more", *options.window);
}

}  // namespace

Tensor sdpa_paged(const Tensor& q, const KeyPages& pages, const Tensor& last_key, const PagedSdpaOptions& options) {
  check_operands(q, pages, last_key, options);
  const Tensor first =
      options.first_key.defined() ? options.first_key : full_beside(q, {q.size(0), q.size(1)}, 0.0, DType::i32);
  const SdpaAttrs attrs{.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.extent(3)))),
                        .causal = false,
                        .window = options.window.value_or(-1),
                        .score_cap = options.score_cap,
                        .paged = true};
  const Tensor inputs[] = {q,        pages.keys,  pages.values,     first,
                           last_key, pages.table, pages.key_scales, pages.value_scales};
  Tensor outputs[2];
  if (pages.holds_codes()) apply(kSdpaPagedCodes, inputs, Attrs::of(attrs), outputs);
  else apply(kSdpaPaged, std::span(inputs).first(6), Attrs::of(attrs), outputs);
  return outputs[0];
}

}  // namespace tutti

TUTTI_OPS(paged_attention, &::tutti::kSdpaPaged, &::tutti::kSdpaPagedCodes)
