// Random programs around matrix products, whose neighbours run inside them: compiled with every choice of what joins,
// budgets and threads, they have the bits of an eager run.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using graph::Epilogues;
using graph_test::values;

// A function of three square matrices. With `has_gradients` it writes nothing in place and gives the gradients of its
// result.
struct ProductProgram {
  uint32_t seed;
  int64_t n;
  bool has_gradients;

  std::vector<Tensor> operator()(const Tensor& a, const Tensor& b, const Tensor& c) const {
    std::mt19937 random(seed);
    std::vector<Tensor> all{a, b, c};
    const auto pick = [&] {
      return all[random() % 3 ? all.size() - 1 - random() % std::min<size_t>(3, all.size()) : random() % all.size()];
    };
    const auto length = 4 + random() % 10;
    for (size_t i = 0; i < length; ++i) {
      const uint32_t form = random() % 15;
      const Tensor p = pick(), q = pick();
      switch (form) {
        case 0:
          all.push_back(sigmoid(p));
          break;
        case 1:
          all.push_back(tanh(mul(p, q)));
          break;
        case 2:
          all.push_back(add(p, q));
          break;
        case 3:
        case 4:
        case 5:
          all.push_back(tanh(matmul(p, q)));
          break;
        case 6:
          all.push_back(mul(matmul(transpose(p, 0, 1), q), 0.1));
          break;
        case 7:
          all.push_back(add(matmul(p, transpose(q, 0, 1)), slice(p, 0, n - 1, n)));
          break;
        case 8:
          all.push_back(mul(p, slice(q, 1, 0, 1)));
          break;
        case 9:
          all.push_back(mul(p, slice(q, 0, n / 2, n / 2 + 1)));
          break;
        case 10:
          all.push_back(cast(cast(p, DType::bf16), DType::f32));
          break;
        case 11:
          if (has_gradients) all.push_back(exp(neg(p)));
          else mul_(p, 0.5);
          break;
        case 12:
          if (!has_gradients) copy_(slice(p, 0, 0, n / 2), slice(sigmoid(q), 0, 1, 1 + n / 2));
          break;
        case 13:
          all.push_back(matmul(add(p, 1.0), p));
          break;
        default:
          all.push_back(sub(p, sum(q, {.dims = {1}, .keepdim = true})));
          break;
      }
    }
    std::vector<Tensor> results{all.back()};
    if (random() % 2) results.push_back(pick());
    if (!has_gradients) return results;
    const Tensor losses[] = {sum(mul(results[0], results[0]))}, leaves[] = {a, b, c};
    std::vector<Tensor> gradients = grad(losses, leaves);
    if (random() % 2) gradients.push_back(detach(results.back()));
    return gradients;
  }
};

// The first element whose bits differ; which NaN a NaN is, is left open.
std::string difference(const Tensor& expected, const Tensor& actual) {
  if (!expected.defined() || !actual.defined())
    return expected.defined() == actual.defined() ? "" : "one of them is undefined";
  const Tensor a = to_contiguous(detach(expected)), b = to_contiguous(detach(actual));
  for (int64_t i = 0; i < a.numel(); ++i) {
    const float x = a.data<float>()[i], y = b.data<float>()[i];
    if (std::memcmp(&x, &y, sizeof(x)) != 0 && !(std::isnan(x) && std::isnan(y)))
      return fmt::format("element {} is {:a}, expected {:a}", i, y, x);
  }
  return "";
}

TEST(ProductPrograms, HaveTheBitsOfAnEagerRun) {
  const int64_t sizes[] = {3, 17, 40, 70, 100};
  const double budgets[] = {0, 0.3, 0.7, 1};
  const Epilogues which[] = {Epilogues::off, Epilogues::saving, Epilogues::all};
  int64_t prologues = 0, epilogues = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const ProductProgram program{seed, sizes[seed % 5], seed % 3 == 0};
    const CompileOptions options{.activation_memory_budget = budgets[seed / 3 % 4],
                                 .epilogues = which[seed / 2 % 3],
                                 .check_epilogues = seed % 2 == 0};
    SCOPED_TRACE(fmt::format("seed {}, {} x {}, gradients: {}, budget {}", seed, program.n, program.n,
                             program.has_gradients, options.activation_memory_budget));
    RankContext::current().set_threads(1 + static_cast<int>(seed % 3));
    std::vector<Tensor> eager, compiled;
    for (uint64_t k = 0; k < 3; ++k) {
      eager.push_back(mul(values({program.n, program.n}, 10 * seed + k), 0.3));
      compiled.push_back(clone(eager.back()));
      if (program.has_gradients) requires_grad_(eager[k]), requires_grad_(compiled[k]);
    }
    const std::vector<Tensor> expected = program(eager[0], eager[1], eager[2]);
    const auto f = compile(program, options);
    const std::vector<Tensor> got = f(compiled[0], compiled[1], compiled[2]);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(difference(expected[i], got[i]), "") << "result " << i;
    for (size_t k = 0; k < 3; ++k) EXPECT_EQ(difference(eager[k], compiled[k]), "") << "argument " << k;
    prologues += f.statistics().last.prologues;
    epilogues += f.statistics().last.epilogues;
  }
  RankContext::current().set_threads(0);
  EXPECT_GT(prologues, 20);
  EXPECT_GT(epilogues, 100);
}

}  // namespace
}  // namespace tutti
