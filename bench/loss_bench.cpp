#include "bench/loss_bench.h"

#include <cmath>
#include <cstring>

#include "bench/fma_peak.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

double mebibytes(int64_t nbytes) { return static_cast<double>(nbytes) / (1 << 20); }

struct Pass {
  const char* name;
  bool x, weight;  // gradients that are asked for
};

enum class Way : uint8_t { unfused, fused, in_forward };
constexpr const char* kNames[] = {"unfused", "fused", "in forward"};

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return a.dtype() == b.dtype() && a.extents() == b.extents() &&
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

// The mean over all rows, none of which is ignored, as a program without the fused loss writes it.
Tensor unfused_loss(const LossCase& p, const Tensor& x, const Tensor& weight, const Tensor& labels) {
  const Tensor losses =
      cross_entropy(matmul(x, transpose(weight, 0, 1), {.out_dtype = compute_dtype(p.dtype)}), labels);
  return truediv(sum(losses, {.dims = {0}, .leaf = token_grain()}), static_cast<double>(p.tokens));
}

}  // namespace

std::string shape_of(const LossCase& p) { return fmt::format("{} x {} x {}", p.tokens, p.features, p.vocab); }

std::vector<LossRow> run_loss_bench(const LossCase& p) {
  RankContext& context = RankContext::current();
  context.set_threads(p.threads);
  seed_all(1);
  const Tensor x = cast(uniform({p.tokens, p.features}, random_key("x"), -1.0, 1.0), p.dtype);
  const double scale = 4 / std::sqrt(static_cast<double>(p.features));
  const Tensor weight = cast(uniform({p.vocab, p.features}, random_key("weight"), -scale, scale), p.dtype);
  const Tensor labels =
      cast(floor(uniform({p.tokens}, random_key("labels"), 0.0, static_cast<double>(p.vocab))), DType::i64);

  std::vector<LossRow> rows;
  for (const Pass& pass : {Pass{"forward", false, false}, Pass{"all gradients", true, true},
                           Pass{"frozen weight", true, false}, Pass{"frozen input", false, true}}) {
    if (std::string(pass.name).find(p.only) == std::string::npos) continue;
    requires_grad_(x, pass.x);
    requires_grad_(weight, pass.weight);
    std::vector<Tensor> wanted, expected;
    if (pass.x) wanted.push_back(x);
    if (pass.weight) wanted.push_back(weight);
    for (const Way way : {Way::unfused, Way::fused, Way::in_forward}) {
      if (way == Way::in_forward && (!p.in_forward || wanted.empty())) continue;
      std::vector<Tensor> results;
      const auto run = [&] {
        results.clear();
        const LossGradients gradients = way == Way::in_forward ? LossGradients::in_forward : LossGradients::recomputed;
        const Tensor loss =
            way == Way::unfused
                ? unfused_loss(p, x, weight, labels)
                : linear_cross_entropy(x, weight, labels, {.max_bytes = p.max_bytes, .gradients = gradients});
        const Tensor outputs[] = {loss};
        if (!wanted.empty()) results = grad(outputs, wanted);
        results.push_back(detach(loss));
      };
      // The first call compiles kernels and takes memory from the system; it is not timed.
      context.allocator().release_cached();
      const int64_t before = context.allocator().statistics().current_bytes;
      context.allocator().reset_peak();
      run();
      LossRow row{.what = kNames[static_cast<size_t>(way)], .pass = pass.name};
      const int64_t peak = context.allocator().statistics().peak_bytes;
      int64_t gradients = 0;
      for (const Tensor& t : results) gradients += t.nbytes();
      row.peak_mbytes = mebibytes(peak - before + x.nbytes() + weight.nbytes());
      row.held_mbytes = mebibytes(peak - before - gradients);
      row.timing = measure_each(run, p.repeats);
      if (expected.empty()) expected = results;
      for (size_t i = 0; i < results.size(); ++i) row.verified = row.verified && same_bits(results[i], expected[i]);
      row.peak_gflops = fma_peak_gflops();
      row.gflops = 2.0 * static_cast<double>(p.tokens * p.features) * static_cast<double>(p.vocab) *
                   (1 + pass.x + pass.weight) / row.timing.min_cpu_us * 1e-3;
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace tutti::bench
