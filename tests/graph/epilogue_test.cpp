// Kernels on the blocks of a matrix product: which join, and that they have the bits of an eager run.
#include <gtest/gtest.h>

#include <algorithm>
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

// Runs `fn` compiled, each epilogue also apart, against the eager run; what was compiled.
template <class Fn, class... Args>
graph::ExecutableStatistics compare(Fn fn, const Args&... arguments) {
  const auto f = compile(fn, {.epilogues = Epilogues::all, .check_epilogues = true});
  const auto expected = fn(clone(arguments)...);
  const auto got = f(arguments...);
  if constexpr (std::is_same_v<std::decay_t<decltype(got)>, Tensor>) {
    expect_same(got, expected);
  } else {
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
  }
  return f.statistics().last;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Epilogue, OfALinearLayerIsOneCallAndTheProductIsNowhere) {
  const Tensor x = values({70, 33}, 1), w = values({100, 33}, 2), bias = values({100}, 3);
  const auto f = compile([](const Tensor& a, const Tensor& b, const Tensor& c) { return gelu(add(linear(a, b), c)); },
                         {.check_epilogues = true});
  expect_same(f(x, w, bias), gelu(add(linear(x, w), bias)));
  const graph::ExecutableStatistics s = f.statistics().last;
  EXPECT_EQ(s.kernels, 0);
  EXPECT_EQ(s.calls, 1);
  EXPECT_EQ(s.epilogues, 1);
  EXPECT_EQ(s.fused_nodes, s.nodes - 1);
  EXPECT_EQ(s.arena_bytes, 0);
  EXPECT_EQ(s.epilogue_saved_bytes, 2.0 * 70 * 100 * 4);
  EXPECT_EQ(s.kernel_bytes, 100 * 4 + 70 * 100 * 4);
  expect_part(f.explain(), "1 with epilogues that save 56000 bytes");
  expect_part(f.explain(), "call matmul b");
  expect_part(f.explain(), ", on its blocks add+");
  expect_part(f.explain(), "output nowhere else");
}

TEST(Epilogue, OptionsTurnItOff) {
  const auto fn = [](const Tensor& a, const Tensor& b) { return exp(matmul(a, b)); };
  const Tensor a = values({9, 5}, 1), b = values({5, 7}, 2);
  for (const bool fuse : {false, true}) {
    const auto f = compile(fn, {.fuse = fuse, .epilogues = fuse ? Epilogues::off : Epilogues::all});
    expect_same(f(a, b), fn(a, b));
    EXPECT_EQ(f.statistics().last.epilogues, 0);
    EXPECT_EQ(f.statistics().last.kernels, 1);
  }
}

TEST(Epilogue, EverySizeAndThreadCountHasTheSameBits) {
  RankContext& context = RankContext::current();
  std::mt19937 random(7);
  const int64_t sizes[] = {0, 1, 2, 5, 17, 48, 63, 130, 200};
  const auto size = [&] { return sizes[random() % std::size(sizes)]; };
  const DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::f64, DType::f16};
  for (int round = 0; round < 120; ++round) {
    const int64_t m = size(), n = size(), k = random() % 8 == 0 ? 700 : size();
    const DType dtype = dtypes[random() % std::size(dtypes)], other = dtypes[random() % std::size(dtypes)];
    const Tensor a = random() % 2 ? values({m, k}, 1, dtype) : transpose(values({k, m}, 1, dtype), 0, 1);
    const Tensor b = random() % 2 ? values({k, n}, 2, dtype) : transpose(values({n, k}, 2, dtype), 0, 1);
    const Tensor row = values({n}, 3, other), column = values({m, 1}, 4, other);
    const Tensor residual =
        random() % 2 ? values({m, n}, 5, other) : slice(values({m, 2 * n + 1}, 5, other), 1, 1, 2 * n + 1, 2);
    const uint32_t form = random() % 6;
    const auto fn = [form](const Tensor& x, const Tensor& y, const Tensor& r, const Tensor& c,
                           const Tensor& s) -> std::vector<Tensor> {
      const Tensor product = matmul(x, y);
      switch (form) {
        case 0:
          return {gelu(add(product, r))};
        case 1:
          return {add(s, product), mul(product, c)};
        case 2:
          return {product, silu(product)};
        case 3:
          return {cast(relu(add(product, s)), DType::bf16), tanh(product)};
        case 4:
          return {where(gt(product, 0.0), exp(neg(product)), c), sigmoid(mul(product, 0.5))};
        default: {
          add_(product, s);
          return {mul(product, product), product};
        }
      }
    };
    SCOPED_TRACE(fmt::format("round {}: {} x {} x {}, {} and {}, form {}", round, m, n, k, name_of(dtype),
                             name_of(other), form));
    context.set_threads(1 + round % 4);
    const graph::ExecutableStatistics s = compare(fn, a, b, row, column, residual);
    if (m * n > 0) {
      EXPECT_EQ(s.epilogues, 1);
    }
  }
  context.set_threads(0);
}

TEST(Epilogue, OfBatchesViewsAndReshapes) {
  const Tensor a = values({3, 4, 20, 9}, 1), b = values({3, 4, 9, 31}, 2), mask = values({20, 31}, 3),
               head = values({4, 1, 1}, 4);
  EXPECT_EQ(compare([](const Tensor& x, const Tensor& y, const Tensor& m,
                       const Tensor& h) { return mul(add(matmul(x, y), m), h); },
                    a, b, mask, head)
                .epilogues,
            1);
  // Rows that are tokens of a batch, and positions that repeat in it.
  const Tensor tokens = values({2, 7, 12}, 5), w = values({30, 12}, 6), position = values({7, 30}, 7);
  EXPECT_EQ(compare([](const Tensor& x, const Tensor& y, const Tensor& p) { return add(linear(x, y), p); }, tokens, w,
                    position)
                .epilogues,
            1);
  // Columns that are heads.
  const Tensor scale = values({2, 7, 5, 6}, 8);
  EXPECT_EQ(compare([](const Tensor& x, const Tensor& y,
                       const Tensor& s) { return mul(reshape(linear(x, y), {2, 7, 5, 6}), s); },
                    tokens, w, scale)
                .epilogues,
            1);
  const Tensor p = values({11, 6}, 9), q = values({6, 13}, 10), r = values({13, 11}, 11);
  EXPECT_EQ(compare([](const Tensor& x, const Tensor& y,
                       const Tensor& z) { return exp(add(transpose(matmul(x, y), 0, 1), z)); },
                    p, q, r)
                .epilogues,
            1);
  EXPECT_EQ(compare([](const Tensor& x, const Tensor& y) { return exp(flatten(matmul(x, y))); }, p, q).epilogues, 1);
}

TEST(Epilogue, JoinsTheProductThatSavesMost) {
  const auto fn = [](const Tensor& x, const Tensor& gate, const Tensor& up) -> std::vector<Tensor> {
    const Tensor g = linear(x, gate), u = linear(x, up);
    return {mul(silu(g), u), u};
  };
  const Tensor x = values({40, 16}, 1), gate = values({50, 16}, 2), up = values({50, 16}, 3);
  const graph::ExecutableStatistics s = compare(fn, x, gate, up);
  EXPECT_EQ(s.epilogues, 1);
  EXPECT_EQ(s.calls, 2);
  EXPECT_EQ(s.epilogue_saved_bytes, 2.0 * 40 * 50 * 4);  // g is nowhere, u is a result
}

// Starting a kernel on blocks takes longer than reading a few elements again, for each matrix of a batch.
TEST(Epilogue, SmallMatricesAreReadAgain) {
  const auto joins = [](const Extents& a, const Extents& b) {
    const auto f = compile([](const Tensor& x, const Tensor& y) { return relu(matmul(x, y)); });
    const Tensor x = values(a, 1), y = values(b, 2);
    expect_same(f(x, y), relu(matmul(x, y)));
    return f.statistics().last.epilogues == 1;
  };
  EXPECT_FALSE(joins({32, 40}, {40, 64}));
  EXPECT_TRUE(joins({33, 40}, {40, 64}));
  EXPECT_FALSE(joins({9, 32, 40}, {9, 40, 64}));
  EXPECT_TRUE(joins({2, 33, 40}, {2, 40, 64}));
}

TEST(Epilogue, JoinsWhenItReadsNothingOfTheSizeOfTheProduct) {
  const Tensor x = values({90, 16}, 1), w = values({50, 16}, 2), s = values({90, 50}, 3), t = values({90, 50}, 4);
  const auto joins = [&](auto fn) {
    const auto f = compile(fn, {.check_epilogues = true});
    f(x, w, s, t);
    if (f.statistics().last.epilogues == 0)
      expect_part(joined(f.statistics().last.apart), "it reads another operand of the output's size");
    return f.statistics().last.epilogues == 1;
  };
  using T = const Tensor&;
  EXPECT_FALSE(joins([](T a, T b, T c, T) { return add(linear(a, b), c); }));
  EXPECT_TRUE(joins([](T a, T b, T c, T) { return add(linear(a, b), slice(c, 0, 0, 1)); }));
  EXPECT_FALSE(joins([](T a, T b, T c, T d) { return add(add(linear(a, b), c), d); }));
  EXPECT_TRUE(joins([](T a, T b, T, T) {
    const Tensor p = linear(a, b);
    return std::pair(p, exp(p));
  }));
  EXPECT_FALSE(joins([](T a, T b, T c, T) {
    const Tensor p = linear(a, b);
    return std::pair(p, add(p, c));
  }));
}

TEST(Epilogue, KeepsWhatABackwardReads) {
  const Tensor w1 = values({24, 10}, 1), w2 = values({10, 24}, 2);
  const auto fn = [&](const Tensor& x) { return add(x, linear(gelu(linear(x, w1)), w2)); };
  const Tensor x = values({33, 10}, 3), y = values({33, 10}, 3);
  for (const Tensor& t : {w1, w2, x, y}) requires_grad_(t);
  const auto f = compile(fn, {.epilogues = Epilogues::all, .check_epilogues = true});
  const Tensor got = f(x), expected = fn(y);
  expect_same(got, expected);
  backward(sum(mul(got, got)));
  const Tensor g1 = clone(grad_of(w1)), g2 = clone(grad_of(w2));
  set_grad(w1, {}), set_grad(w2, {});
  backward(sum(mul(expected, expected)));
  expect_same(grad_of(x), grad_of(y));
  expect_same(g1, grad_of(w1));
  expect_same(g2, grad_of(w2));
  EXPECT_EQ(f.statistics().last.epilogues, 2) << f.explain();
  EXPECT_GE(f.statistics().last_backward.epilogues, 1) << f.explain();
  expect_part(f.explain(), "output kept");
}

TEST(Epilogue, WithRandomNumbersCountsElementsOfTheWhole) {
  const Tensor a = values({70, 8}, 1), b = values({8, 110}, 2), key_like = values({110, 70}, 3);
  EXPECT_EQ(
      compare([](const Tensor& x, const Tensor& y) { return dropout(matmul(x, y), 0.5, random_key("drop")); }, a, b)
          .epilogues,
      1);
  // Its elements are numbered along the rows of the transpose: blocks have no such numbers.
  const graph::ExecutableStatistics s =
      compare([](const Tensor& x, const Tensor& y,
                 const Tensor& z) { return dropout(add(transpose(matmul(x, y), 0, 1), z), 0.5, random_key("drop")); },
              a, b, key_like);
  EXPECT_EQ(s.epilogues, 0);
  expect_part(joined(s.apart), "it counts its elements in another order");
}

TEST(Epilogue, KernelsThatCannotJoinStayWholeAndSayWhy) {
  const Tensor a = values({20, 20}, 1), b = values({20, 20}, 2), column = values({20, 1}, 3);
  const auto stays = [&](auto fn, const char* reason) {
    const graph::ExecutableStatistics s = compare(fn, a, b, column);
    EXPECT_EQ(s.epilogues, 0);
    expect_part(joined(s.apart), reason);
  };
  stays([](const Tensor& x, const Tensor& y, const Tensor&) { return softmax(matmul(x, y), -1); },
        "after matmul: it reduces rows");
  stays([](const Tensor& x, const Tensor& y, const Tensor&) { return exp(slice(matmul(x, y), 0, 2, 9)); },
        "its points are not the elements of the operand");
  stays(
      [](const Tensor& x, const Tensor& y, const Tensor&) {
        const Tensor p = matmul(x, y);
        return add(p, transpose(p, 0, 1));
      },
      "it takes the operand at several places");
  stays(
      [](const Tensor& x, const Tensor& y, const Tensor&) {
        add_(x, matmul(x, y));
        return x;
      },
      "it writes memory that the call reads");
  stays(
      [](const Tensor& x, const Tensor& y, const Tensor&) {
        const Tensor p = matmul(x, y);
        return add(p, cumsum(p, 0));
      },
      "a step between them needs the whole output");
}

TEST(Epilogue, OnePerCall) {
  const Tensor a = values({20, 12}, 1), b = values({12, 24}, 2);
  const auto fn = [](const Tensor& x, const Tensor& y) -> std::vector<Tensor> {
    const Tensor p = matmul(x, y), q = exp(p);
    return {q, cumsum(q, 0), add(p, cumsum(q, 0))};
  };
  const graph::ExecutableStatistics s = compare(fn, a, b);
  EXPECT_EQ(s.epilogues, 1);
  expect_part(joined(s.apart), "the call has an epilogue already");
}

TEST(Epilogue, OfARecomputedProductStaysInItsRegion) {
  const Tensor w = values({8, 8}, 2);
  requires_grad_(w);
  const auto fn = [w](const Tensor& x) {
    return checkpoint([w](std::span<const Tensor> in) { return exp(matmul(in[0], w)); }, std::span(&x, 1));
  };
  const auto f = compile(fn, {.check_epilogues = true});
  const Tensor x = values({8, 8}, 1);
  backward(sum(f(x)));
  const Tensor got = clone(grad_of(w));
  set_grad(w, {});
  backward(sum(fn(x)));
  expect_same(got, grad_of(w));
}

TEST(Epilogue, ReportsADivisionByZero) {
  const auto f = compile(
      [](const Tensor& x, const Tensor& y, const Tensor& d) { return floordiv(cast(matmul(x, y), DType::i64), d); });
  const Tensor a = values({70, 4}, 1), b = values({4, 60}, 2), ones = cast(full({60}, 1.0), DType::i64),
               zeros = cast(full({60}, 0.0), DType::i64);
  expect_same(f(a, b, ones), floordiv(cast(matmul(a, b), DType::i64), ones));
  EXPECT_EQ(f.statistics().last.epilogues, 1);
  EXPECT_THROW(f(a, b, zeros), IntegerDivideByZero);
}

TEST(Epilogue, TracesNameAllOpsAndTheChoice) {
  const auto f = compile([](const Tensor& x, const Tensor& y) { return tanh(matmul(x, y)); },
                         {.name = "traced", .epilogues = Epilogues::all});
  const Tensor a = values({20, 30}, 1), b = values({30, 40}, 2);
  f(a, b);
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  f(a, b);
  profiler.stop();
  int found = 0;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      if (event.kernel == nullptr) continue;
      ++found;
      const KernelInfo& info = event.kernel->info;
      ASSERT_EQ(info.ops.size(), 2u);
      EXPECT_EQ(info.ops[0].name, "matmul");
      EXPECT_EQ(info.ops[1].name, "tanh");
      EXPECT_EQ(info.kernel_id.substr(0, 12), "matmul+tanh_");
      EXPECT_EQ(info.graph_key.substr(0, 6), "traced");
      expect_part(info.choice, "tree gemm");
      expect_part(info.choice, "tanh on its blocks, output nowhere else");
      EXPECT_EQ(event.bytes, (20 * 30 + 30 * 40 + 20 * 40) * 4);
      EXPECT_GT(event.flops, 2.0 * 20 * 30 * 40);
    }
  }
  EXPECT_EQ(found, 1);
}

// Twice its input; its blocks have one wrong element when the input's first one is 1.
const OpDef kDouble{.name = "test_double",
                    .num_inputs = 1,
                    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
                    .kernel =
                        [](const OpCall& call, std::span<const Tensor> outputs) {
                          for (int64_t i = 0; i < call[0].numel(); ++i)
                            outputs[0].data<float>()[i] = 2 * call[0].data<float>()[i];
                        },
                    .kernel_in_blocks =
                        [](const OpCall& call, std::span<const Tensor> outputs, const BlockPartners& partners) {
                          const Tensor out = outputs[0].defined() ? outputs[0] : Tensor::empty(call[0].extents());
                          const Tensor in = partners.producer ? Tensor::empty(call[0].extents()) : call[0];
                          const int64_t rows = out.extent(0), columns = out.extent(1);
                          if (partners.producer) (*partners.producer)({0, rows, 0, columns, in.raw_data(), columns, 1});
                          for (int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = 2 * in.data<float>()[i];
                          if (in.data<float>()[0] == 1) out.data<float>()[out.numel() - 2] = 5;
                          if (partners.consumer) (*partners.consumer)({0, rows, 0, columns, out.raw_data(), columns});
                        }};

TEST(BlockCheck, NamesTheFirstElementThatDiffers) {
  for (const bool kept : {false, true}) {
    const auto fn = [kept](const Tensor& x) -> std::vector<Tensor> {
      const Tensor twice = call_op(kDouble, {}, x);
      if (kept) return {twice, add(twice, 1.0)};
      return {add(twice, 1.0)};
    };
    const auto f = compile(fn, {.epilogues = Epilogues::all, .check_epilogues = true});
    const Tensor good = full({3, 4}, 0.5), bad = full({3, 4}, 1.0);
    for (size_t i = 0; i < f(good).size(); ++i) expect_same(f(good)[i], fn(good)[i]);
    EXPECT_EQ(f.statistics().last.epilogues, 1);
    const std::string text = error_of<InternalError>([&] { f(bad); });
    expect_part(text, "on the blocks of test_double: element [2, 2] of output 0 of add");
    expect_part(text, "is 0x40c00000, expected 0x40400000");
    expect_part(text, "compile with epilogues = Epilogues::off");
  }
}

}  // namespace
}  // namespace tutti
