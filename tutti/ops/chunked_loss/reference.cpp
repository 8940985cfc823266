#include "tutti/ops/chunked_loss/reference.h"

#include <cmath>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/sum_of_others.h"
#include "tutti/ops/softmax_rows/reference.h"

namespace tutti::chunked_loss {
namespace {

double at(const Tensor& t, int64_t i, int64_t j = 0) {
  return facets::read_double(t, i * t.strides()[0] + (t.ndim() > 1 ? j * t.strides()[1] : 0));
}
int64_t label_at(const OpCall& call, int64_t row) {
  return facets::read_int64(call[kLabels], row * call[kLabels].strides()[0]);
}

struct Row {
  std::vector<double> x;  // logits, after the softcap
  RestOfRow rest;
  double mixed = -0.0, target = -0.0;
};

double mix_at(const OpCall& call, int64_t n, int64_t c) {
  return at(call[kMix], call[kMix].extents()[0] == 1 ? 0 : n, c);
}

Row row_of(const OpCall& call, int64_t n) {
  const LossAttrs& attrs = attrs_of(call);
  Row row;
  for (int64_t c = 0; c < classes_of(call); ++c) {
    double z = has_bias(call) ? at(call[kBias], c) : 0;
    for (int64_t f = 0; f < features_of(call); ++f) z += at(call[kX], n, f) * at(call[kWeight], c, f);
    row.x.push_back(attrs.softcap == 0 ? z : attrs.softcap * std::tanh(z / attrs.softcap));
    if (attrs.first_class + c == label_at(call, n)) row.target = row.x.back();
  }
  row.rest = rest_of_row(classes_of(call), [&](int64_t c) { return row.x[static_cast<size_t>(c)]; });
  for (int64_t c = 0; c < classes_of(call) && has_mix(call); ++c) {
    if (mix_at(call, n, c) != 0)
      row.mixed += mix_at(call, n, c) * row.rest.surprise(row.x[static_cast<size_t>(c)]);  // x may be -inf
  }
  return row;
}

// The gradient of z for row n.
std::vector<double> gradient_of(const OpCall& call, int64_t n) {
  const LossAttrs& attrs = attrs_of(call);
  const Row row = row_of(call, n);
  const RestOfRow all{at(call[kStatistics], n, 0), at(call[kStatistics], n, 1)};
  const double g = at(call[kGradLoss], n), mass = call[kGradMass].numel() > 0 ? at(call[kGradMass], n) : 0,
               mix = has_mix(call) ? at(call[kGradMix], n) : 0;
  const SplitSum<double> weights =
      split_sum(has_mix(call) ? classes_of(call) : 0, [&](int64_t c) { return mix_at(call, n, c); });
  const auto of_mix = [&](int64_t c, double x) {
    const double weight = mix_at(call, n, c);
    return all.probability_less(x, false) * without(weights, weight) + weight * all.probability_less(x, true);
  };
  std::vector<double> d;
  for (int64_t c = 0; c < classes_of(call); ++c) {
    const double x = row.x[static_cast<size_t>(c)], t = attrs.softcap == 0 ? 0 : x / attrs.softcap;
    const double dx = all.probability_less(x, attrs.first_class + c == label_at(call, n)) * g +
                      all.probability_less(x, false) * mass + (has_mix(call) ? mix * of_mix(c, x) : 0);
    d.push_back(label_at(call, n) == attrs.ignore_index ? 0 : dx * (1 - t * t));
  }
  return d;
}

}  // namespace

void reference_loss(const OpCall& call, std::span<const Tensor> outputs) {
  for (int64_t n = 0; n < rows_of(call); ++n) {
    const Row row = row_of(call, n);
    const bool kept = label_at(call, n) != attrs_of(call).ignore_index;
    facets::write_double(outputs[kRowLoss], n, kept ? row.rest.surprise(row.target) : 0);
    facets::write_double(outputs[kRowLse], n, kept ? row.rest.logsumexp() : 0);
    if (has_mix(call)) facets::write_double(outputs[kRowMixed], n, kept ? row.mixed : 0);
    facets::write_double(outputs[kRowStatistics], 2 * n, row.rest.m);
    facets::write_double(outputs[kRowStatistics], 2 * n + 1, row.rest.r);
  }
}

void reference_shard_statistics(const OpCall& call, std::span<const Tensor> outputs) {
  for (int64_t n = 0; n < rows_of(call); ++n) {
    const Row row = row_of(call, n);
    const double values[] = {row.rest.m, row.rest.r, row.target};
    for (size_t k = 0; k < 3; ++k) facets::write_double(outputs[k], n, values[k]);
  }
}

void reference_gradients(const OpCall& call, std::span<const Tensor> outputs) {
  const int64_t N = rows_of(call), F = features_of(call), V = classes_of(call);
  std::vector<std::vector<double>> d;
  for (int64_t n = 0; n < N; ++n) d.push_back(gradient_of(call, n));
  const auto d_at = [&](int64_t n, int64_t c) { return d[static_cast<size_t>(n)][static_cast<size_t>(c)]; };
  const auto sum = [](int64_t count, auto term) {
    double total = -0.0;
    for (int64_t i = 0; i < count; ++i) total += term(i);
    return total;
  };
  for (int64_t f = 0; f < F; ++f) {
    for (int64_t n = 0; n < N && needs(call, kNeedX); ++n)
      facets::write_double(outputs[0], n * F + f,
                           sum(V, [&](int64_t c) { return d_at(n, c) * at(call[kWeight], c, f); }));
    for (int64_t c = 0; c < V && needs(call, kNeedWeight); ++c)
      facets::write_double(outputs[1], c * F + f, sum(N, [&](int64_t n) { return d_at(n, c) * at(call[kX], n, f); }));
  }
  for (int64_t c = 0; c < V && needs(call, kNeedBias); ++c)
    facets::write_double(outputs[2], c, sum(N, [&](int64_t n) { return d_at(n, c); }));
}

std::vector<Sample> samples(SampleOf what) {
  struct Case {
    const char* name;
    int64_t N, F, V;
    bool bias = false;
    int64_t mix_rows = 0;
    double softcap = 0;
    uint8_t needs = kNeedX | kNeedWeight;
    int64_t chunk_rows = 0, chunk_classes = 0;
  };
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Case& c :
         {Case{"plain", 5, 7, 9}, Case{"bias", 6, 9, 33, true, 0, 0, kNeedX | kNeedWeight | kNeedBias},
          Case{"chunks", 200, 5, 1300, true, 0, 0, kNeedX | kNeedWeight | kNeedBias, 128, 400},
          Case{"mix", 4, 3, 11, false, 1}, Case{"mix_of_rows", 4, 3, 11, true, 4, 2.5, kNeedX | kNeedBias},
          Case{"softcap", 3, 8, 20, true, 0, 1.5, kNeedWeight}, Case{"one", 1, 1, 1}, Case{"one_class", 6, 2, 1},
          Case{"no_rows", 0, 4, 3, true, 1, 0, kNeedX | kNeedWeight | kNeedBias}}) {
      if (what == SampleOf::shard && c.mix_rows > 0) continue;
      const DType compute = compute_dtype(dtype);
      const auto column = [&](uint64_t seed, bool there) {
        return facets::sample_tensor(seed, {there ? c.N : 0, 1}, compute);
      };
      const Tensor x = facets::sample_tensor(1, {c.N, c.F}, dtype), w = facets::sample_tensor(2, {c.V, c.F}, dtype);
      const Tensor labels = facets::sample_tensor(3, {c.N, 1}, DType::i64, 0, static_cast<double>(c.V));
      if (c.N > 1) facets::write_int64(labels, 1, -100);
      const int64_t first = what == SampleOf::shard ? c.V / 2 : 0;
      const LossAttrs attrs{.ignore_index = -100,
                            .first_class = first,
                            .max_bytes = int64_t{1} << 28,
                            .chunk_rows = c.chunk_rows,
                            .chunk_classes = c.chunk_classes,
                            .softcap = c.softcap,
                            .partial = what == SampleOf::shard,
                            .needs = what == SampleOf::gradients ? c.needs : uint8_t{0}};
      Sample s{fmt::format("{}_{}", c.name, name_of(dtype)),
               {x, w, labels, facets::sample_tensor(4, {c.bias ? c.V : 0}, dtype),
                facets::sample_tensor(5, {c.mix_rows, c.mix_rows > 0 ? c.V : 0}, compute, 0, 1)},
               Attrs::of(attrs)};
      if (what == SampleOf::gradients) {
        const Tensor statistics = Tensor::empty({c.N, 2}, compute);
        const OpDef none{.name = "", .num_inputs = kForwardInputs, .infer = nullptr};
        for (int64_t n = 0; n < c.N; ++n) {
          const Row row = row_of({none, s.inputs, s.attrs}, n);
          facets::write_double(statistics, 2 * n, row.rest.m);
          facets::write_double(statistics, 2 * n + 1, row.rest.r);
        }
        const bool mixed = c.mix_rows > 0;
        for (const Tensor& t : {statistics, column(6, true), column(7, mixed), column(8, mixed)}) s.inputs.push_back(t);
      }
      list.push_back(s);
    }
  }
  return list;
}

}  // namespace tutti::chunked_loss
