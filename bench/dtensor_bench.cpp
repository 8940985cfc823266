#include "bench/dtensor_bench.h"

#include <algorithm>
#include <vector>

#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/random.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

using dist::distribute_tensor;
using dist::Mesh;
using dist::replicate;
using dist::shard;

// All ranks make the same number of calls, because some communicate.
Timing time_calls(const std::function<void()>& call, int calls, int batches) {
  std::vector<double> samples;
  for (int i = 0; i < std::min(calls, 20); ++i) call();
  for (int b = 0; b < batches; ++b) {
    const double begin = now_us(MeasuredTime::wall);
    for (int i = 0; i < calls; ++i) call();
    samples.push_back((now_us(MeasuredTime::wall) - begin) / calls);
  }
  std::sort(samples.begin(), samples.end());
  return {samples.front(), samples[samples.size() / 2]};
}

struct Parameters {
  std::vector<Tensor> weights, gradients, means, variances;
};

}  // namespace

void run_dtensor_bench(const DTensorCase& problem, const std::function<void(const DTensorRow&)>& report) {
  const int batches = problem.small ? 2 : 15;
  comm::run_ranks(problem.ranks, [&](comm::ProcessGroup& world) {
    RankContext::current().set_threads(1);
    const Mesh mesh = dist::init_device_mesh("cpu", {problem.ranks});
    const auto row = [&](const char* op, const char* layout, int calls, const std::function<void()>& plain,
                         const std::function<void()>& dtensor) {
      if (problem.small) calls = 2;
      const Timing of_plain = plain ? time_calls(plain, calls, batches) : Timing{};
      world.barrier();
      const Timing of_dtensor = time_calls(dtensor, calls, batches);
      world.barrier();
      if (world.rank() == 0) report({op, layout, of_plain, of_dtensor});
    };
    const NoGradScope no_grad;
    const auto placed = [&](const Extents& sizes, dist::Placements p) {
      return distribute_tensor(normal(to_shape(sizes), random_key("x")), mesh, std::move(p));
    };

    const Tensor a = placed({16 * problem.ranks}, {shard(0)}), a_part = clone(dist::to_local(a));
    row("add", "[32] S(0), S(0)", 2000, [&] { add(a_part, a_part); }, [&] { add(a, a); });
    row("mul by a number", "[32] S(0)", 2000, [&] { mul(a_part, 0.5); }, [&] { mul(a, 0.5); });
    const Tensor x = placed({64, 64}, {replicate()}), w = placed({64, 64}, {shard(1)}),
                 x_part = clone(dist::to_local(x)), w_part = clone(dist::to_local(w));
    row("matmul", "[64, 64] R, S(1)", 500, [&] { matmul(x_part, w_part); }, [&] { matmul(x, w); });
    row("sum of rows", "[64, 64] S(1)", 1000, [&] { sum(w_part, {.dims = {0}}); }, [&] { sum(w, {.dims = {0}}); });
    const Tensor whole = placed({128, 128}, {replicate()}), cut = placed({128, 128}, {shard(0)});
    row("redistribute", "64 KiB, R to S(0)", 200, {}, [&] { dist::redistribute(whole, {shard(0)}); });
    row("redistribute", "64 KiB, S(0) to R", 200, {}, [&] { dist::redistribute(cut, {replicate()}); });
    row("redistribute", "64 KiB, S(0) to S(1)", 200, {}, [&] { dist::redistribute(cut, {shard(1)}); });
    const Tensor pending = dist::redistribute(whole, {dist::partial()});
    row("redistribute", "64 KiB, P to R", 200, {}, [&] { dist::redistribute(pending, {replicate()}); });

    Parameters parts, all;
    for (int i = 0; i < 300; ++i) {
      for (std::vector<Tensor>* list : {&all.weights, &all.gradients, &all.means, &all.variances})
        list->push_back(placed({64, 32}, {shard(0)}));
      parts.weights.push_back(clone(dist::to_local(all.weights.back())));
      parts.gradients.push_back(clone(dist::to_local(all.gradients.back())));
      parts.means.push_back(clone(dist::to_local(all.means.back())));
      parts.variances.push_back(clone(mul(dist::to_local(all.variances.back()), dist::to_local(all.variances.back()))));
    }
    const auto step = [](const Parameters& p) {
      for (size_t i = 0; i < p.weights.size(); ++i)
        adamw_step_(p.weights[i], p.gradients[i], p.means[i], p.variances[i], {.lr = 1e-3, .step = 1});
    };
    row("AdamW, 300 parameters", "[64, 32] S(0)", 5, [&] { step(parts); }, [&] { step(all); });
    const auto clip = [](const Parameters& p) {
      // Stacked while they are pending, so that one reduction serves all of them.
      std::vector<Tensor> squares;
      for (const Tensor& g : p.gradients) squares.push_back(sum(mul(g, g)));
      sum(stack(squares));
      for (const Tensor& g : p.gradients) mul_(g, 1.0);
    };
    row("norm and scale, 300 gradients", "[64, 32] S(0)", 5, [&] { clip(parts); }, [&] { clip(all); });
  });
}

}  // namespace tutti::bench
