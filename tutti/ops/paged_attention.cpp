#include "tutti/ops/paged_attention.h"

#include <cmath>
#include <cstring>

#include "tutti/core/error.h"
#include "tutti/ops/attention/forward.h"
#include "tutti/ops/attention/geometry.h"
#include "tutti/ops/attention/reference.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using attention::SdpaAttrs;

constexpr const char* kNoGradient = "it serves generation; train with sdpa, whose bits are the same";

extern const OpDef kSdpaPaged;

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

// The pages of one sequence after another, as [B, W * N, Hkv, D].
Tensor in_order(const Tensor& pages, const Tensor& table) {
  const Extents& e = pages.extents();
  const int64_t B = table.extent(0), W = table.extent(1), Hkv = e[1], N = e[2], D = e[3];
  const Tensor keys = zeros({B, W * N, Hkv, D}, pages.dtype());
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t key = 0; key < W * N; ++key) {
      const int64_t page = read(table, b, key / N);
      for (int64_t at = 0; page >= 0 && at < Hkv * D; ++at) {
        const Extents& st = pages.strides();
        facets::write_double(
            keys, (b * W * N + key) * Hkv * D + at,
            facets::read_double(pages, page * st[0] + at / D * st[1] + key % N * st[2] + at % D * st[3]));
      }
    }
  }
  return keys;
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor inputs[] = {call[0], in_order(call[1], call[5]), in_order(call[2], call[5]), call[3], call[4]};
  SdpaAttrs attrs = call.attrs.as<SdpaAttrs>();
  attrs.paged = false;
  attention::reference({call.op, inputs, Attrs::of(attrs)}, outputs);
}

std::string sharding(const OpCall& call) {
  const char* query = call[0].extents()[2] == call[1].extents()[1] ? "k" : "(kG)";
  return fmt::format("#q[bS{0}D] #k[PkND] #v[PkND] #f[bS] #e[bS] #t[bW] -> o[bS{0}D] l[bS{0}] | {1} |", query,
                     query[0] == 'k' ? "" : "even{k}");
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
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
      list.push_back({fmt::format("{}_{}", c.name, name_of(dtype)),
                      {facets::sample_tensor(1, {c.B, c.Sq, c.Hq, c.D}, dtype),
                       facets::sample_tensor(2, {P, c.Hkv, N, c.D}, dtype),
                       facets::sample_tensor(3, {P, c.Hkv, N, c.D}, dtype), first, last, table},
                      Attrs::of(SdpaAttrs{
                          .scale = 1 / std::sqrt(double(c.D)), .causal = false, .window = c.window, .paged = true})});
    }
  }
  return list;
}

Cost cost(const OpCall& call) {
  const attention::Sizes n = attention::forward_sizes(call);
  const double keys = static_cast<double>(n.B * n.Sk * n.D);
  return {4 * keys * static_cast<double>(n.Hq * n.Sq),
          2 * keys * static_cast<double>(n.Hkv) * static_cast<double>(itemsize(call[1].dtype()))};
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
                       .samples = samples,
                       .tolerance = {.f32 = 2e-5}};

// ---- writing pages --------------------------------------------------------------------------------------------------

void check_slots(const OpCall& call) {
  const Tensor &pages = call[0], &slots = call[2];
  const int64_t places = pages.extent(0) * pages.extent(2);
  for (int64_t t = 0; t < slots.extent(0); ++t) {
    const int64_t slot = facets::read_int64(slots, t * slots.strides()[0]);
    TUTTI_CHECK(slot >= -1 && slot < places, "write_pages_: slot {} of row {}; {} pages of {} keys have slots 0 to {}",
                slot, t, pages.extent(0), pages.extent(2), places - 1);
  }
}

// The row of D elements of head h in the slot.
char* row_of(const Tensor& pages, int64_t slot, int64_t h) {
  const Extents &e = pages.extents(), &st = pages.strides();
  return static_cast<char*>(pages.raw_data()) +
         (slot / e[2] * st[0] + h * st[1] + slot % e[2] * st[2]) * itemsize(pages.dtype());
}

void write_rows(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &rows = call[1], &slots = call[2];
  const int64_t size = itemsize(rows.dtype()), D = rows.extent(2), in_page = outputs[0].strides()[3];
  const Extents& st = rows.strides();
  for (int64_t t = 0; t < rows.extent(0); ++t) {
    const int64_t slot = facets::read_int64(slots, t * slots.strides()[0]);
    for (int64_t h = 0; slot >= 0 && h < rows.extent(1); ++h) {
      char* to = row_of(outputs[0], slot, h);
      const char* from = static_cast<const char*>(rows.raw_data()) + (t * st[0] + h * st[1]) * size;
      for (int64_t d = 0; d < D; ++d)
        std::memcpy(to + d * in_page * size, from + d * st[2] * size, static_cast<size_t>(size));
    }
  }
}

void write_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &rows = call[1], &slots = call[2];
  const Extents& st = rows.strides();
  const int64_t size = itemsize(rows.dtype()), H = rows.extent(1), D = rows.extent(2);
  if (rows.numel() == 0) return;
  if (st[2] != 1 || outputs[0].strides()[3] != 1) return write_rows(call, outputs);
  ThreadPool::current().parallel_for(rows.extent(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = facets::read_int64(slots, t * slots.strides()[0]);
      for (int64_t h = 0; slot >= 0 && h < H; ++h)
        std::memcpy(row_of(outputs[0], slot, h),
                    static_cast<const char*>(rows.raw_data()) + (t * st[0] + h * st[1]) * size,
                    static_cast<size_t>(D * size));
    }
  });
}

std::vector<Sample> write_samples() {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const int64_t T : {0, 1, 5}) {
      const Tensor slots = Tensor::empty({T}, DType::i64);
      for (int64_t t = 0; t < T; ++t) slots.data<int64_t>()[t] = t == 2 ? -1 : 11 - 2 * t;
      list.push_back(
          {fmt::format("{}_rows_{}", T, name_of(dtype)),
           {facets::sample_tensor(1, {3, 2, 4, 6}, dtype), facets::sample_tensor(2, {T, 2, 6}, dtype), slots},
           {}});
    }
  }
  return list;
}

const OpDef kWritePages{
    .name = "write_pages_",
    .num_inputs = 3,
    .writes = {0, -1, -1, -1},
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .reference = write_rows,
    .gradient = {.none = kNoGradient},
    .check = check_slots,
    .kernel = write_kernel,  // places that data name: no loop nest
    .sharding = [](const OpCall&) { return std::string("#p[PkND] #r[TkD] #s[T] -> o[PkND] | |"); },
    .samples = write_samples,
    .tolerance = {.f32 = 0, .f64 = 0}};

void check_operands(const Tensor& q, const KeyPages& pages, const Tensor& last_key, const PagedSdpaOptions& options) {
  const auto& [k, v, table] = pages;
  TUTTI_CHECK(q.ndim() == 4 && k.ndim() == 4 && v.sizes() == k.sizes() && q.size(3) == k.size(3),
              "sdpa_paged: q is {}, pages of keys {}, of values {}; expected q [B, Sq, Hq, D] and pages [P, Hkv, N, D]",
              q.sizes(), k.sizes(), v.sizes());
  TUTTI_CHECK(is_floating(q.dtype()) && k.dtype() == q.dtype() && v.dtype() == q.dtype(),
              "sdpa_paged: q, keys and values must have one float dtype, they are {}, {} and {}", name_of(q.dtype()),
              name_of(k.dtype()), name_of(v.dtype()));
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
  const Tensor inputs[] = {q, pages.keys, pages.values, first, last_key, pages.table};
  Tensor outputs[2];
  apply(kSdpaPaged, inputs, Attrs::of(attrs), outputs);
  return outputs[0];
}

void write_pages_(const Tensor& pages, const Tensor& rows, const Tensor& slots) {
  TUTTI_CHECK(pages.ndim() == 4 && rows.ndim() == 3 && rows.size(1) == pages.size(1) && rows.size(2) == pages.size(3) &&
                  rows.dtype() == pages.dtype(),
              "write_pages_: rows are {}, pages {}; expected rows [T, Hkv, D] of pages [P, Hkv, N, D] of one dtype",
              describe(rows), describe(pages));
  TUTTI_CHECK(slots.ndim() == 1 && slots.size(0) == rows.size(0) && is_integral(slots.dtype()),
              "write_pages_: slots are {}; expected integers [{}]", describe(slots), rows.size(0));
  const Tensor inputs[] = {pages, rows, slots};
  Tensor outputs[1];
  apply(kWritePages, inputs, {}, outputs);
}

}  // namespace tutti

TUTTI_OPS(paged_attention, &::tutti::kSdpaPaged, &::tutti::kWritePages)
