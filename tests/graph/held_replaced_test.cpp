// Tensors that a function holds and that its program replaces: a call does what an eager run does, however they are
// replaced, wherever they are read, and whoever else owns the old ones. Where no Tensor object tells of it, the
// function is looked at.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/control.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using namespace graph_test;

constexpr int64_t kWidth = 3;

Tensor leaf(uint64_t seed) { return requires_grad_(values({kWidth}, seed)); }

struct Model {
  explicit Model(uint64_t seed) : weight(leaf(seed)), bias(leaf(seed + 1)) {}
  Tensor weight, bias;
};

// What a program holds, and a second owner of every tensor in it.
struct Held {
  Tensor variable = leaf(1);
  Model model{2};
  std::vector<Tensor> list = {leaf(4), leaf(5)};
  std::shared_ptr<Model> shared = std::make_shared<Model>(6);
  const Tensor* pointer = &variable;
  std::vector<Tensor> owners;

  Held() { list.reserve(8); }
  void own_again() { owners = leaves(); }
  std::vector<Tensor> leaves() const {
    std::vector<Tensor> all = {variable, model.weight, model.bias, shared->weight, shared->bias, *pointer};
    all.insert(all.end(), list.begin(), list.end());
    return all;
  }
};

struct Way {
  const char* name;
  std::function<void(Held&)> replace;
  bool is_seen = true;  // by the Tensor objects
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"w = w + 1", [](Held& h) { h.variable = requires_grad_(detach(add(h.variable, 1.0))); }},
      {"model = Model{}", [](Held& h) { h.model = Model(12); }},
      {"m.weight = full(...)", [](Held& h) { h.model.weight = requires_grad_(full({kWidth}, 2.5)); }},
      {"swap", [](Held& h) { std::swap(h.variable, h.model.bias); }},
      {"a shared model", [](Held& h) { h.shared = std::make_shared<Model>(17); }},
      {"an element", [](Held& h) { h.list[1] = leaf(20); }},
      {"a list that moves", [](Held& h) { h.list.shrink_to_fit(), h.list.push_back(leaf(21)); }},
      {"a shorter list", [](Held& h) { h.list.pop_back(); }},
      {"a list that grows where it is", [](Held& h) { h.list.push_back(leaf(22)); }, false},
      {"a pointer", [](Held& h) { h.pointer = h.pointer == &h.variable ? &h.model.bias : &h.variable; }, false},
  };
  return all;
}

// Every held tensor, added to rows of x with another weight each.
Tensor sum_of(const Held& h, Tensor y) {
  y = add(mul(y, h.variable), h.model.weight);
  for (const Tensor& t : h.list) y = add(mul(y, 0.5), t);
  const std::shared_ptr<Model> model = h.shared;
  return sub(mul(add(y, *h.pointer), model->weight), mul(model->bias, h.model.bias));
}

struct Kind {
  const char* name;
  std::function<Tensor(const Held&, const Tensor&)> fn;
  CompileOptions options = {};
};

using Options = CompileOptions;

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"by sizes", [](const Held& h, const Tensor& x) { return sum_of(h, x); }},
      {"fixed sizes", [](const Held& h, const Tensor& x) { return sum_of(h, x); }, {.sizes = Options::Sizes::fixed}},
      {"sizes that are asked for",
       [](const Held& h, const Tensor& x) { return mul(sum_of(h, x), static_cast<double>(x.extent(0))); }},
      {"views and copies",
       [](const Held& h, const Tensor& x) {
         const Tensor w = detach(h.variable), b = Tensor(h.model.bias);
         return sum_of(h,
                       add(mul(x, flip(slice(w, 0, 0, kWidth))), add(unsqueeze(b, 0), Tensor::of<float>({1, 2, 3}))));
       }},
      {"gradients inside",
       [](const Held& h, const Tensor& x) {
         const Tensor loss[] = {sum(mul(sum_of(h, x), x))};
         Tensor y = detach(loss[0]);
         for (const Tensor& g : grad(loss, h.leaves())) y = add(mul(y, 0.5), g);
         return y;
       }},
      {"backward inside",
       [](const Held& h, const Tensor& x) {
         const Tensor loss = sum(mul(sum_of(h, x), x));
         backward(loss);
         return detach(loss);
       }},
      {"a hook",
       [](const Held& h, const Tensor& x) {
         const Tensor y = exp(mul(sum_of(h, x), 0.125));
         register_hook(y, [&h](const Tensor& g) { return sum_of(h, g); });
         return mul(y, x);
       }},
      {"a hook alone",
       [](const Held& h, const Tensor& x) {
         const Tensor p = requires_grad_(mul(x, 0.5)), y = exp(p);
         register_hook(y, [&h](const Tensor& g) { return detach(sum_of(h, g)); });
         return grad(std::vector{sum(y)}, std::vector{p})[0];
       }},
      {"cond",
       [](const Held& h, const Tensor& x) {
         return cond(
             gt(sum(x), 0.0), [&](Span in) { return sum_of(h, in[0]); }, [&](Span in) { return neg(sum_of(h, in[0])); },
             {x})[0];
       }},
      {"while_loop",
       [](const Held& h, const Tensor& x) {
         const NoGradScope no_grad;
         return while_loop([](Span c) { return lt(c[0], 3); },
                           [&](Span c) { return std::vector{add(c[0], 1), sum_of(h, c[1])}; },
                           {Tensor::scalar<int64_t>(0), x})[1];
       }},
      {"scan",
       [](const Held& h, const Tensor& x) {
         const NoGradScope no_grad;
         const Tensor rows = expand(unsqueeze(x, 0), {20, x.size(0), kWidth});
         return scan([&](Span c, Span in) { return ScanStep{{mul(sum_of(h, in[0]), c[0])}, {}}; },
                     {ones({x.extent(0), kWidth})}, {rows})
             .carried[0];
       }},
      {"random numbers", [](const Held& h, const Tensor& x) { return dropout(sum_of(h, x), 0.5, random_key("held")); }},
      {"segments",
       [](const Held& h, const Tensor& x) {
         const Tensor y = sum_of(h, x);
         return sum_of(h, gt(sum(y), 0.0).item_int() != 0 ? mul(y, 2.0) : y);
       },
       {.on_break = Options::OnBreak::segment}},
      {"does not wait",
       [](const Held& h, const Tensor& x) { return sum_of(h, x); },
       {.first_call = Options::FirstCall::runs_eager}},
      {"without gradients",
       [](const Held& h, const Tensor& x) {
         const NoGradScope no_grad;
         return sum_of(h, x);
       }},
  };
  return all;
}

// A result and the gradients of all leaves after a backward of it.
std::vector<Tensor> outcome(const Held& held, const std::function<Tensor(const Tensor&)>& fn, const Tensor& x) {
  for (const Tensor& t : held.leaves()) set_grad(t, {});
  std::vector<Tensor> all = {fn(x)};
  if (requires_grad(all[0])) backward(sum(all[0]));
  for (const Tensor& t : held.leaves()) all.push_back(grad_of(t));
  for (const Tensor& t : held.leaves()) set_grad(t, {});
  all[0] = detach(all[0]);
  return all;
}

void expect_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
}

// Calls of two sizes; before call `when` the tensors are replaced, and once more six calls later.
template <class Check>
void run_replacing(const Kind& kind, const Way& way, Options options, int when, Check check) {
  Held held;
  options.name = kind.name;
  options.on_limit = Options::OnLimit::forget;
  const auto eager = [&](const Tensor& x) { return kind.fn(held, x); };
  const auto compiled = compile(eager, options);
  for (int call = 0; call < when + 9; ++call) {
    if (call == when - 1) held.own_again();  // the old ones live on
    if (call == when || call == when + 6) way.replace(held);
    const Tensor x = values({2 + (call / 2) % 3, kWidth}, static_cast<uint64_t>(call));
    SCOPED_TRACE(fmt::format("{}, {} before call {}, call {}", kind.name, way.name, when, call));
    check(call, [&] { return outcome(held, compiled, x); }, outcome(held, eager, x));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(HeldReplaced, WhateverReadsItAndHoweverItIsReplaced) {
  for (const Kind& kind : kinds()) {
    for (size_t w = 0; w < ways().size(); ++w) {
      if (!ways()[w].is_seen) continue;
      run_replacing(kind, ways()[w], kind.options, 1 + static_cast<int>(w) % 5,
                    [](int, auto call, const auto& expected) { expect_equal(call(), expected); });
      if (HasFailure()) return;
    }
  }
}

TEST(HeldReplaced, EverythingIsFoundWhenEveryCallIsLookedAt) {
  for (const Kind& kind : kinds()) {
    for (const Way& way : ways()) {
      if (way.is_seen) continue;
      Options options = kind.options;
      options.look = Options::Look::every_call;
      run_replacing(kind, way, options, 3,
                    [](int, auto call, const auto& expected) { expect_equal(call(), expected); });
      if (HasFailure()) return;
    }
  }
}

// One size, so that all calls are of one kind: a look is due at calls 2, 4, 8, 16.
TEST(HeldReplaced, WhatNoTensorObjectTellsOfIsAnErrorAtTheNextLook) {
  for (const Way& way : ways()) {
    if (way.is_seen) continue;
    for (const int when : {2, 3, 4, 5, 9}) {  // the first call with the new tensors
      Held held;
      const auto eager = [&](const Tensor& x) { return sum_of(held, x); };
      const auto f = compile(eager, {.name = "sum"});
      const int look = when <= 2 ? 2 : when <= 4 ? 4 : when <= 8 ? 8 : 16;
      for (int call = 1; call <= 20; ++call) {
        if (call == when) way.replace(held);
        const Tensor x = values({2, kWidth}, static_cast<uint64_t>(call));
        if (call != look || look == 2) {
          const Tensor got = f(x);
          if (call < when || call >= look) expect_same(detach(got), detach(eager(x)));
          continue;
        }
        const std::string text = error_of<CaptureError>([&] { f(x); });
        expect_part(text, "TUTTI-CAPTURE-035 'sum'");
        expect_part(text, fmt::format("since call {} of this kind", look / 2 + 1));
        expect_part(text, "held_replaced_test.cpp:");
      }
    }
  }
}

// A vector that grows moves its elements when its capacity is used up, and then the Tensor objects tell of it at once.
// Growth within the capacity moves none: the next look finds it.
TEST(HeldReplaced, AVectorThatGrowsIsSeenAtTheNextCallIfItMoves) {
  std::vector<Tensor> list;
  list.reserve(1);
  list.push_back(leaf(1));
  size_t read = 0;  // tensors that a call adds
  const auto sum_of_list = [&](const Tensor& x) {
    Tensor y = x;
    for (size_t i = 0; i < read; ++i) y = add(mul(y, 0.5), list[i]);
    return y;
  };
  const auto f = compile([&](const Tensor& x) { return sum_of_list(x); }, {.name = "sum"});
  for (int call = 1; call <= 16; ++call) {
    const bool moves = call == 5 || call == 7,
               stays = call == 11;  // the trace of call 7 is looked at in calls 8, 10 and 14
    if (moves) list.shrink_to_fit();
    if (stays) list.reserve(8), f(values({2, kWidth}, 1));  // a move without growth costs a look and no trace
    if (moves || stays) list.push_back(leaf(static_cast<uint64_t>(call)));
    read = list.size() - (call >= 11 && call < 15 ? 1 : 0);
    const Tensor x = values({2, kWidth}, static_cast<uint64_t>(call));
    const Tensor expected = sum_of_list(x);
    read = list.size();
    SCOPED_TRACE(call);
    if (call == 15) {
      expect_part(error_of<CaptureError>([&] { f(x); }), "TUTTI-CAPTURE-035 'sum'");
    } else {
      expect_same(detach(f(x)), detach(expected));
    }
  }
  EXPECT_EQ(f.statistics().compiles, 4);
}

TEST(HeldReplaced, TheReasonNamesTensorOpAndLine) {
  Tensor w = values({4, 3}, 1);
  const Tensor owner = w;
  const auto f = compile([&](const Tensor& x) { return matmul(x, w); }, {.recompile_limit = 3});
  for (int i = 0; i < 5; ++i) {
    if (i == 3) w = add(w, 1.0);
    f(values({2, 4}, 1));
  }
  EXPECT_EQ(f.statistics().compiles, 2);
  expect_part(f.explain(), "a tensor [4, 3] f32 cpu that it holds, first read by matmul at held_replaced_test.cpp:");
  expect_part(f.explain(),
              "was replaced by another one, [4, 3] f32 cpu; write it in place to keep what was compiled, or pass it as "
              "an argument");
  const std::string text = error_of<RecompileLimit>([&] {
    for (int i = 0; i < 5; ++i) w = add(w, 1.0), f(values({2, 4}, 1));
  });
  expect_part(text, "was replaced by another one");
}

// Tensors that nobody replaces cost looks at calls 2, 4, 8, ... and nothing else, whatever others do with them.
TEST(HeldReplaced, NothingIsTracedAgainForOwnersThatComeAndGo) {
  Held held;
  const auto f = compile([&](const Tensor& x) { return sum_of(held, x); });
  Tensor loss;
  for (int call = 1; call <= 20; ++call) {
    loss = sum(add(f(values({2, kWidth}, 1)), sum(held.variable)));  // the graph before lives until here
    const std::vector<Tensor> copies = held.leaves();
    if (call % 3 == 0) backward(loss);
    const NoGradScope no_grad;
    add_(held.variable, 0.5);
  }
  EXPECT_EQ(f.statistics().compiles, 1);
  EXPECT_EQ(f.statistics().looks, 4);
}

// A training step: the histories of views that it makes of its weights end with each look, and are no variables.
TEST(HeldReplaced, AStepThatReadsViewsOfItsWeightsIsLookedAtNoMoreOften) {
  Tensor weight = requires_grad_(values({4, kWidth}, 1)), bias = requires_grad_(values({2, 2}, 2));
  const auto f = compile([&](const Tensor& x) {
    const Tensor y = add(matmul(x, transpose(weight, 0, 1)), reshape(bias, {4}));
    const Tensor loss = sum(mul(y, y));
    backward(loss);
    return detach(loss);
  });
  for (int call = 1; call <= 40; ++call) f(values({2, kWidth}, 1));
  EXPECT_EQ(f.statistics().compiles, 2);  // without gradients to add to, and with them
  EXPECT_EQ(f.statistics().looks, 5);
  weight = requires_grad_(values({4, kWidth}, 9));
  f(values({2, kWidth}, 1));
  EXPECT_EQ(f.statistics().compiles, 3);
}

TEST(HeldReplaced, ATensorThatTheFunctionMakesOfNumbersIsNoOther) {
  const double one = 1.0;
  const auto f = compile([&](const Tensor& x) { return add(x, Tensor::of<double>({one, 2.0})); });
  for (int call = 0; call < 9; ++call) f(values({3, 2}, 1, DType::f64));
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(HeldReplaced, AFunctionWithoutStateThatReadsNothingIsNeverLookedAt) {
  const auto f = compile([](const Tensor& x) { return exp(x); });
  for (int call = 0; call < 9; ++call) f(values({3, 2}, 1));
  EXPECT_EQ(f.statistics().looks, 0);
}

TEST(HeldReplaced, GradientsOfGradientsRefuseATensorThatIsAnotherOneNow) {
  for (const int calls : {1, 3}) {
    Tensor w = leaf(1);
    const Tensor owner = w;
    const auto f = compile([&](const Tensor& x) { return sum(mul(mul(x, w), x)); });
    const Tensor x = requires_grad_(values({2, kWidth}, 2));
    Tensor y;
    for (int call = 0; call < calls; ++call) y = f(x);
    w = leaf(9);
    const Tensor outputs[] = {y}, inputs[] = {x};
    expect_part(error_of<UsageError>([&] { grad(outputs, inputs, {}, {.create_graph = true}); }),
                "a tensor that it holds was replaced by another one after the forward");
  }
}

// What an optimizer does: it steps its own tensors in place, which someone may have replaced by others.
TEST(HeldReplaced, WritesGoToTheTensorsThatAreHeldNow) {
  std::vector<std::vector<Tensor>> weights = {{values({4}, 1), values({3}, 2)}, {values({4}, 1), values({3}, 2)}};
  const std::vector<Tensor> owners = weights[0];
  const auto step = [](std::vector<Tensor>& list, const Tensor& grad) {
    for (const Tensor& w : list) add_(w, mul(sum(grad), -0.1));
  };
  const auto f = compile([&](const Tensor& grad) { step(weights[0], grad); });
  for (uint64_t call = 0; call < 9; ++call) {
    if (call == 1 || call == 4) {
      for (auto& list : weights) list[call % 2] = values({4}, call + 10);
    }
    f(values({5}, call)), step(weights[1], values({5}, call));
    for (size_t i = 0; i < 2; ++i) expect_same(weights[0][i], weights[1][i]);
  }
}

TEST(HeldReplaced, AGradientThatIsReadIsThatOfEachCall) {
  for (const bool gradient_first : {false, true}) {
    Tensor w = leaf(1), w_eager = leaf(1);
    const auto step = [&](const Tensor& p) {
      const NoGradScope no_grad;
      if (gradient_first) add_(detach(p), mul(grad_of(p), -0.1));
      const Tensor norm = sum(mul(p, p));
      return add(norm, sum(grad_of(p)));
    };
    const auto f = compile([&](const Tensor& x) { return add(step(w), x); });
    for (uint64_t call = 0; call < 10; ++call) {
      const Tensor x = values({}, call);
      for (const Tensor* p : {&w, &w_eager}) set_grad(*p, values({kWidth}, call + 3));
      expect_same(f(x), add(step(w_eager), x));
      expect_same(detach(w), detach(w_eager));
    }
    EXPECT_EQ(f.statistics().compiles, 1) << f.explain();
    EXPECT_EQ(f.statistics().looks, 3);
  }
}

// Threads that call while the program replaces between their rounds.
TEST(HeldReplaced, ThreadsSeeItAtTheirNextCall) {
  Tensor w = values({8}, 1);
  const Tensor owner = w;
  const auto fn = [&](const Tensor& x) { return exp(mul(x, w)); };
  const auto f = compile(fn);
  for (int round = 0; round < 6; ++round) {
    if (round > 0) w = values({8}, static_cast<uint64_t>(round) + 10);
    const Tensor expected = fn(values({4, 8}, 2));
    std::vector<Tensor> got(4);
    std::vector<std::thread> threads;
    for (Tensor& result : got)
      threads.emplace_back([&] { result = f(values({4, 8}, 2)), result = f(values({4, 8}, 2)); });
    for (std::thread& t : threads) t.join();
    for (const Tensor& result : got) expect_same(result, expected);
  }
}

}  // namespace
}  // namespace tutti
