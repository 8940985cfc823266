// Writes to views that overlap themselves are refused by every op that writes, eager and compiled, and nothing is
// written.
#include "tutti/tensor/overlap.h"

#include <gtest/gtest.h>

#include "tests/graph/support/control_support.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti {
namespace {

using namespace graph_test;
using Tensors = std::vector<Tensor>;

struct Way {
  const char* name;
  Extents (*strides)(const Extents& sizes);  // that overlap
};

// As expand() makes them, as unfold() does, and two that only as_strided() makes.
const Way kWays[] = {
    {"expanded", [](const Extents& sizes) { return Extents(sizes.size(), 0); }},
    {"windows", [](const Extents& sizes) { return Extents(sizes.size(), 1); }},
    {"interleaved",
     [](const Extents& sizes) {
       Extents strides = contiguous_strides(sizes);
       strides[0] = std::max<int64_t>(strides[0] - 1, 0);
       return strides;
     }},
};

// A tensor like `t` whose elements are the same memory where the way says so; undefined when it has too few of them.
Tensor overlapping(const Tensor& t, const Way& way) {
  if (t.numel() < 2) return {};
  const Extents strides = way.strides(t.extents());
  if (!overlaps_itself(t.extents(), strides)) return {};
  const Tensor memory = full({t.numel()}, 1.0, t.dtype());
  return memory.view_as(t.extents(), strides, 0);
}

void expect_refused(const OpDef& op, const Tensors& inputs, const Attrs& attrs, const Tensor& target) {
  const Tensor memory = target.view_as({target.storage()->nbytes() / itemsize(target.dtype())}, {1}, 0),
               before = clone(memory);
  const uint32_t version = target.version();
  const auto call = [&](const Tensors& a) {
    Tensors outputs(static_cast<size_t>(op.num_outputs));
    apply(op, a, attrs, outputs);
    return Tensors{};
  };
  const std::string eager = error_of<UsageError>([&] { call(inputs); });
  expect_part(eager, "cannot be written one by one; clone() it");
  EXPECT_EQ(eager.find(op.name), 0u) << eager;
  const auto compiled = compile(call);
  EXPECT_EQ(error_of<UsageError>([&] { compiled(inputs); }), eager);
  expect_same(memory, before);
  EXPECT_EQ(target.version(), version);
}

TEST(Overlap, EveryOpThatWritesRefusesIt) {
  int ops = 0;
  for (const OpDef* op : op_table()) {
    bool writes = false;
    for (const int8_t w : op->writes) writes = writes || w >= 0;
    if (!writes) continue;
    ASSERT_NE(op->samples, nullptr) << op->name;
    ++ops;
    for (const Way& way : kWays) {
      int refused = 0;
      for (const Sample& sample : op->samples()) {
        for (const int8_t w : op->writes) {
          if (w < 0) continue;
          Tensors inputs = sample.inputs;
          Tensor& target = inputs[static_cast<size_t>(w)];
          target = overlapping(target, way);
          if (!target.defined()) continue;
          SCOPED_TRACE(fmt::format("{} {}, input {} {}", op->name, sample.name, w, way.name));
          expect_refused(*op, inputs, sample.attrs, target);
          ++refused;
        }
        if (refused >= 3) break;  // of one way
      }
      EXPECT_GT(refused, 0) << op->name << " " << way.name;
    }
  }
  EXPECT_GE(ops, 12);
}

TEST(Overlap, ViewsThatDoNotOverlapAreWritten) {
  const auto fn = [](const Tensor& x) {
    add_(unfold(x, 0, 2, 3), 1.0);  // windows apart
    const Tensor y = clone(x);
    mul_(as_strided(y, {3, 2}, {2, 3}), 2.0);   // interleaved, each element once
    fill_(as_strided(y, {1, 4}, {0, 3}), 7.0);  // a dim of one element
    return y;
  };
  const Tensor a = values({12}, 1), b = values({12}, 1);
  expect_same(compile(fn)(b), fn(a));
  expect_same(b, a);
}

TEST(Overlap, ViewsByPositionOfAnArgumentAreRefusedInCompiledFunctions) {
  const auto f = compile([](const Tensor& x) { return mul(as_strided(x, {2}, {1}), 1.0); });
  for (const Tensor& x : {values({4}, 1), slice(values({8}, 1), 0, 4, 8)})
    expect_part(error_of<CaptureError>([&] { f(x); }), "TUTTI-CAPTURE-036");
}

TEST(Overlap, AViewThatTheFunctionMakesIsRefusedWithTheErrorOfAnEagerRun) {
  const auto fn = [](const Tensor& x) { return add_(unfold(x, 0, 3, 1), 1.0); };
  const Tensor x = values({12}, 1);
  const std::string eager = error_of<UsageError>([&] { fn(x); });
  expect_part(eager, "add_scalar_: the tensor [10, 3] f32 cpu with strides [1, 1] overlaps itself");
  EXPECT_EQ(error_of<UsageError>([&] { compile(fn)(x); }), eager);
  expect_same(x, values({12}, 1));
}

}  // namespace
}  // namespace tutti
