// Redistribution that returns before its last collective has ended.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/functional/async_result.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::dist {
namespace {

constexpr RedistributeOptions kAsync{.async_op = true};

struct Move {
  Placements from, to;
  Extents sizes;
  DType dtype = DType::f32;
  Cut cut = Cut::halving;
};

std::string text_of(const Move& m) {
  return fmt::format("{}{} from {} to {}", name_of(m.dtype), m.sizes, to_string(m.from), to_string(m.to));
}

// Moves over three ranks whose last step that moves bytes is followed by nothing, by putting pieces together, by adding
// and by rounding.
const std::vector<Move>& moves() {
  static const std::vector<Move> all = {
      {{shard(0)}, {replicate()}, {6, 9}},
      {{shard(1)}, {replicate()}, {6, 9}},
      {{shard(0)}, {replicate()}, {5, 4}},
      {{shard(0)}, {shard(1)}, {6, 9}},
      {{shard(1)}, {shard(0)}, {5, 7}},
      {{shard(0)}, {shard(1)}, {7, 5}, DType::bf16, Cut::chunk},
      {{partial()}, {replicate()}, {6, 9}},
      {{partial()}, {shard(0)}, {6, 9}},
      {{partial()}, {shard(1)}, {6, 9}},
      {{partial()}, {shard(0)}, {5, 7}},
      {{partial()}, {replicate()}, {6, 9}, DType::bf16},
      {{partial()}, {shard(0)}, {5, 7}, DType::bf16},
      {{partial(PartialOp::avg)}, {shard(1)}, {6, 8}},
      {{partial(PartialOp::max)}, {replicate()}, {6, 8}},
      {{shard(0)}, {partial()}, {6, 8}},
  };
  return all;
}

// The tensor before the move: terms differ from rank to rank.
Tensor before(const Move& m, const Mesh& mesh, uint64_t seed = 1) {
  if (m.from[0].is_partial())
    return from_local(sample(m.sizes, m.dtype, seed + static_cast<uint64_t>(mesh->rank())), mesh, m.from);
  return distribute_tensor(sample(m.sizes, m.dtype, seed), mesh, m.from,
                           {.layout = {.cut = m.cut}, .src_data_rank = -1});
}

// Ranks after the first wait here for it.
class FirstRank {
 public:
  void returned() {
    const std::lock_guard lock(mutex_);
    ++times_;
    changed_.notify_all();
  }
  void wait_for_return(int times, const std::string& about) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return times_ >= times; }))
      throw std::logic_error("the first rank waits for the others: " + about);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int times_ = 0;
};

TEST(AsyncRedistribute, ReturnsBeforeOtherRanksHaveCalledIt) {
  FirstRank first;
  on_mesh({3}, [&](const Mesh& mesh) {
    int times = 0;
    for (const Move& m : moves()) {
      const Tensor t = before(m, mesh);
      const Tensor expected = redistribute(t, m.to);
      if (mesh->rank() != 0) first.wait_for_return(++times, text_of(m));
      const Tensor moved = redistribute(t, m.to, kAsync);
      if (mesh->rank() == 0) first.returned();
      require_none(difference(to_local(mul(moved, 2.0)), to_local(mul(expected, 2.0))), text_of(m));
    }
  });
}

TEST(AsyncRedistribute, TheInputMayBeOverwrittenAtOnce) {
  FirstRank first;
  on_mesh({3}, [&](const Mesh& mesh) {
    int times = 0;
    for (const Move& m : moves()) {
      const Tensor t = before(m, mesh);
      const Tensor expected = redistribute(t, m.to);
      if (mesh->rank() != 0) first.wait_for_return(++times, text_of(m));
      const Tensor moved = redistribute(t, m.to, kAsync);
      fill_(to_local(t), -7.0);
      if (mesh->rank() == 0) first.returned();
      require_none(difference(to_local(moved), to_local(expected)), text_of(m));
    }
  });
}

TEST(AsyncRedistribute, HasTheBitsAndGradientsOfTheWaitingForm) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3}, std::vector<int64_t>{4}, std::vector<int64_t>{2, 2}, std::vector<int64_t>{2, 3}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      for (const Placement& a : {replicate(), shard(0), shard(1), partial()}) {
        for (const Placement& b : {replicate(), shard(0), shard(1), partial()}) {
          for (const DType dtype : {DType::f32, DType::bf16}) {
            for (const Extents& sizes : {Extents{5, 7}, Extents{12, 4}, Extents{1, 3}}) {
              const Placements from(shape.size(), a);
              Placements to(shape.size(), b);
              if (shape.size() == 2 && b.is_shard()) to[1] = shard(1 - b.dim());
              const Move m{from, to, sizes, dtype};
              const auto result = [&](const RedistributeOptions& options) {
                // A sharded dim of one element leaves ranks empty.
                const Tensor leaf = requires_grad_(
                    a.is_partial() ? before(m, mesh)
                                   : distribute_tensor(sample(sizes, dtype), mesh, from, {.src_data_rank = -1}));
                const Tensor moved = redistribute(leaf, to, options);
                if (!b.is_partial()) backward(sum(mul(moved, sample(sizes, dtype, 5).numel() > 0 ? 0.375 : 1.0)));
                return std::pair(moved, b.is_partial() ? Tensor() : grad_of(leaf));
              };
              const auto [waiting, waiting_grad] = result({});
              const auto [moved, grad] = result(kAsync);
              if (&spec_of(moved) != &spec_of(waiting))
                throw std::logic_error(spec_of(moved).to_string() + "; " + text_of(m));
              require_none(difference(to_local(moved), to_local(waiting)), text_of(m));
              if (grad.defined())
                require_none(difference(to_local(grad), to_local(waiting_grad)), "gradient, " + text_of(m));
            }
          }
        }
      }
    });
  }
}

TEST(AsyncRedistribute, TheGradientIsOnItsWayToo) {
  FirstRank first;
  on_mesh({2}, [&](const Mesh& mesh) {
    const Tensor leaf = requires_grad_(distribute_tensor(sample({5, 7}), mesh, {shard(0)}, {.src_data_rank = -1}));
    const Tensor moved = redistribute(leaf, {shard(1)}, kAsync);
    const Tensor cotangent = distribute_tensor(sample({5, 7}, DType::f32, 3), mesh, {shard(1)}, {.src_data_rank = -1});
    comm::functional::wait_tensor(to_local(moved));
    if (mesh->rank() != 0) first.wait_for_return(1, "backward");
    backward(moved, cotangent);
    if (mesh->rank() == 0) first.returned();
    require_none(difference(to_local(grad_of(leaf)), to_local(redistribute(cotangent, {shard(0)}))), "gradient");
  });
}

TEST(AsyncRedistribute, OtherMeshesToo) {
  FirstRank first;
  comm::run_ranks(4, [&](comm::ProcessGroup& world) {
    const Mesh whole = init_device_mesh("cpu", {4}), square = init_device_mesh("cpu", {2, 2});
    const Tensor t = distribute_tensor(sample({5, 6}), whole, {shard(0)}, {.src_data_rank = -1});
    const Tensor expected = redistribute(t, square, {shard(1), shard(0)});
    if (world.rank() != 0) first.wait_for_return(1, "another mesh");
    const Tensor moved = redistribute(t, square, {shard(1), shard(0)}, kAsync);
    if (world.rank() == 0) first.returned();
    require_none(difference(to_local(moved), to_local(expected)), "another mesh");
  });
}

TEST(AsyncRedistribute, CompiledFunctionsHaveItsBits) {
  on_mesh({3}, [](const Mesh& mesh) {
    for (const Move& m : moves()) {
      const auto moved_and_doubled = [&](const Tensor& t) { return mul(redistribute(t, m.to, kAsync), 2.0); };
      const auto moved_only = [&](const Tensor& t) { return redistribute(t, m.to, kAsync); };
      const auto doubled = [](const Tensor& t) { return mul(t, 2.0); };
      const auto inside = compile(moved_and_doubled, {.name = "inside"});
      const auto result = compile(moved_only, {.name = "result"});
      const auto argument = compile(doubled, {.name = "argument"});
      for (uint64_t call = 0; call < 3; ++call) {
        const Tensor t = before(m, mesh, 10 * call + 1);
        const Tensor moved = redistribute(t, m.to);
        require_none(difference(to_local(inside(t)), to_local(mul(moved, 2.0))), "inside, " + text_of(m));
        require_none(difference(to_local(result(t)), to_local(moved)), "result, " + text_of(m));
        require_none(difference(to_local(argument(redistribute(t, m.to, kAsync))), to_local(mul(moved, 2.0))),
                     "argument, " + text_of(m));
      }
    }
  });
}

// What nobody reads is never put together, and ends with whatever the rank waits for next.
TEST(AsyncRedistribute, ResultsMayBeDropped) {
  on_mesh({3}, [](const Mesh& mesh) {
    RankContext::current().allocator().reset_peak();
    const Tensor t = distribute_tensor(sample({50, 70}), mesh, {shard(0)}, {.src_data_rank = -1});
    for (int i = 0; i < 1000; ++i) redistribute(t, {shard(1)}, kAsync);
    require_none(difference(full_tensor(redistribute(t, {shard(1)}, kAsync)), sample({50, 70})),
                 "after a thousand that were dropped");
    const int64_t peak = RankContext::current().allocator().statistics().peak_bytes;
    if (peak > int64_t{8} << 20) throw std::logic_error(fmt::format("{} bytes at most", peak));
  });
}

}  // namespace
}  // namespace tutti::dist
