// Compiled functions that several ranks share because they are threads of one process, as users write them. Each rank
// goes by its own calls, so that results, gradients and collectives are those of ranks that are processes, and a hang
// ends at the timeout of the mesh.
#include <array>
#include <chrono>
#include <thread>

#include "tests/dtensor/support/shared_calls.h"
#include "tutti/autograd/tape.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/graph/compile.h"
#include "tutti/job/errors.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/statistics.h"

namespace tutti::dist {
namespace {

using namespace std::chrono_literals;

template <class T>
void require_equal(const T& a, const T& b, const std::string& about) {
  if (!(a == b)) throw std::logic_error(fmt::format("{} against {}; {}", a, b, about));
}

// A function that the process has once, as users write it.
template <class Fn>
SharedFunction shared(const char* name, Fn fn, CompileOptions options = {}) {
  options.name = name;
  return {name, compile(fn, std::move(options)), fn};
}

std::vector<SharedFunction> functions_of_a_user() {
  using Options = CompileOptions;
  const auto mlp = [](const Tensor& a, const Tensor& b) { return matmul(silu(a), transpose(b, 0, 1)); };
  const auto gathered = [](const Tensor& a, const Tensor& b) {
    return is_dtensor(a) ? mul(full_tensor(a), full_tensor(b)) : mul(a, b);
  };
  const auto scores = [](const Tensor& a, const Tensor& b) { return mul(softmax(a, -1), b); };
  const auto total = [](const Tensor& a, const Tensor& b) { return mul(sum(a), mean(b)); };
  return {
      shared("mlp", mlp, {.recompile_limit = 64}),
      shared("gathered", gathered, {.recompile_limit = 64}),
      shared("scores", scores, {.recompile_limit = 64}),
      shared("total", total, {.recompile_limit = 64}),
      shared("scores of fixed sizes", scores, {.on_limit = Options::OnLimit::forget, .sizes = Options::Sizes::fixed}),
      shared("total, eager past the limit", total, {.recompile_limit = 3, .on_limit = Options::OnLimit::eager}),
      shared("total, forgetting", total, {.recompile_limit = 3, .on_limit = Options::OnLimit::forget}),
      shared("total, verified", total, {.on_limit = Options::OnLimit::forget, .verify = 3}),
      shared("total, looked at", total, {.on_limit = Options::OnLimit::forget, .look = Options::Look::every_call}),
      shared("total, compiled in the background", total,
             {.on_limit = Options::OnLimit::forget, .first_call = Options::FirstCall::runs_eager})};
}

TEST(SharedFunctions, ThoseOfAUserHaveTheBitsOfOneRank) {
  const codegen::ContractionLeafForTests leaf(2);
  const std::vector<SharedFunction> all = functions_of_a_user();
  for (const std::vector<int64_t>& shape : kSharedMeshes) check_shared(shape, all);
}

// A function may ask where in the mesh it is: what it did there is of no use to another rank.
TEST(SharedFunctions, PlacesThatATraceAskedForAreThoseOfItsRank) {
  const auto placed = [](const Tensor& x) { return mul(x, static_cast<double>(mesh_of(x)->coordinate().back() + 1)); };
  const auto f = compile(placed, {.name = "placed", .on_limit = CompileOptions::OnLimit::forget});
  for (const std::vector<int64_t>& shape : kSharedMeshes) {
    on_mesh(
        shape,
        [&](const Mesh& mesh) {
          for (const Placements& layout : layouts_on(mesh)) {
            for (const int64_t rows : kSharedRows) {
              const Tensor x = on_ranks(mesh, shared_first(rows), layout);
              require_none(difference(to_local(f(x)), to_local(placed(x))),
                           fmt::format("{} rows as {} on {}", rows, to_string(layout), mesh->to_string()));
            }
          }
        },
        kShortTimeout);
  }
}

// As many kinds of calls on each rank as the limit allows.
TEST(SharedFunctions, TheLimitOfKindsIsThatOfARank) {
  const auto f = compile([](const Tensor& x) { return mul(x, 2.0); },
                         {.name = "kinds", .recompile_limit = 4, .sizes = CompileOptions::Sizes::fixed});
  on_mesh(
      {4},
      [&](const Mesh& mesh) {
        for (int call = 0; call < 3; ++call) {
          for (int64_t columns = 1; columns <= 4; ++columns)
            require_whole(f(on_ranks(mesh, sample({6, columns}), {shard(0)})), mul(sample({6, columns}), 2.0), "kinds");
        }
        require_equal(f.statistics().compiles, int64_t{4}, f.explain());
      },
      kShortTimeout);
}

// Which sizes vary is decided by a rank's own calls, whatever the others have called meanwhile.
TEST(SharedFunctions, ARankThatIsLateTracesWhatTheOthersDid) {
  for (int late = 0; late < 3; ++late) {
    const auto f = compile([](const Tensor& x) { return sum(mul(x, 2.0), {.dims = {1}}); }, {.name = "late"});
    std::array<std::string, 3> told;
    on_mesh(
        {3},
        [&](const Mesh& mesh) {
          const auto rank = static_cast<size_t>(mesh->rank());
          if (mesh->rank() == late) std::this_thread::sleep_for(100ms);
          for (const int64_t rows : kSharedRows) f(on_ranks(mesh, shared_first(rows), {replicate()}));
          told[rank] = fmt::format("{} traces, {} members", f.statistics().compiles, f.statistics().members);
        },
        kShortTimeout);
    EXPECT_EQ(told[1], told[0]);
    EXPECT_EQ(told[2], told[0]);
  }
}

// The graph of a rank names groups that other ranks do not have.
TEST(SharedFunctions, PlainTensorsMeetInTheGroupsOfTheirRank) {
  static thread_local comm::ProcessGroup* line = nullptr;
  for (const int dim : {0, 1}) {
    const auto f = compile(
        [](const Tensor& x) {
          return comm::functional::wait_tensor(comm::functional::all_reduce(mul(x, 2.0), "sum", *line));
        },
        {.name = "line"});
    on_mesh(
        {2, 2},
        [&](const Mesh& mesh) {
          line = mesh->group(dim).get();
          const double sum = 2.0 * (line->world_ranks()[0] + line->world_ranks()[1]);
          for (const int64_t rows : kSharedRows)
            require_none(
                difference(f(tutti::full({rows}, static_cast<double>(mesh->rank()))), tutti::full({rows}, sum)),
                "line");
        },
        kShortTimeout);
  }
}

TEST(SharedFunctions, StepsOfOptimizersWriteThePartsOfTheirRank) {
  const auto step = [](const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v) {
    AdamWNumbers numbers;
    numbers.set({.lr = 1e-2, .step = 1});
    adamw_step_(w, g, m, v, numbers, {.lr = 1e-2, .step = 1});
  };
  const auto shared_step = compile(step, {.name = "step", .on_limit = CompileOptions::OnLimit::forget});
  for (const std::vector<int64_t>& shape : kSharedMeshes) {
    on_mesh(
        shape,
        [&](const Mesh& mesh) {
          for (const Placements& layout : layouts_on(mesh)) {
            for (const int64_t rows : kSharedRows) {
              const std::string about = fmt::format("{} rows as {} on {}", rows, to_string(layout), mesh->to_string());
              const Tensor whole[] = {shared_first(rows), shared_second(rows), mul(shared_first(rows), 0.0),
                                      mul(shared_first(rows), 0.0)};
              std::vector<Tensor> parts;
              for (const Tensor& t : whole) parts.push_back(on_ranks(mesh, clone(t), layout));
              for (int k = 0; k < 2; ++k) {
                step(whole[0], whole[1], whole[2], whole[3]);
                shared_step(parts[0], parts[1], parts[2], parts[3]);
              }
              for (size_t i : {0, 2, 3}) require_whole(parts[i], whole[i], about);
            }
          }
        },
        kShortTimeout);
  }
}

// A function outlives ranks, and ranks outlive functions; what a rank compiled goes with either.
TEST(SharedFunctions, WhatARankCompiledGoesWithIt) {
  const Tensor held = sample({3});
  const auto f = compile([&held](const Tensor& x) { return add(x, held); }, {.name = "held"});
  const auto handles = [&held] { return held.impl()->references.load(); };
  const auto before = handles();
  for (int round = 0; round < 3; ++round) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      for (int call = 0; call < 3; ++call) f(sample({3}, DType::f32, static_cast<uint64_t>(call)));
      if (handles() <= before) throw std::logic_error("the function does not hold it");
      group.barrier();
    });
    EXPECT_EQ(handles(), before);
  }
  comm::run_ranks(3, [&](comm::ProcessGroup&) {
    for (int made = 0; made < 200; ++made) {
      const auto own = compile([&held](const Tensor& x) { return sub(x, held); }, {.name = "own"});
      own(held);
    }
  });
  EXPECT_EQ(handles(), before);
}

// Two meshes of equal ranks, shape and names have one id, and groups of their own.
TEST(SharedFunctions, AMeshOfEqualRanksIsAnotherKind) {
  on_mesh(
      {2},
      [&](const Mesh& mesh) {
        const auto f = compile([](const Tensor& x) { return redistribute(x, {shard(1)}); }, {.name = "moved"});
        const Mesh other = init_device_mesh("cpu", {2}, kShortTimeout);
        for (const Mesh& m : {mesh, other, mesh, other}) {
          const Tensor y = f(on_ranks(m, shared_first(4), {shard(0)}));
          if (mesh_of(y) != m) throw std::logic_error("the result is on the other mesh");
        }
        require_equal(f.statistics().compiles, int64_t{2}, f.explain());
      },
      kShortTimeout);
}

TEST(SharedFunctions, TheTimeoutOfAMeshEndsItsCalls) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2}, {2, 2}}) {
    std::string said = "no error";
    try {
      on_mesh(shape,
              [](const Mesh& mesh) {
                const Tensor x =
                    on_ranks(mesh, shared_first(4), Placements(static_cast<size_t>(mesh->ndim()), shard(0)));
                if (mesh->rank() != 0) std::this_thread::sleep_for(1500ms);
                full_tensor(x);
              },
              {.timeout = 300ms});
    } catch (const comm::TimeoutError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find("300 ms"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace tutti::dist
