// Storages that are given back and taken again inside compiled functions, as fully sharded parameters are.
#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/resize_storage.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using namespace graph_test;

TEST(ResizeStorage, GivesMemoryBackAndTakesItAgain) {
  const Tensor t = values({64, 64}, 1), view = t.view_as({64}, {1}, 0);
  const int64_t full = t.storage()->nbytes();
  resize_storage_(t, 0);
  EXPECT_FALSE(view.storage()->has_memory());
  expect_part(error_of<UsageError>([&] { add(view, 1.0); }), "given back by resize_storage_(t, 0)");
  resize_storage_(t, 0);
  resize_storage_(t, full);
  fill_(t, 2.0);
  expect_same(view, full_like(values({64}, 1), 2.0));
  expect_part(error_of<UsageError>([&] { resize_storage_(t, 12); }),
              "12 bytes for the storage of [64, 64] f32 cpu, which has 16384; expected 0 or 16384");
  std::vector<float> mine(4);
  expect_part(
      error_of<UsageError>([&] { resize_storage_(Tensor::from_memory(mine.data(), {4}, DType::f32, [] {}), 0); }),
      "belongs to somebody else");
}

// Whole while it is used: taken, gathered into, used, given back.
TEST(ResizeStorage, AParameterThatIsWholeOnlyInsideAStep) {
  const Tensor whole = values({8, 8}, 1), shard = values({8, 8}, 2);
  const int64_t full = whole.storage()->nbytes();
  const auto step = [&](const Tensor& x) {
    resize_storage_(whole, full);
    copy_(whole, shard);
    const Tensor y = add(matmul(x, whole), whole);
    resize_storage_(whole, 0);
    return mul(y, 2.0);
  };
  const auto f = compile(step);
  resize_storage_(whole, 0);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = values({8, 8}, static_cast<uint64_t>(i)), expected = mul(add(matmul(x, shard), shard), 2.0);
    expect_same(f(x), expected);
    EXPECT_FALSE(whole.storage()->has_memory());
    expect_same(step(x), expected);
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(ResizeStorage, ReadingWhatWasGivenBackIsAnErrorOfTheCall) {
  const Tensor w = values({8}, 1);
  const auto f = compile([&](const Tensor& x, bool gives_back) {
    if (gives_back) resize_storage_(w, 0);
    return add(x, w);
  });
  const Tensor x = values({8}, 2);
  expect_same(f(x, false), add(x, w));
  EXPECT_THROW(f(x, true), UsageError);
  EXPECT_FALSE(w.storage()->has_memory());
  EXPECT_THROW(f(x, false), UsageError);
  resize_storage_(w, w.storage()->nbytes());
  fill_(w, 1.0);
  expect_same(f(x, false), add(x, 1.0));
}

TEST(ResizeStorage, MemoryOfTheCallItselfStays) {
  const auto f = compile([](const Tensor& x) {
    const Tensor y = add(x, 1.0), z = sum(y);
    resize_storage_(y, 0);
    return z;
  });
  expect_same(f(values({5}, 1)), sum(add(values({5}, 1), 1.0)));
}

TEST(ResizeStorage, OfAnArgument) {
  const auto f = compile([](const Tensor& x) {
    const Tensor y = mul(x, 2.0);
    resize_storage_(x, 0);
    return y;
  });
  const Tensor x = values({16}, 1), expected = mul(x, 2.0);
  expect_same(f(x), expected);
  EXPECT_FALSE(x.storage()->has_memory());
}

}  // namespace
}  // namespace tutti
