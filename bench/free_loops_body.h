// The loops of free_loops.h over vectors of type V. free_loops.cpp includes this once per instruction set, inside a
// namespace that has V (floats) and I (integers of the same size). Nothing here may call a function that the sets
// share.
constexpr int64_t kLanes = sizeof(V) / sizeof(float);
constexpr int kSums = 8;  // partial sums of vectors: an add takes four cycles, and two begin in each

inline V load(const float* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline void store(float* p, V v) { __builtin_memcpy(p, &v, sizeof(v)); }
inline V splat(float value) { return V{} + value; }
inline float lanes_sum(V v) {
  float sum = 0;
  for (int64_t i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}
inline V larger(V a, V b) { return a > b ? a : b; }

// term(i) is a vector of terms from element i, last(i) one term.
template <class Term, class Last>
inline float sum_of(int64_t n, Term term, Last last) {
  V sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes)
#pragma GCC unroll 8
    for (int s = 0; s < kSums; ++s) sums[s] += term(i + s * kLanes);
  for (; i + kLanes <= n; i += kLanes) sums[0] += term(i);
  for (int s = 1; s < kSums; ++s) sums[0] += sums[s];
  float sum = lanes_sum(sums[0]);
  for (; i < n; ++i) sum += last(i);
  return sum;
}

inline float row_max(const float* x, int64_t n) {
  V most[4];
  for (V& m : most) m = splat(-__builtin_inff());
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) most[s] = larger(most[s], load(x + i + s * kLanes));
  const V all = larger(larger(most[0], most[1]), larger(most[2], most[3]));
  float result = all[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) result = result < all[lane] ? all[lane] : result;
  for (; i < n; ++i) result = result < x[i] ? x[i] : result;
  return result;
}

// exp of x <= 0 to about two ULP, 0 below -87: 2^n e^r, the series of e^r up to r^6. Adding kShift rounds to an
// integer, which then stands in the lowest bits.
inline V exp_below(V x) {
  constexpr float kShift = 0x1.8p23F;
  x = larger(x, splat(-87.0F));
  const V shifted = x * 0x1.715476p0F + kShift, n = shifted - kShift;
  const V r = n * -0x1.7f7d1cp-20F + (n * -0x1.62e4p-1F + x);
  V p = r * (1.0F / 720) + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  I bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 127) << 23;
  V power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return p * power;
}

// The first `count` elements, others 0.
inline V load_some(const float* p, int64_t count) {
  V v = {};
  __builtin_memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}

float sum(const float* x, int64_t n) {
  return sum_of(n, [=](int64_t i) { return load(x + i); }, [=](int64_t i) { return x[i]; });
}

float dot(const float* x, const float* y, int64_t n) {
  return sum_of(n, [=](int64_t i) { return load(x + i) * load(y + i); }, [=](int64_t i) { return x[i] * y[i]; });
}

void add(float* y, const float* x, int64_t n) {
  int64_t i = 0;
#pragma GCC unroll 4
  for (; i + kLanes <= n; i += kLanes) store(y + i, load(y + i) + load(x + i));
  for (; i < n; ++i) y[i] += x[i];
}

void scale(float* y, float by, int64_t n) {
  int64_t i = 0;
#pragma GCC unroll 4
  for (; i + kLanes <= n; i += kLanes) store(y + i, load(y + i) * by);
  for (; i < n; ++i) y[i] *= by;
}

float exp_row(const float* x, float scale_of, int64_t n, float* y) {
  const float most = row_max(x, n);
  V sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const V e = exp_below((load(x + i + s * kLanes) - most) * scale_of);
      sums[s] += e;
      store(y + i + s * kLanes, e);
    }
  float sum = lanes_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    const V e = exp_below((load_some(x + i, count) - most) * scale_of);
    for (int64_t lane = 0; lane < count; ++lane) sum += y[i + lane] = e[lane];
  }
  return sum;
}

// Works on blocks that stay in the first-level cache: first their maximum, then the exponentials, so memory is read
// once.
float logsumexp(const float* x, int64_t n) {
  constexpr int64_t kBlock = 2048;
  float most = -__builtin_inff(), total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t length = n - begin < kBlock ? n - begin : kBlock;
    const float* block = x + begin;
    const float block_most = row_max(block, length);
    if (most < block_most) {
      total *= __builtin_expf(most - block_most);
      most = block_most;
    }
    total += sum_of(
        length, [=](int64_t i) { return exp_below(load(block + i) - most); },
        [=](int64_t i) { return __builtin_expf(block[i] - most); });
  }
  return most + __builtin_logf(total);
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y) {
  const float mean = sum(x, n) / static_cast<float>(n);
  const float squares = sum_of(
      n,
      [=](int64_t i) {
        const V d = load(x + i) - mean;
        return d * d;
      },
      [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  const float by = 1 / __builtin_sqrtf(squares / static_cast<float>(n) + eps);
  int64_t i = 0;
#pragma GCC unroll 4
  for (; i + kLanes <= n; i += kLanes) store(y + i, (load(x + i) - mean) * by * load(weight + i) + load(bias + i));
  for (; i < n; ++i) y[i] = (x[i] - mean) * by * weight[i] + bias[i];
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  const float squares = sum_of(
      n,
      [=](int64_t i) {
        const V e = load(x + i);
        return e * e;
      },
      [=](int64_t i) { return x[i] * x[i]; });
  const float by = 1 / __builtin_sqrtf(squares / static_cast<float>(n) + eps);
  int64_t i = 0;
#pragma GCC unroll 4
  for (; i + kLanes <= n; i += kLanes) store(y + i, load(x + i) * by * load(weight + i));
  for (; i < n; ++i) y[i] = x[i] * by * weight[i];
}

constexpr FreeLoops kLoops = {sum, dot, add, scale, exp_row, logsumexp, layer_norm, rms_norm};
