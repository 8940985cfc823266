#include "bench/attention_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "bench/fma_peak.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

constexpr double kLong = 2e6;  // microseconds: longer calls are measured once

double mebibytes(int64_t nbytes) { return static_cast<double>(nbytes) / (1 << 20); }

// Pairs of a query and a key that it sees, of one head.
double pairs_of(const AttentionCase& p) {
  double pairs = 0;
  for (int64_t s = 0; s < p.length; ++s) {
    const int64_t last = p.causal ? std::min(s + p.keys - p.length, p.keys - 1) : p.keys - 1;
    const int64_t first = p.window < 0 ? 0 : std::max<int64_t>(last - p.window, 0);
    pairs += static_cast<double>(std::max<int64_t>(last - first + 1, 0));
  }
  return pairs;
}

// softmax(scale q k^T + mask) v, as a program without sdpa would write it.
Tensor composite(const AttentionCase& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& hidden) {
  const int64_t group = p.heads / p.key_heads;
  const auto heads_first = [&](const Tensor& t) {
    const Tensor turned = permute(t, {0, 2, 1, 3});
    if (group == 1 || t.extent(2) == p.heads) return turned;
    const Tensor repeated =
        expand(reshape(turned, {p.batch, p.key_heads, 1, p.keys, p.dim}), {p.batch, p.key_heads, group, p.keys, p.dim});
    return reshape(repeated, {p.batch, p.heads, p.keys, p.dim});
  };
  Tensor scores =
      mul(matmul(heads_first(q), transpose(heads_first(k), -1, -2)), 1 / std::sqrt(static_cast<double>(p.dim)));
  if (hidden.defined()) scores = masked_fill(scores, hidden, -std::numeric_limits<double>::infinity());
  return permute(matmul(softmax(scores, -1), heads_first(v)), {0, 2, 1, 3});
}

Tensor hidden_keys(const AttentionCase& p) {
  if (!p.causal) return {};
  const Tensor seen = tril_mask(p.length, p.keys, p.keys - p.length);
  if (p.window < 0) return logical_not(seen);
  return logical_not(bit_and(seen, logical_not(tril_mask(p.length, p.keys, p.keys - p.length - p.window - 1))));
}

bool close(const Tensor& a, const Tensor& b, double tolerance) {
  const Tensor x = to_contiguous(cast(a, DType::f32)), y = to_contiguous(cast(b, DType::f32));
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float e = x.data<float>()[i], f = y.data<float>()[i];
    if (!(std::abs(e - f) <= tolerance * (1 + std::abs(f)))) return false;
  }
  return true;
}

}  // namespace

std::string shape_of(const AttentionCase& p) {
  const std::string heads =
      p.heads == p.key_heads ? fmt::format("{}", p.heads) : fmt::format("{}/{}", p.heads, p.key_heads);
  const std::string length = p.length == p.keys ? fmt::format("{}", p.length) : fmt::format("{}x{}", p.length, p.keys);
  return fmt::format("{} x {} x {} x {}{}", p.batch, heads, length, p.dim,
                     p.window < 0 ? "" : fmt::format(" window {}", p.window));
}

std::vector<AttentionRow> run_attention_bench(const AttentionCase& p) {
  TUTTI_CHECK(p.heads % p.key_heads == 0, "bench attention: {} query heads cannot share {} key heads evenly", p.heads,
              p.key_heads);
  TUTTI_CHECK(p.window < 0 || p.causal, "bench attention: a window of {} keys needs causal attention; leave --full out",
              p.window);
  RankContext& context = RankContext::current();
  context.set_threads(p.threads);
  seed_all(1);
  const auto random = [&](int64_t length, int64_t heads) {
    return cast(uniform({p.batch, length, heads, p.dim}, random_key("attention"), -1.0, 1.0), p.dtype);
  };
  const Tensor q = random(p.length, p.heads), k = random(p.keys, p.key_heads), v = random(p.keys, p.key_heads),
               g = random(p.length, p.heads);
  for (const Tensor& t : {q, k, v}) requires_grad_(t);
  SdpaOptions options{.causal = p.causal};
  if (p.window >= 0) options.window = p.window;

  using Function = std::function<Tensor()>;
  std::vector<std::pair<std::string, Function>> functions{{"sdpa", [&] { return sdpa(q, k, v, options); }}};
  const double scores =
      4.0 * static_cast<double>(p.batch * p.heads) * static_cast<double>(p.length) * static_cast<double>(p.keys);
  Tensor hidden;
  if (scores <= double{1 << 30}) {
    hidden = hidden_keys(p);
    functions.push_back({"composite", [&] { return composite(p, q, k, v, hidden); }});
  }

  const double products = 2.0 * static_cast<double>(p.batch * p.heads * p.dim) * pairs_of(p);
  const double nbytes = static_cast<double>(2 * q.nbytes() + k.nbytes() + v.nbytes());
  const double tolerance = p.dtype == DType::bf16 ? 0.05 : 1e-3;
  std::vector<AttentionRow> rows;
  for (const bool backward : {false, true}) {
    std::vector<Tensor> expected;
    for (auto at = functions.rbegin(); at != functions.rend(); ++at) {
      std::vector<Tensor> kept;
      const auto run = [&] {
        if (!backward) {
          const NoGradScope no_grad;
          kept = {at->second()};
          return;
        }
        const Tensor outputs[] = {at->second()}, inputs[] = {q, k, v}, cotangents[] = {g};
        kept = grad(outputs, inputs, cotangents);
      };
      run();
      kept.clear();
      context.allocator().reset_peak();
      const auto begin = std::chrono::steady_clock::now();
      run();
      const double once = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      AttentionRow row{.what = at->first, .pass = backward ? "forward+backward" : "forward"};
      row.peak_mbytes = mebibytes(context.allocator().statistics().peak_bytes);
      if (expected.empty()) expected = kept;
      for (size_t i = 0; i < kept.size(); ++i) row.verified = row.verified && close(kept[i], expected[i], tolerance);
      row.time = once > kLong ? Timing{once, once} : measure(run, 4.0, 11);
      row.peak_gflops = fma_peak_gflops();
      row.gflops = (backward ? 7 : 2) * products / row.time.min_us * 1e-3;
      row.gbps = (backward ? 2.5 : 1) * nbytes / row.time.min_us * 1e-3;
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace tutti::bench
