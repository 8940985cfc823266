// Compiled functions over distributed tensors: arguments, results and what they hold. They have the bits, layouts and
// gradients of eager calls, and are traced once per layout.
#include "tutti/graph/compile.h"
#include "tests/dtensor/support/layouts.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/graph/control.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/dropout.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/numerics.h"
#include "tutti/tensor/tensor_slot.h"

namespace tutti::dist {
namespace {

Tensor on(const Mesh& mesh, const Tensor& t, Placements p) { return distribute_tensor(t, mesh, std::move(p)); }

// Throws where the two differ in layout, or in the bits of this rank's part.
void require_alike(const Tensor& a, const Tensor& b, const std::string& about) {
  if (a.defined() != b.defined()) throw std::logic_error("one is undefined; " + about);
  if (!a.defined()) return;
  if (is_dtensor(a) != is_dtensor(b)) throw std::logic_error("one is distributed; " + about);
  if (!is_dtensor(a)) return require_none(difference(a, b), about);
  if (&spec_of(a) != &spec_of(b))
    throw std::logic_error(spec_of(a).to_string() + " against " + spec_of(b).to_string() + "; " + about);
  require_none(difference(to_local(a), to_local(b)), about);
}
template <class T>
void require_equal(const T& a, const T& b, const std::string& about) {
  if (!(a == b)) throw std::logic_error(fmt::format("{} against {}; {}", a, b, about));
}

Tensor mlp(const Tensor& x, const Tensor& up, const Tensor& down) { return matmul(silu(matmul(x, up)), down); }

Tensor flag_of(bool value) { return full({}, value ? 1.0 : 0.0, DType::boolean); }

struct Weights {
  Tensor up, down;
};
// Column- and row-parallel along the last dim of the mesh.
Weights weights_on(const Mesh& mesh, int64_t width, int64_t hidden, DType dtype, bool learn) {
  Placements columns(static_cast<size_t>(mesh->ndim()), replicate()), rows = columns;
  columns.back() = shard(1), rows.back() = shard(0);
  Weights w{on(mesh, sample({width, hidden}, dtype, 2), columns), on(mesh, sample({hidden, width}, dtype, 3), rows)};
  if (learn) requires_grad_(w.up), requires_grad_(w.down);
  return w;
}

struct Case {
  std::vector<int64_t> mesh;
  int64_t rows, width, hidden;
  DType dtype;
  std::string transport = "";
};
std::vector<Case> cases() {
  std::vector<Case> list;
  for (const std::vector<int64_t>& mesh : {std::vector<int64_t>{2}, {4}, {2, 2}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      list.push_back({mesh, 6, 8, 12, dtype});
      list.push_back({mesh, 3, 5, 7, dtype});
      list.push_back({mesh, 2, 3, 2, dtype});  // four ranks: some have nothing
    }
  }
  for (const int64_t ranks : {2, 4}) list.push_back({{ranks}, 3, 5, 7, DType::f32, "shm"});
  return list;
}

void on_case(const Case& c, const std::function<void(const Mesh&, const std::string&)>& fn) {
  MeshOptions options;
  if (!c.transport.empty()) options.transports["0"] = c.transport;
  const std::string about = fmt::format("{} ranks in {} dims, {} x {} x {} {} {}", ranks_of(c.mesh), c.mesh.size(),
                                        c.rows, c.width, c.hidden, name_of(c.dtype), c.transport);
  on_mesh(c.mesh, [&](const Mesh& mesh) { fn(mesh, about); }, options);
}

TEST(CompiledDTensors, AnMlpHasTheBitsAndTheLayoutOfAnEagerCall) {
  const codegen::ContractionLeafForTests leaf(1);
  for (const Case& c : cases()) {
    const Tensor whole = sample({c.rows, c.width}, c.dtype);
    const Tensor expected =
        mlp(whole, sample({c.width, c.hidden}, c.dtype, 2), sample({c.hidden, c.width}, c.dtype, 3));
    on_case(c, [&](const Mesh& mesh, const std::string& about) {
      const auto f = compile([](const Tensor& x, const Tensor& up, const Tensor& down) { return mlp(x, up, down); },
                             {.name = "mlp"});
      const Weights w = weights_on(mesh, c.width, c.hidden, c.dtype, false);
      for (uint64_t call = 0; call < 5; ++call) {
        const Tensor values = call == 0 ? whole : sample({c.rows, c.width}, c.dtype, 10 + call);
        const Tensor x = on(mesh, values, {});
        const Tensor y = f(x, w.up, w.down);
        require_alike(y, mlp(x, w.up, w.down), about);
        if (call == 0) require_none(difference(full_tensor(y), expected), about);
      }
      require_equal(f.statistics().compiles, int64_t{1}, about);
      // The splits of exchanges between uneven parts are tensors that the trace makes, and so holds.
      if (c.hidden % 4 == 0) require_equal(f.statistics().looks, int64_t{0}, about);
    });
  }
}

TEST(CompiledDTensors, GradientsHaveTheBitsAndTheLayoutsOfAnEagerBackward) {
  const codegen::ContractionLeafForTests leaf(1);
  const auto loss = [](const Tensor& x, const Tensor& up, const Tensor& down) {
    const Tensor y = mlp(x, up, down);
    return sum(mul(y, y));
  };
  for (const Case& c : cases()) {
    on_case(c, [&](const Mesh& mesh, const std::string& about) {
      const auto f = compile(loss, {.name = "loss"});
      const Weights eager = weights_on(mesh, c.width, c.hidden, c.dtype, true),
                    w = weights_on(mesh, c.width, c.hidden, c.dtype, true);
      for (uint64_t call = 0; call < 3; ++call) {  // gradients add up
        const Tensor values = sample({c.rows, c.width}, c.dtype, 10 + call);
        const Tensor x = requires_grad_(on(mesh, values, {})), x_eager = requires_grad_(on(mesh, values, {}));
        const Tensor l = f(x, w.up, w.down), l_eager = loss(x_eager, eager.up, eager.down);
        require_alike(l, l_eager, about);
        backward(l);
        backward(l_eager);
        require_alike(grad_of(x), grad_of(x_eager), about + ", x");
        require_alike(grad_of(w.up), grad_of(eager.up), about + ", up");
        require_alike(grad_of(w.down), grad_of(eager.down), about + ", down");
      }
      require_equal(f.statistics().compiles, int64_t{1}, about);
    });
  }
}

TEST(CompiledDTensors, ResultsThatAreNoScalarsTakeCotangentsOfAnyLayout) {
  const codegen::ContractionLeafForTests leaf(2);
  on_mesh({2}, [](const Mesh& mesh) {
    const auto f =
        compile([](const Tensor& x, const Tensor& w) { return std::pair(matmul(x, w), mul(x, 2.0)); }, {.name = "two"});
    const Tensor w = requires_grad_(on(mesh, sample({6, 4}, DType::f32, 2), {shard(0)})),
                 w_eager = requires_grad_(on(mesh, sample({6, 4}, DType::f32, 2), {shard(0)}));
    for (const Placement& of_cotangent : {replicate(), shard(0), shard(1)}) {
      const Tensor x = requires_grad_(on(mesh, sample({5, 6}), {shard(1)})),
                   x_eager = requires_grad_(on(mesh, sample({5, 6}), {shard(1)}));
      const auto [y, z] = f(x, w);
      const Tensor y_eager = matmul(x_eager, w_eager),
                   cotangent = on(mesh, sample({5, 4}, DType::f32, 7), {of_cotangent});
      require_alike(y, y_eager, "y");
      backward(y, cotangent);  // z is not used
      backward(y_eager, cotangent);
      require_alike(grad_of(x), grad_of(x_eager), "x");
      require_alike(grad_of(w), grad_of(w_eager), "w");
    }
    require_equal(f.statistics().compiles, int64_t{1}, "compiles");
  });
}

TEST(CompiledDTensors, EachUseOfALeafIsDeliveredByItself) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto twice = [](const Tensor& x, const Tensor& w) { return sum(mul(add(mul(x, w), 1.0), w)); };
    const auto f = compile(twice, {.name = "twice"});
    const Tensor x = on(mesh, sample({5, 3}), {shard(0)});
    const Tensor w = requires_grad_(on(mesh, sample({3}, DType::f32, 2), {})),
                 w_eager = requires_grad_(on(mesh, sample({3}, DType::f32, 2), {}));
    backward(f(x, w), {}, {.per_use = true});
    backward(twice(x, w_eager), {}, {.per_use = true});
    const std::vector<Tensor> uses = take_uses(w), uses_eager = take_uses(w_eager);
    require_equal(uses.size(), uses_eager.size(), "uses");
    require_equal(uses.size(), size_t{2}, "uses");
    for (size_t i = 0; i < uses.size(); ++i) require_alike(uses[i], uses_eager[i], fmt::format("use {}", i));
  });
}

TEST(CompiledDTensors, HeldWeightsGetTheirGradients) {
  const codegen::ContractionLeafForTests leaf(1);
  for (const Case& c : {Case{{2}, 3, 5, 7, DType::f32}, Case{{4}, 3, 5, 7, DType::bf16}}) {
    on_case(c, [&](const Mesh& mesh, const std::string& about) {
      const Weights eager = weights_on(mesh, c.width, c.hidden, c.dtype, true),
                    w = weights_on(mesh, c.width, c.hidden, c.dtype, true);
      const auto f = compile([&w](const Tensor& x) { return sum(mlp(x, w.up, w.down)); }, {.name = "held"});
      for (uint64_t call = 0; call < 9; ++call) {
        const Tensor x = on(mesh, sample({c.rows, c.width}, c.dtype, 10 + call), {});
        const Tensor l = f(x), l_eager = sum(mlp(x, eager.up, eager.down));
        require_alike(l, l_eager, about);
        backward(l);
        backward(l_eager);
        require_alike(grad_of(w.up), grad_of(eager.up), about);
        require_alike(grad_of(w.down), grad_of(eager.down), about);
        const NoGradScope no_grad;
        add_(w.up, 0.25);  // written in place: nothing to compile
        add_(eager.up, 0.25);
      }
      require_equal(f.statistics().compiles, int64_t{1}, about);
      require_equal(f.statistics().looks, int64_t{3}, about);  // at calls 2, 4 and 8
    });
  }
}

TEST(CompiledDTensors, HeldOnesThatAreReplacedAreTracedAgain) {
  on_mesh({2}, [](const Mesh& mesh) {
    Tensor w = on(mesh, sample({4, 3}, DType::f32, 2), {shard(0)});
    const auto f = compile([&w](const Tensor& x) { return mul(x, w); }, {.name = "held"});
    const Tensor x = on(mesh, sample({4, 3}), {shard(0)});
    for (int call = 0; call < 3; ++call) require_alike(f(x), mul(x, w), "before");
    w = on(mesh, sample({4, 3}, DType::f32, 5), {shard(0)});
    for (int call = 0; call < 3; ++call) require_alike(f(x), mul(x, w), "after");
    require_equal(f.statistics().compiles, int64_t{2}, "compiles");
    w = on(mesh, sample({4, 3}, DType::f32, 5), {shard(1)});
    require_alike(f(x), mul(x, w), "in another layout");
    require_equal(f.statistics().compiles, int64_t{3}, "compiles");
  });
}

struct Slot final : TensorSlot {
  explicit Slot(Tensor t) : tensor(std::move(t)) {}
  Tensor held() const override { return tensor; }
  std::string description() const override { return "parameter 'w'"; }
  Tensor tensor;
};

TEST(CompiledDTensors, SlotsGiveTheTensorOfTheCall) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto slot = std::make_shared<Slot>(requires_grad_(on(mesh, sample({4, 3}, DType::f32, 2), {shard(0)})));
    const auto f = compile([slot](const Tensor& x) { return sum(mul(x, read_slot(slot))); }, {.name = "scaled"});
    const Tensor x = on(mesh, sample({4, 3}), {shard(0)});
    for (uint64_t call = 0; call < 6; ++call) {
      if (call % 2 == 0) slot->tensor = requires_grad_(on(mesh, sample({4, 3}, DType::f32, call), {shard(0)}));
      else set_grad(slot->tensor, {});
      const Tensor eager = requires_grad_(on(mesh, full_tensor(detach(slot->tensor)), {shard(0)}));
      const Tensor l = f(x), l_eager = sum(mul(x, eager));
      require_alike(l, l_eager, "loss");
      backward(l);
      backward(l_eager);
      require_alike(grad_of(slot->tensor), grad_of(eager), "gradient");
    }
  });
}

TEST(CompiledDTensors, AnOptimizerStepWritesItsArguments) {
  for (const Case& c : cases()) {
    if (c.dtype != DType::f32) continue;
    on_case(c, [&](const Mesh& mesh, const std::string& about) {
      AdamWNumbers numbers;
      const AdamWStep betas{.lr = 0, .step = 1};
      const auto step = [&numbers, betas](const std::vector<Tensor>& p, const std::vector<Tensor>& g,
                                          const std::vector<Tensor>& m, const std::vector<Tensor>& v) {
        for (size_t i = 0; i < p.size(); ++i) adamw_step_(p[i], g[i], m[i], v[i], numbers, betas);
      };
      const auto f = compile(step, {.name = "adamw"});
      const auto state = [&] {
        const Weights w = weights_on(mesh, c.width, c.hidden, c.dtype, false);
        const auto zeros_like_of = [](const Tensor& t) { return mul(t, 0.0); };
        return std::vector<std::vector<Tensor>>{{w.up, w.down},
                                                {mul(w.up, 0.5), mul(w.down, -0.5)},
                                                {zeros_like_of(w.up), zeros_like_of(w.down)},
                                                {zeros_like_of(w.up), zeros_like_of(w.down)}};
      };
      const auto compiled = state(), eager = state();
      for (int64_t n = 1; n <= 6; ++n) {
        numbers.set({.lr = 1e-2 / static_cast<double>(n), .step = n});
        const uint32_t version = compiled[0][0].version();
        f(compiled[0], compiled[1], compiled[2], compiled[3]);
        if (to_local(compiled[0][0]).numel() > 0 && compiled[0][0].version() == version)
          throw std::logic_error("the version says that nothing was written; " + about);
        step(eager[0], eager[1], eager[2], eager[3]);
        for (size_t k = 0; k < 4; ++k) {
          for (size_t i = 0; i < 2; ++i) require_alike(compiled[k][i], eager[k][i], about);
        }
      }
      require_equal(f.statistics().compiles, int64_t{1}, about);
    });
  }
}

TEST(CompiledDTensors, AWholeTrainingStepIsOneGraph) {
  const codegen::ContractionLeafForTests leaf(1);
  for (const int64_t ranks : {2, 4}) {
    on_mesh({ranks}, [&](const Mesh& mesh) {
      struct Model {
        Weights w;
        std::vector<Tensor> m, v;
      };
      const auto model = [&] {
        Model made{weights_on(mesh, 5, 7, DType::f32, true), {}, {}};
        for (const Tensor& t : {made.w.up, made.w.down}) {
          made.m.push_back(mul(detach(t), 0.0));
          made.v.push_back(mul(detach(t), 0.0));
        }
        return made;
      };
      AdamWNumbers numbers;
      const auto step = [&numbers](const Model& on, const Tensor& x) {
        const Tensor y = mlp(x, on.w.up, on.w.down), loss = sum(mul(y, y));
        backward(loss);
        const NoGradScope no_grad;
        const Tensor leaves[] = {on.w.up, on.w.down};
        for (size_t i = 0; i < 2; ++i) {
          adamw_step_(leaves[i], grad_of(leaves[i]), on.m[i], on.v[i], numbers, {.lr = 0, .step = 1});
          set_grad(leaves[i], {});
        }
        return detach(loss);
      };
      const Model compiled = model(), eager = model();
      const auto f = compile([&](const Tensor& x) { return step(compiled, x); }, {.name = "step"});
      for (int64_t n = 1; n <= 5; ++n) {
        numbers.set({.lr = 1e-2, .step = n});
        const Tensor x = on(mesh, sample({3, 5}, DType::f32, 10 + static_cast<uint64_t>(n)), {});
        require_alike(f(x), step(eager, x), fmt::format("loss of step {}", n));
        require_alike(compiled.w.up, eager.w.up, fmt::format("up of step {}", n));
        require_alike(compiled.w.down, eager.w.down, fmt::format("down of step {}", n));
      }
      require_equal(f.statistics().compiles, int64_t{1}, "compiles");
    });
  }
}

TEST(CompiledDTensors, AGradientThatAHeldLeafHasIsAddedTo) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor w = requires_grad_(on(mesh, sample({4, 3}, DType::f32, 2), {shard(0)})),
                 w_eager = requires_grad_(on(mesh, sample({4, 3}, DType::f32, 2), {shard(0)}));
    const auto f = compile([&w](const Tensor& x) { backward(sum(mul(x, w))); }, {.name = "accumulate"});
    for (uint64_t call = 0; call < 5; ++call) {
      const Tensor x = on(mesh, sample({4, 3}, DType::f32, 3 + call), {shard(0)});
      f(x);
      backward(sum(mul(x, w_eager)));
      require_alike(grad_of(w), grad_of(w_eager), fmt::format("call {}", call));
    }
    require_equal(f.statistics().compiles, int64_t{2}, "compiles");  // without a gradient, and with one
  });
}

TEST(CompiledDTensors, ArgumentsThatGetGradientsGetThemInside) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto f = compile([](const Tensor& x, const Tensor& w) { backward(sum(mul(x, w))); }, {.name = "accumulate"});
    const Tensor w = requires_grad_(on(mesh, sample({5, 3}, DType::f32, 2), {shard(0)})),
                 w_eager = requires_grad_(on(mesh, sample({5, 3}, DType::f32, 2), {shard(0)}));
    for (uint64_t call = 0; call < 4; ++call) {
      const Tensor x = on(mesh, sample({5, 3}, DType::f32, 3 + call), {shard(0)});
      f(x, w);
      backward(sum(mul(x, w_eager)));
      require_alike(grad_of(w), grad_of(w_eager), fmt::format("call {}", call));
    }
    require_equal(f.statistics().compiles, int64_t{1}, "compiles");
  });
}

TEST(CompiledDTensors, AnotherPlacementIsAnotherKind) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto f = compile([](const Tensor& x) { return mul(x, 2.0); }, {.name = "twice"});
    const Tensor whole = sample({4, 4});
    const Tensor rows = on(mesh, whole, {shard(0)}), columns = on(mesh, whole, {shard(1)}),
                 chunks = distribute_tensor(sample({10, 4}), mesh, {shard(0)}, {.layout = {.cut = Cut::chunk}});
    for (int call = 0; call < 3; ++call) {
      require_alike(f(rows), mul(rows, 2.0), "rows");
      require_alike(f(columns), mul(columns, 2.0), "columns");
      require_alike(f(whole), mul(whole, 2.0), "plain");
      require_alike(f(chunks), mul(chunks, 2.0), "chunks");
    }
    require_equal(f.statistics().compiles, int64_t{4}, "compiles");
    const std::string said = f.explain();
    if (said.find("layout of tensor 0 is f32[4, 4]@[S(1)] on mesh(2), was f32[4, 4]@[S(0)] on mesh(2)") ==
        std::string::npos)
      throw std::logic_error(said);
    if (said.find("layout of tensor 0 is that of a plain tensor, was f32[4, 4]@[S(1)] on mesh(2)") == std::string::npos)
      throw std::logic_error(said);
  });
}

TEST(CompiledDTensors, PartsOfOtherStridesAreAnotherKind) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto f = compile([](const Tensor& x) { return mul(x, 2.0); }, {.name = "twice"});
    const Tensor part = sample({4, 3}), turned = transpose(sample({3, 4}), 0, 1);
    for (int call = 0; call < 3; ++call) {
      for (const Tensor& p : {part, turned}) {
        const Tensor x = from_local(p, mesh, {shard(0)});
        require_alike(f(x), mul(x, 2.0), "parts");
      }
    }
    require_equal(f.statistics().compiles, int64_t{2}, "compiles");
  });
}

TEST(CompiledDTensors, MeshesThatAreMadeAnewAreTracedAnew) {
  comm::run_ranks(2, [](comm::ProcessGroup&) {
    const auto f = compile([](const Tensor& x) { return full_tensor(x); }, {.name = "gather"});
    const Tensor whole = sample({5, 2});
    for (int64_t made = 1; made <= 3; ++made) {
      const Mesh mesh = init_device_mesh("cpu", {2});
      for (int call = 0; call < 2; ++call) require_none(difference(f(on(mesh, whole, {shard(0)})), whole), "whole");
      require_equal(f.statistics().compiles, made, "compiles");
    }
    const Mesh other = init_device_mesh("cpu", {2}, {.names = {"tp"}});
    require_none(difference(f(on(other, whole, {shard(0)})), whole), "whole");
    require_equal(f.statistics().compiles, int64_t{4}, "compiles");
  });
}

TEST(CompiledDTensors, AMeshThatIsGoneIsAnError) {
  comm::run_ranks(2, [](comm::ProcessGroup&) {
    Mesh mesh = init_device_mesh("cpu", {2}, {.names = {"tp"}});
    const auto f = compile([&mesh](const Tensor& x) { return from_local(x, mesh, {shard(0)}); }, {.name = "wrap"});
    const Tensor part = sample({2, 3});
    for (int call = 0; call < 2; ++call)
      require_equal(spec_of(f(part)).to_string(), std::string("f32[4, 3]@[S(0)]"), "layout");
    mesh = nullptr;
    const std::string said = message_of([&] { f(part); });
    if (said.find("f32[4, 3]@[S(0)], and mesh(tp=2) no longer exists on this rank; keep a handle") == std::string::npos)
      throw std::logic_error(said);
  });
}

TEST(CompiledDTensors, RanksThatAreThreadsMayShareAFunction) {
  const auto f = compile([](const Tensor& x) { return mul(x, 2.0); }, {.name = "shared"});
  on_mesh({4}, [&](const Mesh& mesh) {
    for (int call = 0; call < 3; ++call) {
      const Tensor x = on(mesh, sample({5, 3}, DType::f32, static_cast<uint64_t>(call)), {shard(0)});
      require_alike(f(x), mul(x, 2.0), "parts of other sizes");
    }
    require_equal(f.statistics().compiles, int64_t{1}, "compiles of a rank");
  });
}

TEST(CompiledDTensors, ViewsAndArgumentsAsResultsShareMemory) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto f = compile(
        [](const Tensor& x) {
          add_(x, 1.0);
          return std::tuple(x, transpose(x, 0, 1), to_local(x), mul(x, 2.0));
        },
        {.name = "views"});
    const Tensor whole = sample({5, 3});
    for (int call = 0; call < 3; ++call) {
      const Tensor x = on(mesh, whole, {shard(0)}), x_eager = on(mesh, whole, {shard(0)});
      const auto [same, turned, part, doubled] = f(x);
      add_(x_eager, 1.0);
      if (!same.is_same(x)) throw std::logic_error("the argument is another tensor");
      require_alike(turned, transpose(x_eager, 0, 1), "turned");
      require_equal(turned.strides(), transpose(x_eager, 0, 1).strides(), "strides");
      require_alike(doubled, mul(x_eager, 2.0), "doubled");
      if (part.storage().get() != to_local(x).storage().get() ||
          to_local(turned).storage().get() != part.storage().get())
        throw std::logic_error("memory is not shared");
      require_alike(x, x_eager, "x");
    }
    require_equal(f.statistics().compiles, int64_t{1}, "compiles");
  });
}

TEST(CompiledDTensors, RandomNumbersAreThoseOfAnEagerCall) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto draw = [](const Tensor& x, const RandomKey& key) { return dropout(x, 0.5, key); };
    const auto f = compile(draw, {.name = "dropout"});
    const Tensor x = on(mesh, sample({7, 6}), {shard(0)});
    for (uint64_t step = 0; step < 4; ++step) {
      RandomKey key = random_key("drop");
      key.step = static_cast<decltype(key.step)>(step);
      require_alike(f(x, key), draw(x, key), fmt::format("step {}", step));
    }
    require_equal(f.statistics().compiles, int64_t{1}, "compiles");
  });
}

TEST(CompiledDTensors, VerifiedCallsCompareTheParts) {
  const codegen::ContractionLeafForTests leaf(1);
  on_mesh({2}, [](const Mesh& mesh) {
    const Weights w = weights_on(mesh, 5, 7, DType::f32, true);
    const auto f = compile(
        [&w](const Tensor& x, const Tensor& target) {
          add_(target, 1.0);
          return mul(mlp(x, w.up, w.down), target);
        },
        {.name = "verified", .verify = 1});
    for (int call = 0; call < 3; ++call)
      f(on(mesh, sample({3, 5}), {}), on(mesh, sample({3, 5}, DType::f32, 4), {shard(0)}));
    require_equal(f.statistics().verified_calls, int64_t{3}, "verified");
  });
}

TEST(CompiledDTensors, GradientsOfGradientsRunTheFunctionAgain) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto cube = [](const Tensor& x) { return mul(mul(x, x), x); };
    const auto f = compile(cube, {.name = "cube"});
    const auto second = [&](const auto& fn) {
      const Tensor x = requires_grad_(on(mesh, sample({5, 3}), {shard(0)}));
      const Tensor y = sum(fn(x));
      const Tensor first = grad({{y}}, {{x}}, {}, {.create_graph = true})[0];
      return grad({{sum(first)}}, {{x}})[0];
    };
    require_alike(second(f), second(cube), "second derivative");
  });
}

TEST(CompiledDTensors, BranchesTakePlainTensorsOnly) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor x = on(mesh, sample({4, 4}), {shard(0)});
    using List = std::span<const Tensor>;
    const auto held = compile(
        [&x](const Tensor& flag) {
          return cond(flag, [&](List) { return to_local(mul(x, 2.0)); }, [&](List) { return to_local(neg(x)); });
        },
        {.name = "held"});
    EXPECT_USAGE_ERROR(held(flag_of(true)), "branches and loop bodies take plain tensors only");
    const auto given = compile(
        [](const Tensor& flag, const Tensor& t) {
          return cond(flag, [](List a) { return mul(a[0], 2.0); }, [](List a) { return neg(a[0]); }, {t});
        },
        {.name = "given"});
    EXPECT_USAGE_ERROR(given(flag_of(true), x), "where a plain tensor is expected; pass its part (to_local())");
    const auto part = compile(
        [](const Tensor& flag, const Tensor& t) {
          return from_local(
              cond(
                  flag, [](List a) { return mul(a[0], 2.0); }, [](List a) { return neg(a[0]); }, {to_local(t)})[0],
              mesh_of(t), {shard(0)});
        },
        {.name = "part"});
    require_alike(part(flag_of(true), x), mul(x, 2.0), "first branch");
    require_alike(part(flag_of(false), x), neg(x), "second branch");
  });
}

TEST(CompiledDTensors, TheNumericsModeIsPartOfTheKind) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto sum_of_two = [](const Tensor& a, const Tensor& b) {
      return add(a, b);
    };  // fast mode adds terms before they are reduced
    const auto f = compile(sum_of_two, {.name = "sum"});
    const Tensor a = redistribute(on(mesh, sample({4, 3}), {}), {partial()}),
                 b = redistribute(on(mesh, sample({4, 3}, DType::f32, 2), {}), {partial()});
    for (int call = 0; call < 2; ++call) {
      for (const NumericsMode mode : {NumericsMode::strict, NumericsMode::fast}) {
        const NumericsScope scope(mode);
        require_alike(f(a, b), sum_of_two(a, b), "sum");
      }
    }
    require_equal(f.statistics().compiles, int64_t{2}, "compiles");
  });
}

TEST(CompiledDTensors, PlainArgumentsBesideThemMayHaveSymbolicSizes) {
  on_mesh({2}, [](const Mesh& mesh) {
    const Tensor scale = on(mesh, sample({4}), {shard(0)});
    const auto f = compile([](const Tensor& x, const Tensor& s) { return std::pair(mul(x, 3.0), mul(s, 2.0)); },
                           {.name = "beside"});
    for (int64_t rows = 2; rows < 9; ++rows) {
      const Tensor x = sample({rows, 3});
      const auto [a, b] = f(x, scale);
      require_alike(a, mul(x, 3.0), "plain");
      require_alike(b, mul(scale, 2.0), "distributed");
    }
    require_equal(f.statistics().compiles, int64_t{2}, "compiles");
  });
}

// A view shares the memory of its tensor where it moves nothing, and is a copy where it does: as a result, inside, and
// as an argument.
TEST(CompiledDTensors, ViewsAreWrittenWhereTheyShareMemoryOnAllRanks) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2}, std::vector<int64_t>{2, 1}, std::vector<int64_t>{1, 3}}) {
    on_mesh(shape, [](const Mesh& mesh) {
      for (const Placements& p : choices_of({replicate(), shard(0), shard(1)}, static_cast<size_t>(mesh->ndim()))) {
        const Tensor whole = sample({4, 6});
        const auto base = [&] { return clone(distribute_tensor(whole, mesh, p, {.src_data_rank = -1})); };
        const auto narrowed = [](const Tensor& x) { return narrow(x, 1, 1, 2); };
        bool is_copy = false;
        for (size_t axis = 0; axis < p.size(); ++axis)
          is_copy = is_copy || (p[axis] == shard(1) && mesh->shape()[axis] > 1);
        const std::string about = spec_of(base()).to_string() + " on " + mesh->to_string();
        const auto check = [&](const char* what, const std::string& said) {
          require_none((said != "no error") == is_copy ? "" : said, std::string(what) + " for " + about);
        };
        const Tensor shown = compile(narrowed)(base()), inside = base(), given = base(), view = narrowed(given),
                     wanted = clone(whole);
        check("the result", message_of([&] { mul_(shown, 10.0); }));
        const auto write = compile([&](const Tensor& x) { return mul_(narrowed(x), 10.0); });
        check("the write", message_of([&] { write(inside); }));
        if (!is_copy) mul_(narrowed(wanted), 10.0);
        require_none(difference_of_part(inside, wanted), "the write for " + about);
        const auto double_it = compile([](const Tensor& x) { return mul_(x, 2.0); });
        check("the argument", message_of([&] { double_it(view); }));
        if (!is_copy) continue;
        const auto read = compile([](const Tensor& x) { return add(x, 1.0); });
        read(view);
        mul_(given, 2.0);
        require_none(
            message_of([&] { read(view); }).find("has been written since") != std::string::npos ? "" : "it was read",
            "the argument for " + about);
      }
    });
  }
}

// The same views as results of a compiled function: what they show is known after the call, or the function may not
// return them.
TEST(CompiledDTensors, ReturnedCopiesAreNotReadOnceTheirTensorWasWritten) {
  on_mesh({2}, [](const Mesh& mesh) {
    const auto base = [&] { return clone(distribute_tensor(sample({4, 6}), mesh, {shard(0)}, {.src_data_rank = -1})); };
    const auto narrowed = [](const Tensor& x) { return narrow(x, 0, 1, 2); };
    const auto require_stale = [](const Tensor& view, const char* about) {
      const std::string said = message_of([&] { full_tensor(view); });
      require_none(said.find("has been written since") != std::string::npos ? "" : "it was read: " + said, about);
    };
    const auto shown = compile(narrowed);
    for (int call = 0; call < 2; ++call) {
      const Tensor x = base(), view = shown(x), other = base();
      add_(other, 1.0);
      require_none(difference(full_tensor(view), narrowed(sample({4, 6}))), "a view of what was not written");
      add_(x, 1.0);
      require_stale(view, "a view of an argument");
    }
    const Tensor x = base(), first = narrowed(x),
                 second = compile([](const Tensor& t) { return narrow(t, 0, 0, 1); })(first);
    require_none(difference(full_tensor(second), narrow(sample({4, 6}), 0, 1, 1)), "a view of a view");
    add_(x, 1.0);
    require_stale(second, "a view of a view");

    const Tensor y = base(), z = base();
    const std::vector<Tensor> both =
        compile([&](const Tensor& a, const Tensor& b) { return std::vector<Tensor>{narrowed(b), mul(a, 2.0)}; })(y, z);
    add_(y, 1.0);
    require_none(message_of([&] { full_tensor(both[0]); }) == "no error" ? "" : "it was not read",
                 "a view of the other argument");
    add_(z, 1.0);
    require_stale(both[0], "a view of the second argument");

    const auto with_base = compile([&](const Tensor& t) {
      const Tensor made = mul(t, 2.0);
      return std::vector<Tensor>{narrowed(made), made};
    });
    require_none(
        message_of([&] { with_base(base()); }).find("TUTTI-CAPTURE-040") != std::string::npos ? "" : "it was returned",
        "a view beside its tensor");
    const Tensor held = base();
    const auto of_held = compile([&](const Tensor& t) { return std::vector<Tensor>{narrowed(held), mul(t, 2.0)}; });
    require_none(
        message_of([&] { of_held(base()); }).find("TUTTI-CAPTURE-040") != std::string::npos ? "" : "it was returned",
        "a view of a held tensor");
    const auto alone = compile([&](const Tensor& t) { return narrowed(mul(t, 2.0)); });
    require_none(difference(full_tensor(alone(base())), mul(narrowed(sample({4, 6})), 2.0)),
                 "a view of what the function made");
  });
}

}  // namespace
}  // namespace tutti::dist
