#include "tutti/ops/quantized_attention.h"

#include <cmath>
#include <limits>

#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/coded_attention.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/scaled/scales.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using codegen::is_code;

struct QuantizedSdpaAttrs {
  double scale;
  bool causal;
  DType dtype;
  static constexpr auto fields() {
    return field_list(field::number<&QuantizedSdpaAttrs::scale>("scale"),
                      field::number<&QuantizedSdpaAttrs::causal>("causal"),
                      field::output_dtype<&QuantizedSdpaAttrs::dtype>("dtype"));
  }
};
const QuantizedSdpaAttrs& attrs_of(const OpCall& call) { return call.attrs.as<QuantizedSdpaAttrs>(); }

// The inputs: codes, then the scale and the zero point of each of q, k, v, the probabilities and the result.
enum Input : size_t { kQ, kK, kV, kScales, kProbabilities = kScales + 6, kResult = kScales + 8, kLengths = 13, kMask };
constexpr int kInputs = kMask + 1;

DType probability_codes(DType codes) { return codes == DType::f8e4m3fn ? codes : DType::u8; }
float probability_scale(const OpCall& call) {
  const float otherwise = call[kQ].dtype() == DType::f8e4m3fn ? 1.0F / codegen::kLargestE4m3 : 1.0F / 255.0F;
  return scaled::number_of(call[kProbabilities], otherwise);
}

void infer(const OpCall& call, OutputMetas& out) { out.add(attrs_of(call).dtype, call[kQ].sizes()); }

void check_data(const OpCall& call) {
  constexpr const char* kNames[] = {"q", "k", "v", "the probabilities", "the result"};
  const DType codes = call[kQ].dtype();
  const DType dtypes[] = {codes, codes, codes, probability_codes(codes), attrs_of(call).dtype};
  for (size_t i = 0; i < 5; ++i) {
    scaled::check_positive(call.op.name, call, kScales + 2 * i, kNames[i]);
    scaled::check_within(call.op.name, call, kScales + 2 * i + 1, dtypes[i], kNames[i]);
  }
  const Tensor& lengths = call[kLengths];
  for (int64_t b = 0; b < lengths.numel(); ++b) {
    const int64_t length = facets::read_int64(lengths, b * lengths.strides()[0]);
    TUTTI_CHECK(length >= 0 && length <= call[kK].extents()[1],
                "quantized_sdpa: sequence {} has {} valid keys; there are {}", b, length, call[kK].extents()[1]);
  }
}

bool has_dense_heads(const Tensor& t) { return t.extents()[3] <= 1 || t.strides()[3] == 1; }

codegen::CodedHeads heads_of(const OpCall& call, size_t i, const Tensor& t) {
  return {.data = static_cast<const uint8_t*>(t.raw_data()),
          .batch_stride = t.strides()[0],
          .position_stride = t.strides()[1],
          .head_stride = t.strides()[2],
          .scale = scaled::number_of(call[kScales + 2 * i]),
          .zero_point = scaled::integer_of(call[kScales + 2 * i + 1])};
}

// A kernel and not a recipe: products on tiles, with the softmax between them.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  KernelTrace::note_extern(call.op, [&] {
    return fmt::format("{} codes, {}", name_of(call[kQ].dtype()), name_of(without_dots(codegen::cpu_target())));
  });
  Tensor heads[3];
  for (size_t i = 0; i < 3; ++i) heads[i] = has_dense_heads(call[i]) ? call[i] : to_contiguous(call[i]);
  const Tensor lengths = to_contiguous(call[kLengths]);
  codegen::CodedAttention a{.codes = heads[0].dtype(),
                            .B = heads[0].extents()[0],
                            .Sq = heads[0].extents()[1],
                            .Sk = heads[1].extents()[1],
                            .Hq = heads[0].extents()[2],
                            .Hkv = heads[1].extents()[2],
                            .D = heads[0].extents()[3],
                            .q = heads_of(call, 0, heads[0]),
                            .k = heads_of(call, 1, heads[1]),
                            .v = heads_of(call, 2, heads[2]),
                            .softmax_scale = static_cast<float>(attrs_of(call).scale),
                            .causal = attrs_of(call).causal,
                            .lengths = lengths.numel() == 0 ? nullptr : lengths.data<int32_t>(),
                            .p_scale = probability_scale(call),
                            .p_zero_point = scaled::integer_of(call[kProbabilities + 1]),
                            .y = outputs[0].raw_data(),
                            .y_dtype = outputs[0].dtype(),
                            .y_scale = scaled::number_of(call[kResult]),
                            .y_zero_point = scaled::integer_of(call[kResult + 1])};
  const Tensor& mask = call[kMask];
  if (mask.extents()[3] > 0) {
    a.mask = mask.raw_data();
    a.mask_dtype = mask.dtype();
    for (size_t d = 0; d < 4; ++d) a.mask_strides[d] = mask.extents()[d] == 1 ? 0 : mask.strides()[d];
  }
  codegen::coded_attention(a, ThreadPool::current());
}

// ---- the definition in plain loops, with exponentials in double precision

class Definition {
 public:
  explicit Definition(const OpCall& call) : call_(call) {}

  void run(const Tensor& y) const {
    for (int64_t b = 0; b < y.extents()[0]; ++b)
      for (int64_t s = 0; s < y.extents()[1]; ++s)
        for (int64_t h = 0; h < y.extents()[2]; ++h) run_query(b, s, h, y);
  }

 private:
  double at(size_t input, int64_t b, int64_t s, int64_t h, int64_t d) const {
    const Extents& st = call_[input].strides();
    const double code = facets::read_double(call_[input], b * st[0] + s * st[1] + h * st[2] + d * st[3]);
    return code - scaled::integer_of(call_[kScales + 2 * input + 1]);
  }
  double scale_of(size_t i) const { return static_cast<double>(scaled::number_of(call_[kScales + 2 * i])); }
  double rounded(double x, DType codes, int32_t zero_point) const {
    if (codes == DType::f8e4m3fn)
      return static_cast<double>(to_float(to_float8_e4m3fn(
          std::isnan(x) ? static_cast<float>(x) : std::clamp(static_cast<float>(x), -448.0F, 448.0F))));
    const double lowest = codes == DType::u8 ? 0 : -128;
    return std::isnan(x) ? lowest : std::clamp(std::nearbyint(x) + zero_point, lowest, lowest + 255);
  }
  bool sees(int64_t b, int64_t s, int64_t h, int64_t t, double* bias) const {
    const Tensor &lengths = call_[kLengths], &mask = call_[kMask];
    const int64_t length =
        lengths.numel() == 0 ? call_[kK].extents()[1] : facets::read_int64(lengths, b * lengths.strides()[0]);
    *bias = 0;
    if (t >= length || (attrs_of(call_).causal && t > s + length - call_[kQ].extents()[1])) return false;
    const Extents &e = mask.extents(), &st = mask.strides();
    if (e[3] == 0) return true;
    const double value = facets::read_double(mask, (e[0] == 1 ? 0 : b * st[0]) + (e[1] == 1 ? 0 : h * st[1]) +
                                                       (e[2] == 1 ? 0 : s * st[2]) + (e[3] == 1 ? 0 : t * st[3]));
    if (mask.dtype() == DType::boolean) return value != 0;
    *bias = value;
    return value != -std::numeric_limits<double>::infinity();
  }

  void run_query(int64_t b, int64_t s, int64_t h, const Tensor& y) const {
    const int64_t Sk = call_[kK].extents()[1], D = y.extents()[3], kv = h / (y.extents()[2] / call_[kK].extents()[2]);
    std::vector<double> p(static_cast<size_t>(Sk), 0);
    std::vector<bool> is_seen(p.size());
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t t = 0; t < p.size(); ++t) {
      double bias, total = 0;
      const auto key = static_cast<int64_t>(t);
      is_seen[t] = sees(b, s, h, key, &bias);
      for (int64_t d = 0; d < D; ++d) total += at(kQ, b, s, h, d) * at(kK, b, key, kv, d);
      p[t] = total * scale_of(kQ) * scale_of(kK) * attrs_of(call_).scale + bias;
      if (is_seen[t]) largest = std::max(largest, p[t]);
    }
    for (size_t t = 0; t < p.size(); ++t) sum += p[t] = is_seen[t] ? std::exp(p[t] - largest) : 0;
    const double p_scale = static_cast<double>(probability_scale(call_));
    const int32_t p_zero = scaled::integer_of(call_[kProbabilities + 1]),
                  y_zero = scaled::integer_of(call_[kResult + 1]);
    const DType p_codes = probability_codes(call_[kQ].dtype());
    for (int64_t d = 0; d < D; ++d) {
      double total = 0;
      for (size_t t = 0; t < p.size(); ++t) {
        if (!is_seen[t]) continue;
        const double code = rounded(p[t] / sum / p_scale, p_codes, p_zero);
        total += (code - p_zero) * at(kV, b, static_cast<int64_t>(t), kv, d);
      }
      const double value = total * p_scale * scale_of(kV);
      const Tensor& y_scale = call_[kResult];
      const int64_t place = ((b * y.extents()[1] + s) * y.extents()[2] + h) * D + d;
      facets::write_double(y, place,
                           y_scale.numel() == 0
                               ? value
                               : rounded(value / static_cast<double>(scaled::number_of(y_scale)), y.dtype(), y_zero));
    }
  }

  const OpCall& call_;
};

// Heads are divided with the key heads that they share, in whole groups.
std::string sharding(const OpCall& call) {
  const bool is_even = call[kQ].extents()[2] == call[kK].extents()[2];
  const char* query = is_even ? "k" : "(kG)";
  std::string inputs = fmt::format("#q[bS{}D] #k[bTkD] #v[bTkD]", query);
  for (int i = 0; i < 10; ++i)
    inputs += fmt::format(" #s{}[{}]", i, call[kScales + static_cast<size_t>(i)].numel() == 1 ? "1" : "E");
  std::string mask;
  const std::string letters[] = {"b", query, "S", "T"};
  const Extents& e = call[kMask].extents();
  for (size_t d = 0; d < 4; ++d) mask += e[3] == 0 ? "E" : e[d] == 1 ? "1" : letters[d];
  return fmt::format("{} #l[{}] #m[{}] -> y[bS{}D] | {} |", inputs, call[kLengths].numel() == 0 ? "E" : "b", mask,
                     query, is_even ? "" : "even{k}");
}

Cost cost(const OpCall& call) {
  const Extents &q = call[kQ].extents(), &k = call[kK].extents();
  return {4 * static_cast<double>(q[0] * q[1] * q[2] * q[3]) * static_cast<double>(k[1]),
          static_cast<double>(call[kQ].nbytes() + call[kK].nbytes() + call[kV].nbytes()) +
              static_cast<double>(q[0] * q[1] * q[2] * q[3] * itemsize(attrs_of(call).dtype))};
}

// The unpacked keys and values of a head, and the scores of a block of queries, on each thread.
int64_t room(const OpCall& call, int64_t threads) {
  const Extents& k = call[kK].extents();
  const int64_t element = call[kQ].dtype() == DType::f8e4m3fn ? 4 : 2, rounded = (k[3] + 15) / 16 * 16;
  return threads * (2 * (k[1] + 16) * rounded * element + 12 * (k[1] + 64) * (4 + element));
}

Tensor no_mask() { return Tensor::empty({0, 0, 0, 0}, DType::f32); }

struct SampleCase {
  const char* name;
  DType codes, y;
  int64_t B, Sq, Sk, Hq, Hkv, D;
  bool causal, has_lengths;
  int mask;  // 0: none, 1: booleans of each query and key, 2: numbers of each key
};

std::vector<Sample> samples() {
  using enum DType;
  std::vector<Sample> all;
  for (const SampleCase& c : {SampleCase{"square", i8, f32, 2, 7, 7, 4, 4, 16, false, false, 0},
                              {"grouped", u8, f32, 1, 5, 70, 4, 2, 9, true, false, 0},
                              {"lengths", i8, bf16, 3, 1, 20, 2, 1, 8, true, true, 0},
                              {"mask", u8, f32, 2, 3, 6, 2, 2, 20, false, false, 1},
                              {"added", i8, f32, 1, 14, 33, 2, 1, 5, false, false, 2},
                              {"fp8", f8e4m3fn, f32, 2, 4, 67, 2, 1, 17, false, false, 0},
                              {"no_keys", i8, f32, 1, 2, 0, 1, 1, 4, false, false, 0},
                              {"no_queries", u8, u8, 1, 0, 3, 1, 1, 4, false, false, 0}}) {
    const bool is_u8 = c.codes == u8, is_fp8 = c.codes == f8e4m3fn;
    const auto codes = [&](uint64_t seed, int64_t length, int64_t heads) {
      return facets::sample_tensor(seed, {c.B, length, heads, c.D}, c.codes,
                                   is_u8    ? 0
                                   : is_fp8 ? -4
                                            : -128,
                                   is_u8    ? 256
                                   : is_fp8 ? 4
                                            : 128);
    };
    Sample sample{c.name, {}, Attrs::of(QuantizedSdpaAttrs{1 / std::sqrt(static_cast<double>(c.D)), c.causal, c.y})};
    sample.inputs = {codes(1, c.Sq, c.Hq), codes(2, c.Sk, c.Hkv), codes(3, c.Sk, c.Hkv)};
    const double scale = is_fp8 ? 0.3 : 0.01;
    for (uint64_t i = 0; i < 3; ++i) {
      sample.inputs.push_back(facets::sample_tensor(4 + i, {1}, f32, scale, 2 * scale));
      sample.inputs.push_back(is_u8 ? facets::sample_tensor(7 + i, {1}, i32, 110, 140) : scaled::nothing(i32));
    }
    sample.inputs.push_back(scaled::nothing(f32));
    sample.inputs.push_back(scaled::nothing(i32));
    sample.inputs.push_back(is_code(c.y) ? facets::sample_tensor(10, {1}, f32, 0.01, 0.02) : scaled::nothing(f32));
    sample.inputs.push_back(scaled::nothing(i32));
    sample.inputs.push_back(c.has_lengths ? facets::sample_tensor(11, {c.B}, i32, 1, 20) : scaled::nothing(i32));
    sample.inputs.push_back(c.mask == 0   ? no_mask()
                            : c.mask == 1 ? facets::sample_tensor(12, {c.B, 1, c.Sq, c.Sk}, boolean, 0, 2)
                                          : facets::sample_tensor(13, {1, c.Hq, 1, c.Sk}));
    all.push_back(std::move(sample));
  }
  return all;
}

const OpDef kQuantizedSdpa{
    .name = "quantized_sdpa",
    .num_inputs = kInputs,
    .infer = infer,
    .reference = [](const OpCall& call, std::span<const Tensor> outputs) { Definition(call).run(outputs[0]); },
    .gradient = {.none = "q, k, v and the probabilities are rounded to 8 bits; use sdpa() with numbers"},
    .check = check_data,
    .kernel = kernel,
    .sharding = sharding,
    .recompute = Recompute::costly,
    .room = room,
    .cost = cost,
    .samples = samples,
    // A probability at the middle between two codes may be rounded to either of them.
    .tolerance = {.f32 = 1e-2}};

void check_heads(const CodedTensor& q, const CodedTensor& k, const CodedTensor& v) {
  const auto is_4d = [](const Tensor& t) { return t.defined() && t.ndim() == 4; };
  TUTTI_CHECK(is_4d(q.codes) && is_4d(k.codes) && is_4d(v.codes) && v.codes.sizes() == k.codes.sizes() &&
                  q.codes.size(0) == k.codes.size(0) && q.codes.size(3) == k.codes.size(3),
              "quantized_sdpa: q is {}, k {}, v {}; expected q [B, Sq, Hq, D] and k, v [B, Sk, Hkv, D]",
              describe(q.codes), describe(k.codes), describe(v.codes));
  TUTTI_CHECK(is_code(q.codes.dtype()) && k.codes.dtype() == q.codes.dtype() && v.codes.dtype() == q.codes.dtype(),
              "quantized_sdpa: q, k and v are {}, {} and {}; expected one of i8, u8 and f8e4m3fn",
              name_of(q.codes.dtype()), name_of(k.codes.dtype()), name_of(v.codes.dtype()));
  TUTTI_CHECK(k.codes.extent(2) > 0 && q.codes.extent(2) % k.codes.extent(2) == 0,
              "quantized_sdpa: {} query heads cannot share {} key heads evenly", q.codes.size(2), k.codes.size(2));
  constexpr int64_t kMostElements = 32768;
  TUTTI_CHECK(q.codes.extent(3) <= kMostElements, "quantized_sdpa: heads of {} elements; expected at most {}",
              q.codes.size(3), kMostElements);
}

void check_masks(const Tensor& q, const Tensor& k, const QuantizedSdpaOptions& options) {
  const Tensor &lengths = options.lengths, &mask = options.mask;
  TUTTI_CHECK(
      !lengths.defined() || (lengths.ndim() == 1 && lengths.size(0) == q.size(0) && is_integral(lengths.dtype())),
      "quantized_sdpa: lengths is {}; expected integers [{}], the keys of each sequence", describe(lengths), q.size(0));
  const auto fits = [&](int64_t dim, const SymInt& size) { return mask.size(dim) == size || mask.size(dim) == 1; };
  TUTTI_CHECK(
      !mask.defined() || (mask.ndim() == 4 && fits(0, q.size(0)) && fits(1, q.size(2)) && fits(2, q.size(1)) &&
                          mask.size(3) == k.size(1) && (mask.dtype() == DType::f32 || mask.dtype() == DType::boolean)),
      "quantized_sdpa: mask is {}; expected booleans or f32 [{} or 1, {} or 1, {} or 1, {}]", describe(mask), q.size(0),
      q.size(2), q.size(1), k.size(1));
}

}  // namespace

Tensor quantized_sdpa(const CodedTensor& q, const CodedTensor& k, const CodedTensor& v,
                      const QuantizedSdpaOptions& options) {
  using namespace scaled;
  constexpr const char* kName = "quantized_sdpa";
  check_heads(q, k, v);
  check_masks(q.codes, k.codes, options);
  const DType codes = q.codes.dtype();
  const bool makes_codes = options.out.defined();
  const DType dtype = options.out_dtype.value_or(makes_codes ? codes : DType::f32);
  TUTTI_CHECK(makes_codes ? is_code(dtype) : dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
              "quantized_sdpa: a result of {} {} a scale; expected {}", name_of(dtype),
              makes_codes ? "with" : "without", makes_codes ? "i8, u8 or f8e4m3fn" : "f32, bf16 or f16");
  std::vector<Tensor> inputs{q.codes, k.codes, v.codes};
  const auto add = [&](const AffineScale& scale, const char* what, DType of, bool is_needed) {
    if (is_needed || scale.defined()) check_scale(kName, scale.scale, what, 1);
    check_zero_point(kName, scale, what, of);
    inputs.push_back(flat(scale.scale, DType::f32, q.codes));
    inputs.push_back(flat(scale.zero_point, DType::i32, q.codes));
  };
  add(q.scale, "q", codes, true);
  add(k.scale, "k", codes, true);
  add(v.scale, "v", codes, true);
  add(options.probabilities, "the probabilities", probability_codes(codes), false);
  add(options.out, "the result", dtype, false);
  inputs.push_back(options.lengths.defined() ? cast(options.lengths, DType::i32)
                                             : beside(q.codes, nothing(DType::i32)));
  inputs.push_back(options.mask.defined() ? options.mask : beside(q.codes, no_mask()));
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.codes.extent(3))));
  return apply1(kQuantizedSdpa, inputs, Attrs::of(QuantizedSdpaAttrs{scale, options.causal, dtype}));
}

}  // namespace tutti

TUTTI_OPS(quantized_attention, &::tutti::kQuantizedSdpa)
