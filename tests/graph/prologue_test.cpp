// Kernels inside the matrix product that reads what they make: which join, and that the bits are those of an eager run.
#include <gtest/gtest.h>

#include <random>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti {
namespace {

using graph::Epilogues;
using graph_test::error_of;
using graph_test::expect_part;
using graph_test::expect_same;
using graph_test::values;

// Runs `fn` compiled, what is attached also one after the other, against the eager run; what was compiled.
template <class Fn, class... Args>
graph::ExecutableStatistics compare(Fn fn, const Args&... arguments) {
  const auto f = compile(fn, {.epilogues = Epilogues::all, .check_epilogues = true});
  const std::vector<Tensor> expected = fn(clone(arguments)...), got = f(arguments...);
  EXPECT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  return f.statistics().last;
}

TEST(Prologue, OfAGatedLayerIsOneCallAndTheOperandIsNowhere) {
  const Tensor gate = values({70, 33}, 1), up = values({70, 33}, 2), w = values({100, 33}, 3);
  const auto fn = [](const Tensor& g, const Tensor& u, const Tensor& b) { return linear(mul(silu(g), u), b); };
  const auto f = compile(fn, {.check_epilogues = true});
  expect_same(f(gate, up, w), fn(gate, up, w));
  const graph::ExecutableStatistics s = f.statistics().last;
  EXPECT_EQ(s.kernels, 0);
  EXPECT_EQ(s.calls, 1);
  EXPECT_EQ(s.prologues, 1);
  EXPECT_EQ(s.fused_nodes, s.nodes - 1);
  EXPECT_EQ(s.arena_bytes, 0);
  EXPECT_EQ(s.prologue_saved_bytes, 2.0 * 70 * 33 * 4);
  EXPECT_EQ(s.kernel_bytes, 2 * 70 * 33 * 4);
  expect_part(f.explain(), "1 with prologues that save 18480 bytes");
  expect_part(f.explain(), ", its first operand from silu+mul: 3 operands, 18480 bytes");
  for (const bool fuse : {false, true}) {
    const auto apart = compile(fn, {.fuse = fuse, .prologues = !fuse});
    expect_same(apart(gate, up, w), fn(gate, up, w));
    EXPECT_EQ(apart.statistics().last.prologues, 0);
  }
}

// Streamed, transposed and packed products, one and several blocks of rows, chunks of k.
TEST(Prologue, EverySizeAndThreadCountHasTheSameBits) {
  RankContext& context = RankContext::current();
  std::mt19937 random(11);
  const int64_t sizes[] = {0, 1, 2, 5, 17, 48, 63, 130, 200};
  const auto size = [&] { return sizes[random() % std::size(sizes)]; };
  const DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::f64, DType::f16};
  for (int round = 0; round < 160; ++round) {
    const int64_t m = size(), n = size(), k = random() % 6 == 0 ? 1300 : size();
    const DType dtype = dtypes[random() % std::size(dtypes)], other = dtypes[random() % std::size(dtypes)];
    const bool turned = random() % 3 == 0;  // as in the gradient of a weight
    const Extents rows = turned ? Extents{k, m} : Extents{m, k};
    const Tensor x = values(rows, 1, dtype),
                 y = random() % 2 ? values(rows, 2, other) : transpose(values({rows[1], rows[0]}, 2, other), 0, 1);
    const Tensor row = values({rows[1]}, 3, other),
                 b = random() % 2 ? values({k, n}, 4, dtype) : transpose(values({n, k}, 4, dtype), 0, 1);
    const uint32_t form = random() % 5;
    const bool followed = random() % 2;
    const auto fn = [=](const Tensor& p, const Tensor& q, const Tensor& r, const Tensor& w) -> std::vector<Tensor> {
      Tensor a;
      switch (form) {
        case 0:
          a = mul(silu(p), q);
          break;
        case 1:
          a = cast(add(p, r), DType::bf16);
          break;
        case 2:
          a = where(gt(q, 0.0), exp(neg(p)), r);
          break;
        case 3:
          a = cast(p, DType::f64);
          break;
        default:
          a = add_(gelu(p), 1.0);
          break;
      }
      const Tensor product = matmul(turned ? transpose(a, 0, 1) : a, w);
      return {followed ? relu(product) : product};
    };
    SCOPED_TRACE(fmt::format("round {}: {} x {} x {}, {} and {}, form {}{}", round, m, n, k, name_of(dtype),
                             name_of(other), form, turned ? ", transposed" : ""));
    context.set_threads(1 + round % 4);
    const graph::ExecutableStatistics s = compare(fn, x, y, row, b);
    const bool is_identity = form == 3 && dtype == DType::f64;
    if (m * k > 0 && !is_identity) {
      EXPECT_EQ(s.prologues, 1);
      EXPECT_EQ(s.epilogues, followed && m * n > 0 ? 1 : 0);
    }
  }
  context.set_threads(0);
}

TEST(Prologue, OfManyRowsAndALongContraction) {
  RankContext& context = RankContext::current();
  const Tensor x = values({3100, 900}, 1), w = values({40, 900}, 2), long_x = values({900, 5000}, 3),
               v = values({5000, 300}, 4);
  const auto fn = [](const Tensor& a, const Tensor& b) -> std::vector<Tensor> {
    return {linear(mul(sigmoid(a), a), b)};
  };
  const auto turned = [](const Tensor& a, const Tensor& b) -> std::vector<Tensor> {
    return {matmul(transpose(exp(a), 0, 1), b)};
  };
  const auto plain = [](const Tensor& a, const Tensor& b) -> std::vector<Tensor> { return {matmul(exp(a), b)}; };
  for (const int threads : {1, 3}) {
    context.set_threads(threads);
    EXPECT_EQ(compare(fn, x, w).prologues, 1);
    EXPECT_EQ(compare(turned, x, values({3100, 33}, 5)).prologues, 1);
    EXPECT_EQ(compare(plain, long_x, v).prologues, 1);
    // Few columns and few rows: made in pieces before they are multiplied.
    EXPECT_EQ(compare(fn, values({3000, 900}, 6), values({3, 900}, 7)).prologues, 1);
    EXPECT_EQ(compare(turned, values({3000, 900}, 6), values({3000, 2}, 8)).prologues, 1);
    EXPECT_EQ(compare(plain, values({2, 5000}, 9), v).prologues, 1);
  }
  context.set_threads(0);
}

TEST(Prologue, OfBatchesViewsAndReshapes) {
  const Tensor a = values({3, 4, 20, 9}, 1), b = values({3, 4, 9, 31}, 2), scale = values({4, 1, 9}, 3);
  EXPECT_EQ(compare([](const Tensor& x, const Tensor& y,
                       const Tensor& s) -> std::vector<Tensor> { return {matmul(mul(x, s), y)}; },
                    a, b, scale)
                .prologues,
            1);
  const Tensor tokens = values({2, 7, 12}, 5), w = values({30, 12}, 6), position = values({7, 12}, 7);
  EXPECT_EQ(compare([](const Tensor& x, const Tensor& y,
                       const Tensor& p) -> std::vector<Tensor> { return {linear(add(x, p), y)}; },
                    tokens, w, position)
                .prologues,
            1);
  // Columns that are heads.
  const Tensor heads = values({2, 7, 3, 4}, 8);
  EXPECT_EQ(compare([](const Tensor& x,
                       const Tensor& y) -> std::vector<Tensor> { return {linear(reshape(exp(x), {2, 7, 12}), y)}; },
                    heads, w)
                .prologues,
            1);
  // An operand that repeats, and one that is read in pieces.
  const Tensor column = values({9, 1}, 9), wide = values({9, 40}, 10);
  compare([](const Tensor& x, const Tensor& y) -> std::vector<Tensor> { return {linear(expand(exp(x), {9, 12}), y)}; },
          column, w);
  compare([](const Tensor& x, const Tensor& y) -> std::vector<Tensor> { return {linear(slice(exp(x), 1, 3, 15), y)}; },
          wide, w);
}

TEST(Prologue, WithAnEpilogueReadsAndWritesItsOwnMemory) {
  const Tensor gate = values({90, 40}, 1), up = values({90, 40}, 2), w = values({40, 40}, 3);
  const auto fn = [](const Tensor& g, const Tensor& u, const Tensor& b) -> std::vector<Tensor> {
    return {tanh(linear(mul(silu(g), u), b))};
  };
  const auto s = compare(fn, gate, up, w);
  EXPECT_EQ(s.prologues, 1);
  EXPECT_EQ(s.epilogues, 1);
  // The epilogue writes what the kernel before reads: other rows are still to be read when the first are written.
  const auto in_place = [](const Tensor& x, const Tensor& b) { mul_(x, linear(exp(x), b)); };
  const auto f = compile(in_place, {.epilogues = Epilogues::all, .check_epilogues = true});
  const Tensor x = values({90, 40}, 4), expected = clone(x);
  in_place(expected, w);
  f(x, w);
  expect_same(x, expected);
  EXPECT_EQ(f.statistics().last.prologues + f.statistics().last.epilogues, 1);
}

// The epilogue stands in the product's own group, but reads memory: the operand, or what its kernel stores beside.
TEST(Prologue, WhatTheEpilogueReadsIsMade) {
  const Tensor x = values({90, 40}, 1), w = values({40, 40}, 2);
  const auto reads = [&](auto fn, Epilogues which, const char* reason) {
    const auto f = compile(fn, {.epilogues = which});
    expect_same(f(x, w), fn(x, w));
    EXPECT_EQ(f.statistics().last.epilogues, 1);
    EXPECT_EQ(f.statistics().last.prologues, 0);
    expect_part(f.explain(), std::string("before matmul: ") + reason);
  };
  const char *operand = "the call's epilogue reads it too", *stored = "something else reads what it stores beside";
  using T = const Tensor&;
  reads(
      [](T a, T b) {
        const Tensor e = exp(a);
        return mul(matmul(e, b), e);
      },
      Epilogues::all, operand);
  reads(
      [](T a, T b) {
        const Tensor e = exp(a);
        return mul(matmul(e, b), slice(e, 0, 89, 90));
      },
      Epilogues::saving, operand);
  reads(
      [](T a, T b) {
        const Tensor e = exp(a), beside = mul(a, e);
        return add(matmul(e, b), sub(beside, 1.0));
      },
      Epilogues::all, stored);
}

TEST(Prologue, KernelsThatCannotJoinStayWholeAndSayWhy) {
  const Tensor a = values({20, 16}, 1), b = values({16, 20}, 2), w = values({16, 16}, 3);
  const auto stays = [&](auto fn, const char* reason) {
    const auto f = compile(fn, {.epilogues = Epilogues::off, .check_epilogues = true});
    const std::vector<Tensor> expected = fn(a, b, w), got = f(a, b, w);
    for (size_t i = 0; i < expected.size(); ++i) expect_same(got[i], expected[i]);
    EXPECT_EQ(f.statistics().last.prologues, 0) << f.explain();
    expect_part(f.explain(), reason);
  };
  using T = const Tensor&;
  using Results = std::vector<Tensor>;
  stays([](T x, T, T y) -> Results { return {linear(softmax(x, -1), y)}; }, "it reduces rows");
  stays(
      [](T x, T, T y) -> Results {
        const Tensor e = exp(x);
        return {matmul(e, transpose(e, 0, 1)), y};
      },
      "exp before matmul: the call reads it as another operand too");
  stays(
      [](T x, T, T y) -> Results {
        const Tensor e = exp(x);
        return {linear(neg(e), y), e};
      },
      "something else reads what it stores beside");
  stays(
      [](T x, T, T y) -> Results {
        const Tensor t = tanh(x);
        return {matmul(add(t, 1.0), transpose(t, 0, 1)), y};
      },
      "add_scalar before matmul: something else reads what it stores beside");
  stays([](T x, T, T y) -> Results { return {matmul(slice(exp(x), 0, 2, 9), y)}; },
        "its points are not the elements of the operand");
  const auto draws = compile([](T x, T y) { return linear(dropout(x, 0.5), y); });
  static_cast<void>(draws(a, w));
  expect_part(draws.explain(), "it draws random numbers");
  // Nothing stands beside a product here, or others read it.
  const auto silent = [&](auto fn) {
    const auto f = compile(fn, {.epilogues = Epilogues::off});
    static_cast<void>(f(a, b, w));
    EXPECT_EQ(f.statistics().last.prologues, 0);
    EXPECT_TRUE(f.statistics().last.apart.empty());
  };
  silent([](T x, T, T y) -> Results {
    const Tensor e = exp(x);
    return {linear(e, y), e};
  });
  silent([](T x, T, T y) -> Results {
    const Tensor e = exp(x);
    return {linear(e, y), matmul(e, y)};
  });
  silent([](T x, T, T y) -> Results { return {matmul(x, exp(y))}; });
}

TEST(Prologue, MemoryThatIsWrittenLaterIsReadBefore) {
  const auto fn = [](const Tensor& x, const Tensor& w) -> std::vector<Tensor> {
    const Tensor e = exp(x);
    mul_(x, 0.5);
    return {matmul(e, w), matmul(x, w)};
  };
  const Tensor x = values({30, 12}, 1), w = values({12, 9}, 2), other = clone(x);
  const auto f = compile(fn, {.check_epilogues = true});
  const std::vector<Tensor> expected = fn(other, w), got = f(x, w);
  for (size_t i = 0; i < 2; ++i) expect_same(got[i], expected[i]);
  expect_same(x, other);
  // The product reads what was written after the kernel read it.
  const auto between = [](const Tensor& y, const Tensor& v) -> std::vector<Tensor> {
    const Tensor e = exp(y);
    copy_(v, reshape(slice(y, 1, 0, 9), {9, 9}));
    add_(y, 1.0);
    return {matmul(e, v), add(y, 1.0)};
  };
  const Tensor y = values({9, 9}, 3), v = values({9, 9}, 4), y2 = clone(y), v2 = clone(v);
  const auto g = compile(between, {.check_epilogues = true});
  const std::vector<Tensor> e = between(y2, v2), r = g(y, v);
  for (size_t i = 0; i < 2; ++i) expect_same(r[i], e[i]);
  expect_same(y, y2);
  expect_same(v, v2);
}

// The forward of a gated layer, and the gradient of its weight, which reads the same operand transposed. The weight is
// [in, out]: the gradient of one that lies [out, in], as that of linear() does, has the operand on the right.
TEST(Prologue, InATrainingStepBothPasses) {
  const auto fn = [](const Tensor& g, const Tensor& u, const Tensor& w) {
    return sum(mul(matmul(mul(silu(g), u), w), 3.0));
  };
  const std::vector<Tensor> leaves{values({64, 32}, 1), values({64, 32}, 2), values({32, 24}, 3)};
  const auto gradients = [&](const auto& step) {
    for (const Tensor& t : leaves) requires_grad_(t), set_grad(t, {});
    backward(step(leaves[0], leaves[1], leaves[2]));
    std::vector<Tensor> all;
    for (const Tensor& t : leaves) all.push_back(clone(grad_of(t)));
    return all;
  };
  const auto f = compile(fn, {.check_epilogues = true});
  const std::vector<Tensor> expected = gradients(fn), got = gradients(f);
  for (size_t i = 0; i < expected.size(); ++i) expect_same(got[i], expected[i]);
  std::string text = f.explain();
  expect_part(text, "its first operand from");
  expect_part(text.substr(text.find("backward")), "its first operand from silu+mul");
}

TEST(Prologue, ReportsADivisionByZero) {
  const auto fn = [](const Tensor& x, const Tensor& d, const Tensor& w) {
    return matmul(cast(floordiv(x, d), DType::f32), w);
  };
  const auto f = compile(fn);
  const Tensor x = cast(values({6, 4}, 1), DType::i32), w = values({4, 3}, 2);
  expect_same(f(x, full({6, 4}, 2, DType::i32), w), fn(x, full({6, 4}, 2, DType::i32), w));
  EXPECT_EQ(f.statistics().last.prologues, 1);
  EXPECT_THROW(f(x, full({6, 4}, 0, DType::i32), w), IntegerDivideByZero);
}

TEST(Prologue, TracesNameAllOps) {
  const Tensor x = values({40, 16}, 1), w = values({16, 24}, 2);
  const auto f = compile([](const Tensor& a, const Tensor& b) { return relu(matmul(exp(a), b)); },
                         {.name = "both", .epilogues = Epilogues::all});
  static_cast<void>(f(x, w));
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  static_cast<void>(f(x, w));
  profiler.stop();
  int found = 0;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      if (event.kernel == nullptr) continue;
      ++found;
      const KernelInfo& info = event.kernel->info;
      ASSERT_EQ(info.ops.size(), 3u);
      EXPECT_EQ(info.ops[0].name, "exp");
      EXPECT_EQ(info.ops[1].name, "matmul");
      EXPECT_EQ(info.ops[2].name, "relu");
      EXPECT_EQ(info.kernel_id.substr(0, 16), "exp+matmul+relu_");
      expect_part(info.choice, "tree gemm");
      expect_part(info.choice, "its first operand from exp; relu on its blocks, output nowhere else");
      EXPECT_EQ(event.bytes, (40 * 16 + 16 * 24 + 40 * 24) * 4);
    }
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace tutti
