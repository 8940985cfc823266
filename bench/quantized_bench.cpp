#include "bench/quantized_bench.h"

#include <algorithm>
#include <cmath>

#include "bench/fma_peak.h"
#include "bench/weight_copies.h"
#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/quantized_embedding.h"
#include "tutti/ops/quantized_linear.h"

namespace tutti::bench {
namespace {

// Sampled elements beside sums of decoded weights in double precision: rounding an element of x changes it by at most
// half of a 127th of the largest magnitude, which here is below 1.
bool is_near(const Tensor& x, const Tensor& w, const Tensor& y) {
  const int64_t m = y.extents()[0], n = y.extents()[1], k = x.extents()[1];
  for (int64_t e = 0; e < m * n; e += std::max<int64_t>(m * n / 61, 1)) {
    double sum = 0, allowed = 1e-6;
    for (int64_t i = 0; i < k; ++i) {
      const double weight = w.data<float>()[e % n * k + i];
      sum += static_cast<double>(x.data<float>()[e / n * k + i]) * weight;
      allowed += std::abs(weight) / 253;
    }
    if (!(std::abs(static_cast<double>(y.data<float>()[e]) - sum) <= allowed)) return false;
  }
  return true;
}

std::vector<BlockFormat> chosen_formats(const std::string& only) {
  std::vector<BlockFormat> chosen;
  for (const BlockFormat format : quantized::block_formats())
    if (name_of(format).find(only) != std::string_view::npos) chosen.push_back(format);
  TUTTI_CHECK(!chosen.empty(),
              "bench quantized: no format is named like '{}'; there are Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K "
              "Q5_K Q6_K",
              only);
  return chosen;
}

}  // namespace

std::vector<QuantizedRow> run_quantized_bench(const QuantizedProblem& p) {
  TUTTI_CHECK(p.k % 256 == 0, "bench quantized: k is {}; expected a multiple of 256", p.k);
  const NoGradScope no_grad;
  const double peak = int8_peak_gops() * p.threads;
  std::vector<QuantizedRow> rows;
  for (const BlockFormat format : chosen_formats(p.only)) {
    const Tensor blocks = quantized::sample_blocks(1, format, p.n, p.k), decoded = dequantize(blocks, format);
    WeightCopies all(blocks, p.small), all_decoded(decoded, p.small);
    for (const int64_t m : p.rows) {
      const Tensor x = facets::sample_tensor(2, {m, p.k}, DType::f32, -1, 1);
      uint64_t read = 0;
      const std::vector<Timing> times =
          measure_in_turns({[&] { quantized_linear(x, all.next(), format); }, [&] { linear(x, all_decoded.next()); },
                            [&] { read ^= read_all(all.next()); }},
                           p.small ? 1 : 1500);
      const double gops = 2e-3 * static_cast<double>(m * p.n * p.k) / times[0].min_us;
      const double nbytes = static_cast<double>(blocks.nbytes());
      rows.push_back({.format = std::string(name_of(format)),
                      .m = m,
                      .time = times[0],
                      .f32 = times[1],
                      .gops = gops,
                      .peak_share = gops / peak,
                      .gbytes_per_s = 1e-3 * nbytes / times[0].min_us,
                      .read_share = times[2].min_us / times[0].min_us,
                      .verified = is_near(x, decoded, quantized_linear(x, blocks, format))});
    }
  }
  return rows;
}

}  // namespace tutti::bench
