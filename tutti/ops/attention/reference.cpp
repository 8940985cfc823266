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

// What a call of an op of attention holds, wherever its inputs stand.
struct Operands {
  const OpCall& call;
  const Tensor &q, &k, &first_key, &last_key;
  const Tensor* mask;
  Sizes n = sizes_of(q, k);
  const SdpaAttrs& attrs = call.attrs.as<SdpaAttrs>();

  // The operands of a call whose q is input `at`, whose bounds begin at `bounds` and whose mask, if it has one, follows
  // them.
  Operands(const OpCall& c, size_t at, size_t bounds)
      : call(c),
        q(c[at]),
        k(c[at + 1]),
        first_key(c[bounds]),
        last_key(c[bounds + 1]),
        mask(c.inputs.size() > bounds + 2 ? &c[bounds + 2] : nullptr) {}

  double bias(int64_t b, int64_t s, int64_t h, int64_t t) const {
    if (!mask) return 0;
    const Extents& e = mask->extents();
    return at4(*mask, e[0] == 1 ? 0 : b, e[1] == 1 ? 0 : h, e[2] == 1 ? 0 : s, t);
  }
};

// The score of query (b, s, h) and key t before masks, scaled and capped; its derivative by the product of the two
// through `slope`.
double score_of(const Operands& x, int64_t b, int64_t s, int64_t h, int64_t t, double* slope = nullptr) {
  double dot = 0;
  for (int64_t d = 0; d < x.n.D; ++d) dot += at4(x.q, b, s, h, d) * at4(x.k, b, t, h / x.n.G, d);
  const double scale = x.attrs.scale, cap = x.attrs.score_cap, tangent = cap > 0 ? std::tanh(dot * scale / cap) : 0;
  if (slope) *slope = scale * (1 - tangent * tangent);
  return cap > 0 ? cap * tangent : dot * scale;
}

// Scores of query (b, s, h) over all keys, -inf for those it does not see; their maximum through `m`.
std::vector<double> scores_of(const Operands& x, int64_t b, int64_t s, int64_t h, double* m) {
  const KeyRange keys = keys_of(x.call, x.n, x.first_key, x.last_key, b, s);
  std::vector<double> scores(static_cast<size_t>(x.n.Sk), -kInf);
  *m = -kInf;
  for (int64_t t = keys.first; t <= keys.last; ++t) {
    scores[static_cast<size_t>(t)] = score_of(x, b, s, h, t) + x.bias(b, s, h, t);
    *m = std::max(*m, scores[static_cast<size_t>(t)]);
  }
  return scores;
}

// Probabilities of query (b, s, h) over all keys; lse through `lse`.
std::vector<double> probabilities(const Operands& x, int64_t b, int64_t s, int64_t h, double* lse) {
  double m, l = 0;
  std::vector<double> p = scores_of(x, b, s, h, &m);
  for (double& value : p) {
    value = m == -kInf ? 0 : std::exp(value - m);
    l += value;
  }
  for (double& value : p) value = l == 0 ? 0 : value / l;
  *lse = m + std::log(l);
  return p;
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
  const Operands x(call, 0, 3);
  const Sizes& n = x.n;
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double lse;
    const auto p = probabilities(x, b, s, h, &lse);
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
  const Operands x(call, 0, 3);
  const Sizes& n = x.n;
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double m, l = 0;
    std::vector<double> p = scores_of(x, b, s, h, &m);
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
  const Operands x(call, 1, 6);
  const Sizes& n = x.n;
  std::vector<double> dq(static_cast<size_t>(q.numel())), dk(static_cast<size_t>(k.numel())),
      dv(static_cast<size_t>(k.numel()));
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double lse, delta = 0;
    const auto p = probabilities(x, b, s, h, &lse);
    for (int64_t d = 0; d < n.D; ++d) delta += at4(g, b, s, h, d) * at4(o, b, s, h, d);
    for (int64_t t = 0; t < n.Sk; ++t) {
      double dp = 0, slope;
      score_of(x, b, s, h, t, &slope);
      for (int64_t d = 0; d < n.D; ++d) dp += at4(g, b, s, h, d) * at4(v, b, t, h / n.G, d);
      const double ds = p[static_cast<size_t>(t)] * (dp - delta) * slope;
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
