#include "tutti/ops/attention/reference.h"

#include <algorithm>
#include <cmath>

#include "tutti/ops/attention/geometry.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::attention {
namespace {

double at4(const Tensor& t, int64_t b, int64_t s, int64_t h, int64_t d) {
  const Extents& st = t.strides();
  return facets::read_double(t, b * st[0] + s * st[1] + h * st[2] + d * st[3]);
}

// Scaled scores of query (b, s, h) over all keys, -inf for those it does not see; their maximum through `m`.
std::vector<double> scores_of(const OpCall& call, const Tensor& q, const Tensor& k, const Tensor& first_key,
                              const Tensor& last_key, int64_t b, int64_t s, int64_t h, double* m) {
  const Sizes n = sizes_of(q, k);
  const SdpaAttrs& attrs = call.attrs.as<SdpaAttrs>();
  const int64_t first = facets::read_int64(first_key, b * first_key.strides()[0] + s * first_key.strides()[1]);
  std::vector<double> x(static_cast<size_t>(n.Sk), -kInf);
  *m = -kInf;
  for (int64_t t = std::max<int64_t>(first, 0); t <= last_key_of(call, n, last_key, b, s); ++t) {
    double dot = 0;
    for (int64_t d = 0; d < n.D; ++d) dot += at4(q, b, s, h, d) * at4(k, b, t, h / n.G, d);
    x[static_cast<size_t>(t)] = dot * attrs.scale;
    *m = std::max(*m, x[static_cast<size_t>(t)]);
  }
  return x;
}

// Probabilities of query (b, s, h) over all keys; lse through `lse`.
std::vector<double> probabilities(const OpCall& call, const Tensor& q, const Tensor& k, const Tensor& first_key,
                                  const Tensor& last_key, int64_t b, int64_t s, int64_t h, double* lse) {
  double m, l = 0;
  std::vector<double> x = scores_of(call, q, k, first_key, last_key, b, s, h, &m);
  for (double& value : x) {
    value = m == -kInf ? 0 : std::exp(value - m);
    l += value;
  }
  for (double& value : x) value = l == 0 ? 0 : value / l;
  *lse = m + std::log(l);
  return x;
}

template <class Visit>
void for_each_query(const Sizes& n, Visit visit) {
  for (int64_t b = 0; b < n.B; ++b) {
    for (int64_t s = 0; s < n.Sq; ++s) {
      for (int64_t h = 0; h < n.Hq; ++h) visit(b, s, h);
    }
  }
}

}  // namespace

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Sizes n = sizes_of(call[0], call[1]);
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double lse;
    const auto p = probabilities(call, call[0], call[1], call[3], call[4], b, s, h, &lse);
    const int64_t row = (b * n.Sq + s) * n.Hq + h;
    for (int64_t d = 0; d < n.D; ++d) {
      double o = 0;
      for (int64_t t = 0; t < n.Sk; ++t) o += p[static_cast<size_t>(t)] * at4(call[2], b, t, h / n.G, d);
      facets::write_double(outputs[0], row * n.D + d, o);
    }
    facets::write_double(outputs[1], row, lse);
  });
}

void reference_partial(const OpCall& call, std::span<const Tensor> outputs) {
  const Sizes n = sizes_of(call[0], call[1]);
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double m, l = 0;
    std::vector<double> p = scores_of(call, call[0], call[1], call[3], call[4], b, s, h, &m);
    for (double& value : p) l += value = m == -kInf ? 0 : std::exp(value - m);
    const int64_t row = (b * n.Sq + s) * n.Hq + h;
    facets::write_double(outputs[0], row, m);
    facets::write_double(outputs[1], row, l);
    for (int64_t d = 0; d < n.D; ++d) {
      double o = 0;
      for (int64_t t = 0; t < n.Sk; ++t) o += p[static_cast<size_t>(t)] * at4(call[2], b, t, h / n.G, d);
      facets::write_double(outputs[2], row * n.D + d, o);
    }
  });
}

void reference_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &g = call[0], &q = call[1], &k = call[2], &v = call[3], &o = call[4];
  const Sizes n = sizes_of(q, k);
  std::vector<double> dq(static_cast<size_t>(q.numel())), dk(static_cast<size_t>(k.numel())), dv(static_cast<size_t>(k.numel()));
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double lse, delta = 0;
    const auto p = probabilities(call, q, k, call[6], call[7], b, s, h, &lse);
    for (int64_t d = 0; d < n.D; ++d) delta += at4(g, b, s, h, d) * at4(o, b, s, h, d);
    for (int64_t t = 0; t < n.Sk; ++t) {
      double dp = 0;
      for (int64_t d = 0; d < n.D; ++d) dp += at4(g, b, s, h, d) * at4(v, b, t, h / n.G, d);
      const double ds = p[static_cast<size_t>(t)] * (dp - delta) * call.attrs.as<SdpaAttrs>().scale;
      for (int64_t d = 0; d < n.D; ++d) {
        const size_t qi = static_cast<size_t>(((b * n.Sq + s) * n.Hq + h) * n.D + d);
        const size_t ki = static_cast<size_t>(((b * n.Sk + t) * n.Hkv + h / n.G) * n.D + d);
        dq[qi] += ds * at4(k, b, t, h / n.G, d);
        dk[ki] += ds * at4(q, b, s, h, d);
        dv[ki] += p[static_cast<size_t>(t)] * at4(g, b, s, h, d);
      }
    }
  });
  for (size_t i = 0; i < dq.size(); ++i) facets::write_double(outputs[0], static_cast<int64_t>(i), dq[i]);
  for (size_t i = 0; i < dk.size(); ++i) facets::write_double(outputs[1], static_cast<int64_t>(i), dk[i]);
  for (size_t i = 0; i < dv.size(); ++i) facets::write_double(outputs[2], static_cast<int64_t>(i), dv[i]);
}

}  // namespace tutti::attention
