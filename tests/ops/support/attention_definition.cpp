#include "tests/ops/support/attention_definition.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "tests/support/bf16_chain.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/unary.h"

namespace tutti::testing {
namespace {

using codegen::ContractionTree;

template <class T>
constexpr T kNone = -std::numeric_limits<T>::infinity();

template <class T>
Tensor filled(const Extents& sizes) {
  const Tensor t = Tensor::empty(sizes, dtype_of<T>);
  std::fill_n(t.data<T>(), t.numel(), T{0});
  return t;
}
template <class T>
T exp_of(T x) {
  return exp(Tensor::of(std::vector<T>{x})).template data<T>()[0];
}
template <class T>
T tanh_of(T x) {
  return tanh(Tensor::of(std::vector<T>{x})).template data<T>()[0];
}
template <class T>
T log_of(T x) {
  return log(Tensor::of(std::vector<T>{x})).template data<T>()[0];
}

// The sum of products that term(i) gives as a pair, in the order of the tree. Leaves without a term are absent.
template <class T, class Term>
T contract(const ContractionTree& tree, Term term) {
  std::vector<std::optional<T>> pending;
  int64_t i = 0;
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    T sum = T{-0.0};
    bool exists = false;
    for (const int64_t end = i + tree.leaf_lengths[leaf]; i < end; ++i) {
      const std::optional<std::pair<T, T>> product = term(i);
      if (product) sum = std::fma(product->first, product->second, sum);
      exists = exists || product;
    }
    std::optional<T> value = exists ? std::optional<T>(sum) : std::nullopt;
    for (int merges = tree.merges[leaf]; merges > 0; --merges) {
      if (pending.back()) value = value ? *pending.back() + *value : *pending.back();
      pending.pop_back();
    }
    pending.push_back(value);
  }
  return pending.back().value_or(T{0}) + T{0};
}

// The dot product of `length` features, which term(i) gives: a contraction of two bf16 operands, or in T.
template <class T, class Term>
T dot(int64_t length, bool of_bf16, Term term) {
  const ContractionTree tree = ContractionTree::halving(length);
  if (!of_bf16) return contract<T>(tree, [&](int64_t i) { return std::optional(term(i)); });
  std::vector<T> pending;
  int64_t begin = 0;
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); begin += tree.leaf_lengths[leaf++]) {
    T sum = static_cast<T>(bf16_leaf(tree.leaf_lengths[leaf], [&](int64_t i) { return term(begin + i); }));
    for (int merges = tree.merges[leaf]; merges > 0; --merges) sum = pending.back() + sum, pending.pop_back();
    pending.push_back(sum);
  }
  return pending.back() + T{0};
}

template <class T>
struct Problem {
  Tensor q, k, v;
  const SdpaOptions& options;
  int64_t Sq = q.extent(1), Sk = k.extent(1), D = q.extent(3), G = q.extent(2) / k.extent(2);
  T scale = static_cast<T>(options.scale.value_or(1 / std::sqrt(static_cast<double>(D))));

  static T at(const Tensor& t, int64_t b, int64_t s, int64_t h, int64_t d) {
    const Extents& e = t.strides();
    return static_cast<T>(facets::read_double(t, b * e[0] + s * e[1] + h * e[2] + d * e[3]));
  }
  static bool are_bf16(const Tensor& x, const Tensor& y) {
    return x.dtype() == DType::bf16 && y.dtype() == DType::bf16;
  }
  bool sees(int64_t b, int64_t s, int64_t key) const {
    int64_t last = options.causal ? s + Sk - Sq : Sk - 1;
    if (options.last_key.defined()) last = std::min<int64_t>(last, options.last_key.data<int32_t>()[b * Sq + s]);
    if (options.first_key.defined() && key < options.first_key.data<int32_t>()[b * Sq + s]) return false;
    return key <= last && (!options.window || key >= last - *options.window);
  }
  T scaled(int64_t b, int64_t s, int64_t h, int64_t key) const {
    return dot<T>(D, are_bf16(q, k), [&](int64_t d) { return std::pair(at(q, b, s, h, d), at(k, b, key, h / G, d)); }) *
           scale;
  }
  T tangent(T x) const { return tanh_of<T>(x / static_cast<T>(options.score_cap)); }
  T score(int64_t b, int64_t s, int64_t h, int64_t key) const {
    T x = scaled(b, s, h, key);
    if (options.score_cap > 0) x = tangent(x) * static_cast<T>(options.score_cap);
    if (options.mask.defined()) {
      const Extents &e = options.mask.extents(), &st = options.mask.strides();
      const auto place = [&](size_t dim, int64_t i) { return e[dim] == 1 ? 0 : i * st[dim]; };
      const double m = facets::read_double(options.mask, place(0, b) + place(1, h) + place(2, s) + key * st[3]);
      x = x + static_cast<T>(options.mask.dtype() != DType::boolean ? m : m != 0 ? 0.0 : kNone<double>);
    }
    return x;
  }
};

template <class T>
struct Node {
  T m = kNone<T>, l = 0;
  std::vector<T> o;
};

template <class T>
Node<T> combined(const Node<T>& a, const Node<T>& b) {
  if (a.m == kNone<T>) return b;
  if (b.m == kNone<T>) return a;
  Node<T> r{std::max(a.m, b.m), 0, a.o};
  const T sa = exp_of<T>(a.m - r.m), sb = exp_of<T>(b.m - r.m);
  r.l = std::fma(a.l, sa, b.l * sb);
  for (size_t d = 0; d < r.o.size(); ++d) r.o[d] = std::fma(a.o[d], sa, b.o[d] * sb);
  return r;
}

template <class T>
Node<T> block_of(const Problem<T>& p, int64_t b, int64_t s, int64_t h, int64_t begin, int64_t end) {
  Node<T> node{kNone<T>, 0, std::vector<T>(static_cast<size_t>(p.D), T{-0.0})};
  std::vector<T> x;
  for (int64_t key = begin; key < end; ++key) {
    x.push_back(p.sees(b, s, key) ? p.score(b, s, h, key) : kNone<T>);
    node.m = std::max(node.m, x.back());
  }
  if (node.m == kNone<T>) return node;
  std::array<T, 16> lanes{};
  for (size_t i = 0; i < x.size(); ++i) {
    const T weight = exp_of<T>(x[i] - node.m);
    lanes[i % 16] += weight;
    for (int64_t d = 0; d < p.D; ++d)
      node.o[static_cast<size_t>(d)] =
          std::fma(weight, p.at(p.v, b, begin + static_cast<int64_t>(i), h / p.G, d), node.o[static_cast<size_t>(d)]);
  }
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  node.l = lanes[0];
  return node;
}

// Blocks [first, first + span) of the aligned tree.
template <class T>
Node<T> tree_of(const Problem<T>& p, int64_t b, int64_t s, int64_t h, int64_t begin, int64_t span) {
  if (begin >= p.Sk) return {kNone<T>, 0, std::vector<T>(static_cast<size_t>(p.D), T{0})};
  if (span == key_block()) return block_of(p, b, s, h, begin, std::min(begin + span, p.Sk));
  return combined(tree_of(p, b, s, h, begin, span / 2), tree_of(p, b, s, h, begin + span / 2, span / 2));
}

template <class T>
SdpaResult forward(const Problem<T>& p) {
  const SdpaResult result{Tensor::empty(p.q.extents(), p.q.dtype()), filled<T>({p.q.extent(0), p.Sq, p.q.extent(2)})};
  int64_t span = key_block();
  while (span < p.Sk) span *= 2;
  int64_t row = 0;
  for (int64_t b = 0; b < p.q.extent(0); ++b)
    for (int64_t s = 0; s < p.Sq; ++s)
      for (int64_t h = 0; h < p.q.extent(2); ++h, ++row) {
        const Node<T> node = tree_of(p, b, s, h, 0, span);
        for (int64_t d = 0; d < p.D; ++d)
          facets::write_double(result.output, row * p.D + d,
                               node.l == 0 ? 0 : node.o[static_cast<size_t>(d)] / node.l + T{0});
        result.logsumexp.data<T>()[row] = node.m + log_of<T>(node.l);
      }
  return result;
}

template <class T>
SdpaGradients backward(const Problem<T>& p, const Tensor& g, const SdpaResult& result) {
  const SdpaGradients d{filled<T>(p.q.extents()), filled<T>(p.k.extents()), filled<T>(p.k.extents())};
  const int64_t Hkv = p.k.extent(2), R = p.Sq * p.G;
  ContractionTree over_queries = ContractionTree::halving(p.Sq, static_cast<int32_t>(token_grain()));
  for (int32_t& length : over_queries.leaf_lengths) length *= static_cast<int32_t>(p.G);
  for (int64_t b = 0; b < p.q.extent(0); ++b)
    for (int64_t kv = 0; kv < Hkv; ++kv) {
      // Weights and their gradients, [rows][keys]; hidden pairs are absent.
      std::vector<std::optional<T>> weights(static_cast<size_t>(R * p.Sk)), slopes = weights;
      for (int64_t r = 0; r < R; ++r) {
        const int64_t s = r / p.G, h = kv * p.G + r % p.G;
        std::array<T, 16> lanes;
        lanes.fill(T{-0.0});
        for (int64_t e = 0; e < p.D; ++e)
          lanes[static_cast<size_t>(e % 16)] += p.at(g, b, s, h, e) * p.at(result.output, b, s, h, e);
        for (size_t half = 8; half > 0; half /= 2)
          for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
        const T lse = result.logsumexp.template data<T>()[(b * p.Sq + s) * p.q.extent(2) + h];
        for (int64_t key = 0; key < p.Sk; ++key) {
          if (!p.sees(b, s, key)) continue;
          const T x = p.score(b, s, h, key);
          if (x == kNone<T>) continue;
          const T weight = exp_of<T>(x - lse);
          const T dp = dot<T>(p.D, p.are_bf16(g, p.v),
                              [&](int64_t e) { return std::pair(p.at(g, b, s, h, e), p.at(p.v, b, key, kv, e)); });
          weights[static_cast<size_t>(r * p.Sk + key)] = weight;
          T slope = weight * (dp - lanes[0]);
          if (p.options.score_cap > 0) {
            const T t = p.tangent(p.scaled(b, s, h, key));
            slope = slope * std::fma(-t, t, T{1});
          }
          slopes[static_cast<size_t>(r * p.Sk + key)] = slope * p.scale;
        }
      }
      const auto row_of = [&](const Tensor& t, int64_t r, int64_t e) {
        return p.at(t, b, r / p.G, kv * p.G + r % p.G, e);
      };
      const auto over_rows = [&](const std::vector<std::optional<T>>& pairs, const Tensor& t, int64_t key, int64_t e) {
        return contract<T>(over_queries, [&](int64_t r) -> std::optional<std::pair<T, T>> {
          const std::optional<T>& x = pairs[static_cast<size_t>(r * p.Sk + key)];
          return x ? std::optional(std::pair(*x, row_of(t, r, e))) : std::nullopt;
        });
      };
      for (int64_t e = 0; e < p.D; ++e) {
        for (int64_t key = 0; key < p.Sk; ++key) {
          const int64_t place = ((b * p.Sk + key) * Hkv + kv) * p.D + e;
          d.k.template data<T>()[place] = over_rows(slopes, p.q, key, e);
          d.v.template data<T>()[place] = over_rows(weights, g, key, e);
        }
        for (int64_t r = 0; r < R; ++r) {
          d.q.template data<T>()[((b * p.Sq + r / p.G) * p.q.extent(2) + kv * p.G + r % p.G) * p.D + e] =
              contract<T>(ContractionTree::halving(p.Sk), [&](int64_t key) -> std::optional<std::pair<T, T>> {
                const std::optional<T>& x = slopes[static_cast<size_t>(r * p.Sk + key)];
                return x ? std::optional(std::pair(*x, p.at(p.k, b, key, kv, e))) : std::nullopt;
              });
        }
      }
    }
  return d;
}

}  // namespace

SdpaResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options) {
  return q.dtype() == DType::f64 ? forward(Problem<double>{q, k, v, options})
                                 : forward(Problem<float>{q, k, v, options});
}

SdpaGradients attention_gradients(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const SdpaResult& result, const SdpaOptions& options) {
  return q.dtype() == DType::f64 ? backward(Problem<double>{q, k, v, options}, g, result)
                                 : backward(Problem<float>{q, k, v, options}, g, result);
}

}  // namespace tutti::testing
