// while_loop and scan: one compiled loop for any number of steps, with the bits of an eager run.
#include "tutti/graph/control.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

namespace tutti {
namespace {

using namespace graph_test;

// x doubled until its sum reaches `limit`, with the number of rounds.
std::vector<Tensor> grow(const Tensor& x, const Tensor& limit) {
  return while_loop([&](Span c) { return lt(sum(c[0]), limit); },
                    [](Span c) { return std::vector<Tensor>{mul(c[0], 2.0), add(c[1], 1)}; },
                    {x, Tensor::scalar(int64_t{0})});
}

TEST(WhileLoop, AnyNumberOfTripsIsOneProgram) {
  const auto f = compile(grow);
  const Tensor x = full({3, 2}, 1.0);
  for (const float limit : {0.0f, 7.0f, 100.0f, 1e6f, 3.0f, 1e12f}) {
    const auto got = f(x, Tensor::scalar(limit)), expected = grow(x, Tensor::scalar(limit));
    expect_same(got[0], expected[0]);
    expect_same(got[1], expected[1]);
  }
  EXPECT_EQ(f.statistics().compiles, 1);
  EXPECT_EQ(f(x, Tensor::scalar(0.0f))[1].item(), 0);
  EXPECT_EQ(f(x, Tensor::scalar(7.0f))[1].item(), 1);
}

TEST(WhileLoop, WithoutTripsTheResultIsACopy) {
  const Tensor x = full({3}, 5.0), limit = Tensor::scalar(0.0f);
  for (const auto& result : {grow(x, limit), compile(grow)(x, limit)}) {
    expect_same(result[0], x);
    EXPECT_NE(result[0].storage().get(), x.storage().get());
  }
}

TEST(WhileLoop, CarriesViewsAndReadsHeldTensors) {
  Tensor w = values({4, 4}, 1);
  const auto fn = [&](const Tensor& x, const Tensor& n) {
    return while_loop([&](Span c) { return lt(c[2], n); },
                      [&](Span c) { return std::vector<Tensor>{transpose(add(c[1], w), 0, 1), c[0], add(c[2], 1)}; },
                      {transpose(x, 0, 1), expand(slice(x, 0, 0, 1), {4, 4}), Tensor::scalar(int64_t{0})});
  };
  const auto f = compile(fn);
  for (int64_t n = 0; n < 5; ++n) {
    const auto got = f(values({4, 4}, 7), Tensor::scalar(n)), expected = fn(values({4, 4}, 7), Tensor::scalar(n));
    for (size_t i = 0; i < 3; ++i) expect_same(got[i], expected[i]);
    fill_(w, static_cast<double>(n));
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(WhileLoop, BranchesAndLoopsInside) {
  const auto fn = [](const Tensor& x, const Tensor& n) {
    return while_loop([&](Span c) { return lt(c[1], n); },
                      [&](Span c) {
                        const Tensor half = cond(
                            gt(sum(c[0]), 0.0), [](Span in) { return sub(in[0], 3.0); },
                            [](Span in) { return neg(in[0]); }, {c[0]})[0];
                        const Tensor inner = while_loop([](Span d) { return lt(amax(d[0]), 2.0); },
                                                        [&](Span d) { return add(d[0], exp(x)); }, {half})[0];
                        return std::vector<Tensor>{inner, add(c[1], 1)};
                      },
                      {x, Tensor::scalar(int64_t{0})})[0];
  };
  const auto f = compile(fn);
  for (int64_t n = 0; n < 6; ++n)
    expect_same(f(values({5}, 2), Tensor::scalar(n)), fn(values({5}, 2), Tensor::scalar(n)));
}

TEST(WhileLoop, ChecksOfTheBodyRunWithIt) {
  const auto fn = [](const Tensor& x, const Tensor& n) {
    return while_loop([&](Span c) { return lt(c[1], n); },
                      [&](Span c) {
                        check(lt(c[1], 3), "no more than three");
                        return std::vector<Tensor>{mul(c[0], 2.0), add(c[1], 1)};
                      },
                      {x, Tensor::scalar(int64_t{0})})[0];
  };
  const auto f = compile(fn);
  const Tensor x = values({2}, 1);
  expect_same(f(x, Tensor::scalar(int64_t{3})), mul(x, 8.0));
  EXPECT_EQ(without_place(error_of<UsageError>([&] { f(x, Tensor::scalar(int64_t{4})); })), "no more than three");
  EXPECT_EQ(error_of<UsageError>([&] { fn(x, Tensor::scalar(int64_t{4})); }), "no more than three");
}

TEST(WhileLoop, ThreadsCallItAtOnce) {
  const auto f = compile(grow);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&f, t] {
      for (int i = 0; i < 30; ++i) {
        const Tensor x = full({3, 2}, 1.0 + t), limit = Tensor::scalar(static_cast<float>(i * i * i));
        expect_same(f(x, limit)[0], grow(x, limit)[0]);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(WhileLoop, GradientsInEagerModeOnly) {
  const Tensor x = values({3}, 1), limit = Tensor::scalar(0.5f);
  requires_grad_(x);
  const auto fn = [&](const Tensor& in) {
    return while_loop([](Span c) { return lt(c[1], 3); },
                      [](Span c) { return std::vector<Tensor>{mul(c[0], c[0]), add(c[1], 1)}; },
                      {in, Tensor::scalar(int64_t{0})})[0];
  };
  backward(sum(fn(x)));
  const Tensor x3 =
      mul(mul(mul(detach(x), detach(x)), mul(detach(x), detach(x))), mul(mul(detach(x), detach(x)), detach(x)));
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(select(grad_of(x), 0, i).item(), 8 * select(x3, 0, i).item(), 1e-4);
  const std::string text = error_of<CaptureError>([&] { compile(fn, {.name = "looped"})(x); });
  for (const char* part : {"TUTTI-CAPTURE-028", "while_loop in 'looped' has no gradient", "NoGradScope"})
    expect_part(text, part);
  const NoGradScope no_grad;
  expect_same(compile(fn)(x), fn(x));
}

// A recurrent cell over the rows of x.
ScanStep run_cell(const Tensor& x, const Tensor& h, const Tensor& w) {
  return scan(
      [&](Span c, Span e) -> ScanStep {
        const Tensor next = tanh(add(matmul(c[0], w), e[0]));
        return {{next, add(c[1], 1)}, {mul(next, e[0]), sum(next)}};
      },
      {h, Tensor::scalar(int64_t{0})}, {x});
}

std::vector<Tensor> all_of(const ScanStep& s) {
  std::vector<Tensor> list = s.carried;
  list.insert(list.end(), s.outputs.begin(), s.outputs.end());
  return list;
}

TEST(Scan, ShortOnesAreWrittenOutAndLongOnesLoop) {
  const auto f = compile([](const Tensor& x, const Tensor& h, const Tensor& w) { return all_of(run_cell(x, h, w)); });
  for (const int64_t steps : {0, 1, 5, 16, 17, 40}) {
    const Tensor x = values({steps, 2, 3}, 1), h = values({2, 3}, 2), w = values({3, 3}, 3);
    const auto got = f(x, h, w), expected = all_of(run_cell(x, h, w));
    ASSERT_EQ(got.size(), 4u);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
    EXPECT_EQ(got[2].extents(), (Extents{steps, 2, 3}));
  }
  EXPECT_NE(f.explain().find("walk"), std::string::npos);
}

TEST(Scan, StridedOperands) {
  const auto fn = [](const Tensor& x, const Tensor& h) {
    return all_of(scan([](Span c, Span e) -> ScanStep { return {{add(c[0], e[0])}, {transpose(e[0], 0, 1), c[0]}}; },
                       {transpose(h, 0, 1)}, {transpose(x, 0, 2)}));
  };
  const auto f = compile(fn);
  const Tensor x = values({3, 2, 20}, 1), h = values({3, 2}, 2);
  const auto got = f(x, h), expected = fn(x, h);
  for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
}

TEST(Scan, GradientsOfShortOnes) {
  const auto loss = [](const Tensor& x, const Tensor& h, const Tensor& w) {
    const ScanStep s = run_cell(x, h, w);
    return add(sum(s.outputs[0]), sum(mul(s.carried[0], s.carried[0])));
  };
  const auto f = compile(loss, {.name = "cell"});
  const auto run = [&](auto&& call, int64_t steps) {
    const Tensor x = values({steps, 2, 3}, 1), h = values({2, 3}, 2), w = values({3, 3}, 3);
    for (const Tensor& t : {x, h, w}) requires_grad_(t);
    const Tensor y = call(x, h, w);
    backward(y);
    return std::vector<Tensor>{detach(y), grad_of(x), grad_of(h), grad_of(w)};
  };
  for (const int64_t steps : {1, 7, 16}) {
    const auto got = run(f, steps), expected = run(loss, steps);
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
  const std::string text = error_of<CaptureError>([&] { run(f, 17); });
  for (const char* part : {"TUTTI-CAPTURE-028", "scan in 'cell' has no gradient", "at most 16 steps"})
    expect_part(text, part);
}

TEST(LoopErrors, BodiesThatChangeWhatTheyCarry) {
  const Tensor x = values({3}, 1);
  const auto wider = [](const Tensor& in) {
    return while_loop([](Span c) { return lt(sum(c[0]), 1e9); }, [](Span c) { return cat({c[0], c[0]}); }, {in});
  };
  const auto fewer = [](const Tensor& in) {
    return scan([](Span, Span e) -> ScanStep { return {{}, {e[0]}}; }, {in}, {in}).outputs;
  };
  for (const auto& run : {std::function(wider), std::function([&](const Tensor& in) { return compile(wider)(in); })})
    expect_part(error_of<UsageError>([&] { run(x); }),
                "while_loop: the body turns carried tensor 0 from [3] f32 cpu into [6] f32 cpu");
  for (const auto& run : {std::function(fewer), std::function([&](const Tensor& in) { return compile(fewer)(in); })})
    expect_part(error_of<UsageError>([&] { run(x); }), "scan: the body gives 0 carried tensors, it was given 1");
}

TEST(LoopErrors, ConditionsAndLengthsOfTheWrongKind) {
  const Tensor x = values({3}, 1);
  const auto body = [](Span c) { return c[0]; };
  expect_part(error_of<UsageError>([&] { while_loop([](Span c) { return gt(c[0], 0.0); }, body, {x}); }),
              "the condition is [3]");
  expect_part(error_of<UsageError>([&] { while_loop([](Span) { return std::vector<Tensor>{}; }, body, {x}); }),
              "the condition gives 0 tensors");
  const ScanFn step = [](Span c, Span) -> ScanStep { return {{c[0]}, {}}; };
  expect_part(error_of<UsageError>([&] { scan(step, {x}, {}); }), "expected at least one tensor in xs");
  expect_part(error_of<UsageError>([&] { scan(step, {x}, {x, values({4}, 1)}); }),
              "tensor 1 of xs is [4] f32 cpu, tensor 0 [3] f32 cpu");
}

}  // namespace
}  // namespace tutti
