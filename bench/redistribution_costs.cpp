#include "bench/redistribution_costs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "bench/collective_time.h"
#include "tutti/autograd/tape.h"
#include "tutti/dist/dtensor.h"
#include "tutti/dist/redistribute.h"

namespace tutti::bench {
namespace {

using dist::Mesh;
using dist::StepKind;

constexpr int64_t kLargeBytes = 4 << 20;

struct Move {
  StepKind kind;
  Placement from, to;
};

// The redistribution that is this step, of a tensor of ranks * side rows and columns.
struct Timed {
  double us, bytes;
};
Timed time_move(const Mesh& mesh, const Move& move, int64_t side) {
  const int64_t n = mesh->size() * side;
  const Tensor t = dist::redistribute(dist::zeros({n, n}, mesh), {move.from});
  const dist::RedistributePlan plan = dist::plan_redistribution(dist::spec_of(t), dist::spec_of(t).with({move.to}));
  TUTTI_ASSERT(plan.steps.size() == 1 && plan.steps[0].kind == move.kind, "{} is no {}", plan.to_string(),
               name_of(move.kind));
  return {time_us(*mesh->group(), [&] { dist::redistribute(t, {move.to}); }), plan.bytes};
}

}  // namespace

dist::MeasuredCosts measure_costs(comm::ProcessGroup& world, bool talk) {
  const NoGradScope no_grad;
  const Move moves[] = {{StepKind::gather, dist::shard(0), dist::replicate()},
                        {StepKind::exchange, dist::shard(0), dist::shard(1)},
                        {StepKind::all_reduce, dist::partial(), dist::replicate()},
                        {StepKind::reduce_scatter, dist::partial(), dist::shard(0)}};
  std::vector<int> counts;
  for (int n = 2; n < world.size(); n *= 2) counts.push_back(n);
  if (world.size() > 1) counts.push_back(world.size());
  TUTTI_CHECK(!counts.empty(), "bench comm --costs: one rank moves nothing; start two or more");
  dist::MeasuredCosts costs;
  for (const int count : counts) {
    const Mesh mesh = dist::init_device_mesh("cpu", {count});
    std::vector<double> found;  // latency and bandwidth of each move
    for (const Move& move : moves) {
      found.insert(found.end(), {0, 0});
      if (!mesh->has_coordinate()) continue;
      int64_t side = 1;
      while (4 * (side + 1) * (side + 1) * count * count <= kLargeBytes) ++side;
      const Timed small = time_move(mesh, move, 1), large = time_move(mesh, move, side);
      found.end()[-2] = small.us;
      found.end()[-1] = large.bytes / std::max(large.us - small.us, 0.01 * large.us);
    }
    // Ranks outside hear what was found.
    world.broadcast(Tensor::from_memory(found.data(), {static_cast<int64_t>(found.size())}, DType::f64, {}), 0);
    for (size_t i = 0; i < std::size(moves); ++i) {
      costs.set(mesh->transports()[0], moves[i].kind, count,
                {.latency = found[2 * i], .bytes_per_us = found[2 * i + 1]});
      if (talk && world.rank() == 0) {
        std::fprintf(stderr, "%s over %d ranks of %s: %.2f us and %.0f bytes per us\n",
                     std::string(name_of(moves[i].kind)).c_str(), count, mesh->transports()[0].c_str(), found[2 * i],
                     found[2 * i + 1]);
      }
    }
  }
  return costs;
}

}  // namespace tutti::bench
