// Gradients of gradients through compiled functions.
#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/dropout.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using namespace graph_test;

Tensor square(const Tensor& x) { return mul(x, x); }

// The result, its gradients, and those of the sum of squares of the gradients, for x and for w.
template <class Call>
std::vector<Tensor> twice(Call call, uint64_t seed) {
  seed_all(seed);
  const Tensor x = values({4, 5}, seed), w = values({5, 4}, seed + 20), leaves[] = {x, w};
  requires_grad_(x), requires_grad_(w);
  const Tensor outputs[] = {call(tanh(x), w)};
  std::vector<Tensor> all = {detach(outputs[0])};
  Tensor penalty = full({}, 0.0);
  for (const Tensor& g : grad(outputs, leaves, {}, {.create_graph = true})) {
    all.push_back(detach(g));
    penalty = add(penalty, sum(mul(g, g)));
  }
  const Tensor last[] = {penalty};
  for (const Tensor& g : grad(last, leaves)) all.push_back(g);
  return all;
}

template <class Fn>
void expect_as_eager(Fn fn, const CompileOptions& options = {}) {
  const auto f = compile(fn, options);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto got = twice(f, seed), expected = twice(fn, seed);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
}

TEST(DoubleBackward, OfAValueThatIsUsedSeveralTimes) {
  expect_as_eager([](const Tensor& x, const Tensor& w) {
    const Tensor h = matmul(x, w);
    return sum(mul(exp(h), add(h, matmul(x, mul(w, w)))));
  });
}

TEST(DoubleBackward, HasTheSameMasks) {
  expect_as_eager([](const Tensor& x, const Tensor& w) { return sum(square(dropout(matmul(x, w), 0.5))); });
}

TEST(DoubleBackward, InSegments) {
  expect_as_eager(
      [](const Tensor& x, const Tensor& w) {
        const Tensor h = sigmoid(matmul(x, w));
        return gt(sum(h), 8.0).item_int() != 0 ? sum(square(h)) : sum(exp(h));
      },
      {.on_break = CompileOptions::OnBreak::segment});
}

TEST(DoubleBackward, OfHeldLeaves) {
  const Tensor scale = values({4}, 5);
  requires_grad_(scale);
  const auto fn = [&](const Tensor& x) { return sum(square(mul(exp(x), scale))); };
  const auto run = [&](auto&& call) {
    const Tensor x = values({4}, 1);
    requires_grad_(x);
    const Tensor outputs[] = {call(x)}, leaves[] = {x, scale};
    const std::vector<Tensor> first = grad(outputs, leaves, {}, {.create_graph = true});
    const Tensor again[] = {add(sum(square(first[0])), sum(square(first[1])))};
    return grad(again, leaves);
  };
  const auto got = run(compile(fn)), expected = run(fn);
  for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
}

// An eager exp has saved its result; a function that runs again would read what is there now.
TEST(DoubleBackward, AfterAWriteToWhatTheFunctionReads) {
  const Tensor held = values({4}, 5), x = values({4}, 1);
  requires_grad_(x);
  const auto f = compile([&](const Tensor& t) { return sum(exp(add(t, held))); });
  for (const Tensor& written : {x, held}) {
    const Tensor outputs[] = {f(x)}, leaves[] = {x};
    {
      const NoGradScope no_grad;
      mul_(written, 2.0);
    }
    expect_part(error_of<UsageError>([&] { grad(outputs, leaves, {}, {.create_graph = true}); }),
                "was changed in place after the forward");
  }
}

}  // namespace
}  // namespace tutti
