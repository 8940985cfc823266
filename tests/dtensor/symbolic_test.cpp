// Symbolic sizes of distributed tensors in compiled functions: dims that no mesh dim shards vary without a trace of
// their own, as those of plain tensors do, and results have the bits of eager calls in every size.
#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/dropout.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"

namespace tutti::dist {
namespace {

Tensor on(const Mesh& mesh, const Tensor& t, Placements p) {
  return distribute_tensor(t, mesh, std::move(p), {.src_data_rank = -1});
}

template <class T>
void require_equal(const T& a, const T& b, const std::string& about) {
  if (!(a == b)) throw std::logic_error(fmt::format("{} against {}; {}", a, b, about));
}

void require_same_whole(const Tensor& a, const Tensor& b, const std::string& about) {
  if (is_dtensor(a) != is_dtensor(b)) throw std::logic_error("one is distributed; " + about);
  if (!is_dtensor(a)) return require_none(difference(a, b), about);
  require_equal(a.extents(), b.extents(), about);
  require_none(difference(full_tensor(a), full_tensor(b)), about);
}

Tensor mlp(const Tensor& x, const Tensor& up, const Tensor& down) { return matmul(silu(matmul(x, up)), down); }

// How often a function of a plain tensor is traced while its rows vary: once for the first size, once for all others.
constexpr int64_t kTraces = 2;

TEST(SymbolicDTensors, RowsThatNoRankSharesAreTracedOnce) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto triple = [](const Tensor& x) { return mul(x, 3.0); };
    const auto plain = compile(triple, {.name = "plain"});
    for (const Placement& p : {replicate(), shard(1)}) {
      const auto f = compile(triple, {.name = "triple"});
      for (int64_t rows = 2; rows < 12; ++rows) {
        const Tensor whole = sample({rows, 5}), x = on(mesh, whole, {p});
        const Tensor y = f(x);
        require_equal(spec_of(y).to_string(), spec_of(triple(x)).to_string(), "layout");
        require_same_whole(y, triple(x), fmt::format("{} rows, {}", rows, tutti::to_string(p)));
        require_none(difference(plain(whole), triple(whole)), "plain");
      }
      require_equal(f.statistics().compiles, plain.statistics().compiles, tutti::to_string(p));
      require_equal(f.statistics().compiles, kTraces, f.explain());
    }
  });
}

TEST(SymbolicDTensors, AnMlpOfParallelLayersIsTracedOncePerKindForAllBatches) {
  const codegen::ContractionLeafForTests leaf(1);
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2}, std::vector<int64_t>{4}, std::vector<int64_t>{2, 2}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      on_mesh(shape, [&](const Mesh& mesh) {
        Placements columns(shape.size(), replicate()), rows = columns;
        columns.back() = shard(1), rows.back() = shard(0);
        const auto weights = [&] {
          return std::pair(requires_grad_(on(mesh, sample({8, 12}, dtype, 2), columns)),
                           requires_grad_(on(mesh, sample({12, 8}, dtype, 3), rows)));
        };
        const auto [up, down] = weights();
        const auto [eager_up, eager_down] = weights();
        const auto f =
            compile([&, up = up, down = down](const Tensor& x) { return mlp(x, up, down); }, {.name = "mlp"});
        for (int64_t batch = 2; batch < 9; ++batch) {
          const std::string about = fmt::format("{} rows, {} {}", batch, mesh->to_string(), name_of(dtype));
          const Tensor whole = sample({batch, 8}, dtype, static_cast<uint64_t>(batch));
          const Tensor x = requires_grad_(on(mesh, whole, {})), eager_x = requires_grad_(on(mesh, whole, {}));
          const Tensor y = f(x), expected = mlp(eager_x, eager_up, eager_down);
          require_same_whole(y, expected, about);
          const Tensor cotangent = on(mesh, sample({batch, 8}, dtype, 7), {});
          backward(y, cotangent);
          backward(expected, cotangent);
          require_same_whole(grad_of(x), grad_of(eager_x), "gradient of x, " + about);
          require_same_whole(grad_of(up), grad_of(eager_up), "gradient of up, " + about);
          require_same_whole(grad_of(down), grad_of(eager_down), "gradient of down, " + about);
        }
        // A gradient that is there is added to outside of the function.
        require_equal(f.statistics().compiles, kTraces, f.explain());
      });
    }
  }
}

TEST(SymbolicDTensors, BatchesOfSequencesToo) {
  const codegen::ContractionLeafForTests leaf(1);
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor up = on(mesh, sample({8, 12}, DType::f32, 2), {shard(1)}),
                 down = on(mesh, sample({12, 8}, DType::f32, 3), {shard(0)});
    const auto layer = [](const Tensor& x, const Tensor& a, const Tensor& b) { return add(x, mlp(x, a, b)); };
    const auto f = compile(layer, {.name = "layer"});
    for (int64_t batch = 2; batch < 6; ++batch) {
      for (const int64_t length : {3, 4, 7}) {
        const Tensor x = on(mesh, sample({batch, length, 8}), {});
        require_same_whole(f(x, up, down), layer(x, up, down), fmt::format("{} x {}", batch, length));
      }
    }
    // A third one where the second dim varies as well.
    require_equal(f.statistics().compiles, int64_t{3}, f.explain());
  });
}

// Whatever a function does with a size, the results are those of an eager call.
TEST(SymbolicDTensors, EveryKindOfOpHasTheBitsOfAnEagerCall) {
  const codegen::ContractionLeafForTests leaf(2);
  struct Case {
    const char* name;
    std::function<Tensor(const Tensor&)> fn;
  };
  const std::vector<Case> all = {
      {"exp", [](const Tensor& x) { return exp(x); }},
      {"softmax of columns", [](const Tensor& x) { return softmax(x, 1); }},
      {"softmax of rows", [](const Tensor& x) { return softmax(x, 0); }},
      {"sum of rows", [](const Tensor& x) { return sum(x, {.dims = {0}}); }},
      {"sum of columns", [](const Tensor& x) { return sum(x, {.dims = {1}}); }},
      {"sum", [](const Tensor& x) { return sum(x); }},
      {"mean", [](const Tensor& x) { return mean(x); }},
      {"mean of columns", [](const Tensor& x) { return mean(x, {.dims = {1}, .keepdim = true}); }},
      {"transposed", [](const Tensor& x) { return mul(transpose(x, 0, 1), 2.0); }},
      {"a transposed view", [](const Tensor& x) { return transpose(x, 0, 1); }},
      {"gram", [](const Tensor& x) { return matmul(x, transpose(x, 0, 1)); }},
      {"covariance", [](const Tensor& x) { return matmul(transpose(x, 0, 1), x); }},
      {"flat", [](const Tensor& x) { return mul(reshape(x, {-1}), 2.0); }},
      {"split columns", [](const Tensor& x) { return neg(reshape(x, {x.size(0), 2, 3})); }},
      {"merged again", [](const Tensor& x) { return reshape(neg(reshape(x, {x.size(0), 2, 3})), {x.size(0), 6}); }},
      {"expanded", [](const Tensor& x) { return mul(expand(reshape(x, {x.size(0), 1, 6}), {x.size(0), 4, 6}), 2.0); }},
      {"first rows", [](const Tensor& x) { return slice(x, 0, 0, 2); }},
      {"last row", [](const Tensor& x) { return slice(x, 0, -1, x.size(0)); }},
      {"all but one", [](const Tensor& x) { return neg(slice(x, 0, 1, x.size(0))); }},
      {"columns", [](const Tensor& x) { return slice(x, 1, 1, 4); }},
      {"twice", [](const Tensor& x) { return cat(std::vector<Tensor>{x, neg(x)}, 0); }},
      {"twice in columns", [](const Tensor& x) { return cat(std::vector<Tensor>{x, neg(x)}, 1); }},
      {"dropout", [](const Tensor& x) { return dropout(x, 0.5, random_key("drop")); }},
      {"as many as rows", [](const Tensor& x) { return truediv(x, x.size(0)); }},
      {"a branch on a size", [](const Tensor& x) { return x.size(0) > 6 ? mul(x, 2.0) : neg(x); }},
      {"an integer", [](const Tensor& x) { return mul(x, static_cast<double>(x.extents()[0])); }},
      {"a layout", [](const Tensor& x) { return mul(x, static_cast<double>(spec_of(x).sizes()[0])); }},
      {"rows on ranks",
       [](const Tensor& x) {
         return neg(redistribute(x, Placements(static_cast<size_t>(mesh_of(x)->ndim()), shard(0))));
       }},
      {"columns on ranks",
       [](const Tensor& x) {
         return neg(redistribute(x, Placements(static_cast<size_t>(mesh_of(x)->ndim()), shard(1))));
       }},
      {"whole", [](const Tensor& x) { return full_tensor(x); }},
      {"part", [](const Tensor& x) { return neg(to_local(x)); }},
      {"part and back",
       [](const Tensor& x) {
         return from_local(neg(to_local(x)), mesh_of(x), placements_of(x), {.sizes = x.extents()});
       }},
      {"terms",
       [](const Tensor& x) {
         return full_tensor(
             redistribute(full_tensor(x).defined()
                              ? redistribute(x, Placements(static_cast<size_t>(mesh_of(x)->ndim()), replicate()))
                              : x,
                          Placements(static_cast<size_t>(mesh_of(x)->ndim()), partial())));
       }},
      {"in place", [](const Tensor& x) { return add_(mul(x, 2.0), 1.0); }},
      {"like it", [](const Tensor& x) { return add(full_like(x, 2.0), x); }},
      {"normed",
       [](const Tensor& x) {
         return truediv(sub(x, mean(x, {.dims = {1}, .keepdim = true})),
                        sqrt(add(var(x, {.dims = {1}, .keepdim = true}), 1e-5)));
       }},
  };
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2}, std::vector<int64_t>{2, 2}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      for (const Case& c : all) {
        for (const Placement& p : {replicate(), shard(1), shard(0)}) {
          const auto f = compile(c.fn, {.name = "case"});
          for (const int64_t rows : {4, 5, 8, 4}) {
            const Tensor x =
                on(mesh, sample({rows, 6}, DType::f32, static_cast<uint64_t>(rows)), Placements(shape.size(), p));
            std::string failed;
            Tensor y;
            try {
              y = f(x);
            } catch (const Error& error) {
              failed = error.what();
            }
            const std::string about =
                fmt::format("{}, {} rows, {} on {}", c.name, rows, tutti::to_string(p), mesh->to_string());
            if (!failed.empty()) throw std::logic_error(failed + "; " + about);
            require_same_whole(y, c.fn(x), about);
          }
        }
      }
    });
  }
}

TEST(SymbolicDTensors, PlainTensorsAndNumbersStandBesideThem) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto fn = [](const Tensor& x, const Tensor& number, const Tensor& plain) {
      return std::pair(mul(x, number), add(plain, 1.0));
    };
    const auto f = compile(fn, {.name = "beside"});
    for (int64_t rows = 2; rows < 8; ++rows) {
      const Tensor x = on(mesh, sample({rows, 4}), {shard(1)}), number = sample({1}, DType::f32, 5),
                   plain = sample({rows + 2, 3});
      const auto [a, b] = f(x, number, plain);
      require_same_whole(a, fn(x, number, plain).first, fmt::format("{} rows", rows));
      require_none(difference(b, fn(x, number, plain).second), "plain");
    }
    require_equal(f.statistics().compiles, kTraces, f.explain());
  });
}

TEST(SymbolicDTensors, DimsThatAFunctionCutsAreIntegers) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto cut = [](const Tensor& x) { return mul(redistribute(x, {shard(0)}), 2.0); };
    const auto f = compile(cut, {.name = "cut"});
    for (int64_t rows = 2; rows < 7; ++rows) {
      const Tensor x = on(mesh, sample({rows, 4}), {});
      const Tensor y = f(x);
      require_equal(spec_of(y).to_string(), spec_of(cut(x)).to_string(), "layout");
      require_same_whole(y, cut(x), fmt::format("{} rows", rows));
    }
    require_equal(f.statistics().compiles, int64_t{5}, f.explain());
  });
}

TEST(SymbolicDTensors, AreDeclaredByDynamic) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto f =
        compile([](const Tensor& x) { return mul(x, 2.0); }, {.name = "twice", .dynamic = {dynamic(0, 0, 2, 16)}});
    for (int64_t rows = 2; rows < 9; ++rows) {
      const Tensor x = on(mesh, sample({rows, 4}), {shard(1)});
      require_same_whole(f(x), mul(x, 2.0), fmt::format("{} rows", rows));
    }
    require_equal(f.statistics().compiles, int64_t{1}, f.explain());
    EXPECT_USAGE_ERROR(f(on(mesh, sample({17, 4}), {shard(1)})), "declared as dynamic from 2 to 16");
    EXPECT_USAGE_ERROR(
        f(on(mesh, sample({4, 4}), {shard(0)})),
        "dim 0 of tensor 0, which is [4, 4] f32 cpu [S(0)] on mesh(2); sizes that ranks share are integers");
  });
}

TEST(SymbolicDTensors, ATrainingStepTakesAnyBatch) {
  const codegen::ContractionLeafForTests leaf(1);
  on_mesh({2}, [](const Mesh& mesh) {
    struct Model {
      Tensor up, down;
      std::vector<Tensor> m, v;
    };
    const auto model = [&] {
      Model made{requires_grad_(on(mesh, sample({6, 8}, DType::f32, 2), {shard(1)})),
                 requires_grad_(on(mesh, sample({8, 6}, DType::f32, 3), {shard(0)})),
                 {},
                 {}};
      for (const Tensor& t : {made.up, made.down})
        made.m.push_back(mul(detach(t), 0.0)), made.v.push_back(mul(detach(t), 0.0));
      return made;
    };
    AdamWNumbers numbers;
    const auto step = [&numbers](const Model& on, const Tensor& x) {
      const Tensor y = mlp(x, on.up, on.down), loss = mean(mul(y, y));
      backward(loss);
      const NoGradScope no_grad;
      const Tensor leaves[] = {on.up, on.down};
      for (size_t i = 0; i < 2; ++i) {
        adamw_step_(leaves[i], grad_of(leaves[i]), on.m[i], on.v[i], numbers, {.lr = 0, .step = 1});
        set_grad(leaves[i], {});
      }
      return detach(loss);
    };
    const Model compiled = model(), eager = model();
    const auto f = compile([&](const Tensor& x) { return step(compiled, x); }, {.name = "step"});
    for (int64_t n = 1; n <= 8; ++n) {
      numbers.set({.lr = 1e-2, .step = n});
      const Tensor x = on(mesh, sample({n + 1, 6}, DType::f32, 10 + static_cast<uint64_t>(n)), {});
      require_same_whole(f(x), step(eager, x), fmt::format("loss of step {}", n));
      require_same_whole(compiled.up, eager.up, fmt::format("up of step {}", n));
      require_same_whole(compiled.down, eager.down, fmt::format("down of step {}", n));
    }
    require_equal(f.statistics().compiles, kTraces, f.explain());
  });
}

}  // namespace
}  // namespace tutti::dist
