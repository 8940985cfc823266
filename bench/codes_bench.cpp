#include "bench/codes_bench.h"

#include <cmath>
#include <cstring>
#include <functional>

#include "bench/weight_copies.h"
#include "tutti/autograd/tape.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/weight_codes.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/quantized_attention.h"
#include "tutti/ops/reshape.h"

namespace tutti::bench {
namespace {

double relative_error(const Tensor& found, const Tensor& exact) {
  const Tensor a = to_contiguous(found), b = to_contiguous(exact);
  double of_difference = 0, of_all = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = static_cast<double>(a.data<float>()[i]), y = static_cast<double>(b.data<float>()[i]);
    of_difference += (x - y) * (x - y), of_all += y * y;
  }
  return of_all == 0 ? 0 : std::sqrt(of_difference / of_all);
}

bool have_same_bits(const Tensor& a, const Tensor& b) {
  return a.extents() == b.extents() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

struct Kind {
  const char* name;
  Tensor codes, decoded;
  std::function<Tensor(const Tensor& x, const Tensor& codes)> product;
};
std::vector<Kind> kinds_of(const CodesProblem& p) {
  const Tensor w = facets::sample_tensor(1, {p.n, p.k});
  std::vector<Kind> kinds;
  for (const auto& [name, dtype] : {std::pair{"int8", DType::i8}, {"fp8", DType::f8e4m3fn}}) {
    const ScaledWeight coded = nn::coded_rows(w, dtype, name);
    const Tensor scale = coded.scale;
    kinds.push_back({name, coded.codes, nn::decoded(coded),
                     [scale](const Tensor& x, const Tensor& codes) { return scaled_linear(x, {codes, scale}); }});
  }
  const ScaledWeight bytes = nn::coded_rows(w, DType::i8, "int8_weight_only");
  kinds.push_back(
      {"int8_weight_only", bytes.codes, nn::decoded(bytes),
       [scale = bytes.scale](const Tensor& x, const Tensor& codes) { return weight_only_linear(x, {codes, scale}); }});
  const CodedWeight groups = nn::coded_groups(w, 32, "int4_weight_only");
  kinds.push_back({"int4_weight_only", groups.codes, nn::decoded(groups),
                   [scale = groups.scale, minimum = groups.minimum](const Tensor& x, const Tensor& codes) {
                     return weight_only_linear(x, {codes, scale, minimum});
                   }});
  return kinds;
}

// Projections of queries, keys and values and attention over them.
class SelfAttention {
 public:
  SelfAttention(const CodesProblem& p, DType codes)
      : p_(p), codes_(codes), is_fp8_(codes == DType::f8e4m3fn), dim_(p.heads * p.head_dim) {
    for (uint64_t i = 0; i < 3; ++i) {
      const Tensor w = facets::sample_tensor(10 + i, {dim_, dim_}, DType::f32, -0.2, 0.2);
      coded_.push_back(nn::coded_rows(w, is_fp8_ ? codes : DType::i8, "w"));
      decoded_.push_back(nn::decoded(coded_.back()));
    }
    x_scale_ = scale(1.0);
    for (int i = 0; i < 3; ++i) scales_.push_back(scale(7.0));
  }

  Tensor in_codes(const Tensor& x) const {
    CodedTensor heads[3];
    for (size_t i = 0; i < 3; ++i) {
      const Tensor y = scaled_linear(
          x, coded_[i],
          {.x = x_scale_, .x_codes = is_fp8_ ? DType::i8 : codes_, .out = scales_[i], .out_dtype = codes_});
      heads[i] = {reshape(y, {p_.batch, p_.length, p_.heads, p_.head_dim}), scales_[i]};
    }
    return quantized_sdpa(heads[0], heads[1], heads[2]);
  }
  Tensor in_f32(const Tensor& x) const {
    Tensor heads[3];
    for (size_t i = 0; i < 3; ++i)
      heads[i] = reshape(linear(x, decoded_[i]), {p_.batch, p_.length, p_.heads, p_.head_dim});
    return sdpa(heads[0], heads[1], heads[2]);
  }
  Tensor input() const { return facets::sample_tensor(3, {p_.batch * p_.length, dim_}, DType::f32, -1, 1); }

 private:
  // For numbers up to `largest`.
  AffineScale scale(double largest) const {
    if (is_fp8_) return {full({1}, largest / 448)};
    return {full({1}, 2 * largest / 255), full({1}, 128, DType::i32)};
  }

  const CodesProblem& p_;
  const DType codes_;
  const bool is_fp8_;
  const int64_t dim_;
  std::vector<ScaledWeight> coded_;
  std::vector<Tensor> decoded_;
  AffineScale x_scale_;
  std::vector<AffineScale> scales_;
};

}  // namespace

std::vector<CodesRow> run_codes_bench(const CodesProblem& p) {
  const NoGradScope no_grad;
  std::vector<CodesRow> rows;
  for (const Kind& kind : kinds_of(p)) {
    WeightCopies codes(kind.codes, p.small), decoded(kind.decoded, p.small);
    for (const int64_t m : p.rows) {
      const Tensor x = facets::sample_tensor(2, {m, p.k}, DType::f32, -1, 1);
      uint64_t read = 0;
      const std::vector<Timing> times =
          measure_in_turns({[&] { kind.product(x, codes.next()); }, [&] { linear(x, decoded.next()); },
                            [&] { read ^= read_all(codes.next()); }},
                           p.small ? 1 : 1500);
      rows.push_back({.kind = kind.name,
                      .m = m,
                      .time = times[0],
                      .f32 = times[1],
                      .gops = 2e-3 * static_cast<double>(m * p.n * p.k) / times[0].min_us,
                      .read_share = times[2].min_us / times[0].min_us,
                      .error = relative_error(kind.product(x, kind.codes), linear(x, kind.decoded))});
    }
  }
  return rows;
}

std::vector<SelfAttentionRow> run_self_attention_bench(const CodesProblem& p) {
  const NoGradScope no_grad;
  std::vector<SelfAttentionRow> rows;
  for (const auto& [name, dtype] : {std::pair{"int8", DType::u8}, {"fp8", DType::f8e4m3fn}}) {
    const SelfAttention layer(p, dtype);
    const Tensor x = layer.input();
    const auto merged = compile([&](const Tensor& v) { return layer.in_codes(v); });
    const auto apart = compile([&](const Tensor& v) { return layer.in_codes(v); }, {.siblings = false});
    const auto f32 = compile([&](const Tensor& v) { return layer.in_f32(v); });
    const Tensor y = merged(x);
    SelfAttentionRow row{.kind = name};
    row.has_same_bits = have_same_bits(y, apart(x)) && have_same_bits(y, layer.in_codes(x));
    row.error = relative_error(y, f32(x));
    row.kernels = merged.statistics().last.calls + merged.statistics().last.kernels;
    const std::vector<Timing> times =
        measure_in_turns({[&] { merged(x); }, [&] { apart(x); }, [&] { f32(x); }}, p.small ? 1 : 1500);
    row.merged = times[0], row.apart = times[1], row.f32 = times[2];
    rows.push_back(row);
  }
  return rows;
}

}  // namespace tutti::bench
