#include "tutti/nn/parameter.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/graph/compile.h"
#include "tutti/nn/module.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/reduction.h"

namespace tutti::nn {
namespace {

Parameter made(std::vector<float> values) {
  const Parameter p("w", {static_cast<int64_t>(values.size())}, Init::zeros());
  p.assign(Tensor::of<float>(values));
  return p;
}

// What bf16 makes of a float, by integer arithmetic: round to nearest, ties to even.
float bf16_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
  std::memcpy(&x, &bits, 4);
  return x;
}

TEST(Parameter, HasNoMemoryUntilItIsMaterializedAndSaysSo) {
  const Parameter p("weight", {4, 3}, Init::ones());
  EXPECT_FALSE(p.is_materialized());
  EXPECT_EQ(p.numel(), 12);
  const std::string expected =
      "parameter 'weight' [4, 3] has no values yet; call nn::initialize(module), load the module, or materialize() the "
      "parameter";
  EXPECT_EQ(message_of([&] { p.use(); }), expected);
  EXPECT_EQ(message_of([&] { p.master(); }), expected);
  p.initialize("weight");
  EXPECT_EQ(p.use().data<float>()[11], 1.0f);
}

TEST(Parameter, RefusesWhatCannotBeTrained) {
  EXPECT_EQ(message_of([] { Parameter("ids", {2}, Init::zeros(), DType::i64); }),
            "parameter 'ids': a parameter is trained, so it cannot hold i64; use a buffer");
  EXPECT_EQ(message_of([] { Parameter("w", {2, -1}, Init::zeros()); }),
            "parameter 'w': dim 1 of [2, -1] has a negative size");
  EXPECT_EQ(message_of([] { made({1}).set_use_dtype(DType::i32); }),
            "parameter 'w' cannot be used as i32; expected a float");
  EXPECT_EQ(message_of([] { made({1}).assign(Tensor::of<float>({1, 2})); }),
            "parameter 'w' is [1]; it cannot take [2] f32 cpu");
  EXPECT_EQ(message_of([] { Parameter().use(); }), "this parameter is undefined: its module was built without it");
}

TEST(Parameter, IsOneTensorWhenItIsUsedInTheDtypeOfItsMaster) {
  const Parameter p = made({1, 2});
  EXPECT_TRUE(p.use().is_same(p.master()));
  EXPECT_TRUE(requires_grad(p.use()));
}

TEST(Parameter, InAnotherDtypeForwardReadsACopyThatFollowsTheMaster) {
  const Parameter p = made({1.0f, 1.00390625f, 3.14159f});
  p.set_use_dtype(DType::bf16);
  const Tensor copy = p.use();
  EXPECT_EQ(copy.dtype(), DType::bf16);
  EXPECT_EQ(p.master().dtype(), DType::f32);
  EXPECT_FALSE(requires_grad(p.master()));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(cast(detach(p.use()), DType::f32).data<float>()[i], bf16_of(p.master().data<float>()[i]));
  {
    NoGradScope no_grad;
    mul_(p.master(), 1.7);
  }
  EXPECT_TRUE(p.use().is_same(copy));  // in place: what holds the copy sees the new values
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(cast(detach(copy), DType::f32).data<float>()[i], bf16_of(p.master().data<float>()[i]));
  p.master().data<float>()[0] = 5.0f;
  p.changed();
  EXPECT_EQ(cast(detach(p.use()), DType::f32).data<float>()[0], 5.0f);
}

TEST(Parameter, ABf16UseGetsAnF32Gradient) {
  const Parameter p = made({1.0f, 2.0f});
  p.set_use_dtype(DType::bf16);
  backward(sum(mul(cast(p, DType::f32), Tensor::of<float>({1.0f, 0.001f}))));
  EXPECT_EQ(p.grad().dtype(), DType::f32);
}

TEST(Parameter, ThatIsFrozenGetsNoGradientInAnyDtype) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Parameter p = made({1.0f, 2.0f}), q = made({3.0f, 4.0f});
    p.requires_grad_(false);
    p.set_use_dtype(dtype);
    backward(sum(mul(cast(p, DType::f32), q)));
    EXPECT_FALSE(p.grad().defined());
    EXPECT_TRUE(q.grad().defined());
    p.requires_grad_(true);
    EXPECT_TRUE(requires_grad(p.leaf()));
  }
}

TEST(Parameter, ACompiledFunctionReadsTheValuesOfEachCall) {
  const Parameter p = made({2.0f, 3.0f});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    p.set_use_dtype(dtype);
    const auto f = compile([p](const Tensor& x) { return mul(x, cast(p, DType::f32)); }, {.name = "scaled"});
    for (int i = 1; i < 12; ++i) {
      p.assign(Tensor::of<float>({static_cast<float>(i), static_cast<float>(2 * i)}));
      EXPECT_EQ(f(Tensor::of<float>({1, 1})).data<float>()[1], 2.0f * static_cast<float>(i));
    }
    EXPECT_EQ(f.statistics().compiles, 1);
  }
}

TEST(Parameter, ACompiledFunctionNamesTheOneThatHasNoValues) {
  const Parameter p("weight", {2}, Init::zeros());
  const auto f = compile([p](const Tensor& x) { return mul(x, p.use()); }, {.name = "scaled"});
  EXPECT_NE(message_of([&] { f(Tensor::of<float>({1, 1})); }).find("parameter 'weight' [2] has no values yet"),
            std::string::npos);
}

TEST(Parameter, ACompiledFunctionThatWritesAMasterCannotReadItsCopyAfterwards) {
  const Parameter p = made({1.0f});
  p.set_use_dtype(DType::bf16);
  const auto read_first = compile([&](const Tensor& x) {
    const Tensor y = mul(p.use(), x);
    mul_(p.master(), 2.0);
    return y;
  });
  const auto write_first = compile([&](const Tensor& x) {
    mul_(p.master(), 2.0);
    return mul(p.use(), x);
  });
  const Tensor x = cast(Tensor::of<float>({1.0f}), DType::bf16);
  EXPECT_EQ(read_first(x).item(), 1.0);
  EXPECT_EQ(read_first(x).item(), 2.0);
  EXPECT_NE(
      message_of([&] { write_first(x); }).find("writes the master of parameter 'w' and then reads its copy in bf16"),
      std::string::npos);
  EXPECT_EQ(p.master().item(), 4.0);
}

TEST(Parameter, ThatChangesBeforeACheckpointedBackwardIsRefused) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Parameter p = made({2.0f, 3.0f});
    p.set_use_dtype(dtype);
    const Tensor x = requires_grad_(Tensor::of<float>({1, 1}));
    const Tensor loss =
        sum(checkpoint([&](std::span<const Tensor> in) { return mul(in[0], cast(p, DType::f32)); }, std::span(&x, 1)));
    p.assign(Tensor::of<float>({5, 5}));
    EXPECT_NE(message_of([&] { backward(loss); }).find("that the region reads was changed in place after the forward"),
              std::string::npos);
  }
}

TEST(Parameter, RefusesAGradientThatIsNotItsOwn) {
  EXPECT_EQ(message_of([] { made({1, 2}).set_grad(Tensor::of<float>({1})); }),
            "parameter 'w' is [2]; its gradient cannot be [1] f32 cpu");
}

TEST(Parameter, FrozenOneIsItsValuesUntilItIsAssigned) {
  const Parameter p = made({1, 2});
  const Tensor values = cast(Tensor::of<float>({3, 4}), DType::bf16);
  p.freeze(values);
  EXPECT_TRUE(p.is_frozen());
  EXPECT_FALSE(p.requires_grad());
  EXPECT_EQ(p.dtype(), DType::bf16);
  EXPECT_EQ(p.master().raw_data(), values.raw_data());
  EXPECT_EQ(p.use().dtype(), DType::f32) << "the dtype of use is what it was";
  EXPECT_EQ(p.use().data<float>()[1], 4.0f);
  EXPECT_NE(message_of([&] { p.requires_grad_(true); }).find("parameter 'w' is frozen"), std::string::npos);
  EXPECT_NE(message_of([&] { p.set_master(Tensor::of<float>({5, 6})); }).find("so it is not trained"),
            std::string::npos);
  p.set_use_dtype(DType::bf16);
  EXPECT_EQ(p.use().raw_data(), values.raw_data()) << "no copy";
  p.materialize();
  EXPECT_EQ(p.use().raw_data(), values.raw_data()) << "it has values";
  p.set_use_dtype(DType::f32);
  p.assign(Tensor::of<float>({7, 8}));
  EXPECT_FALSE(p.is_frozen());
  EXPECT_TRUE(p.requires_grad());
  EXPECT_EQ(p.dtype(), DType::f32);
  EXPECT_EQ(p.use().data<float>()[0], 7.0f);
  EXPECT_EQ(cast(values, DType::f32).data<float>()[0], 3.0f) << "they are nobody's to write";
  EXPECT_NE(message_of([&] { p.freeze(Tensor::of<float>({1})); }).find("cannot be frozen to"), std::string::npos);
}

TEST(Parameter, ACompiledFunctionReadsWhatItIsFrozenTo) {
  const Parameter p = made({1, 2});
  const auto f = compile([p](const Tensor& x) { return mul(x, p.use()); }, {.name = "scaled"});
  EXPECT_EQ(f(Tensor::of<float>({1, 1})).data<float>()[1], 2.0f);
  p.freeze(Tensor::of<float>({5, 6}));
  EXPECT_EQ(f(Tensor::of<float>({1, 1})).data<float>()[1], 6.0f);
  p.assign(Tensor::of<float>({7, 8}));
  EXPECT_EQ(f(Tensor::of<float>({1, 1})).data<float>()[1], 8.0f);
}

TEST(Buffer, MayBeComputedFromOthersInsideACompiledFunction) {
  const Parameter p = made({4, 5});
  const Buffer a("a", [] { return Tensor::of<float>({1, 2}); });
  const Buffer b("b", [&] { return add(mul(a.use(), 10.0), p.master()); });
  const auto f = compile([b](const Tensor& x) { return mul(x, b.use()); }, {.name = "looked up"});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(Tensor::of<float>({1, 1})).data<float>()[1], 25.0f);
}

TEST(Buffer, IsComputedWhenItIsFirstReadAlsoInsideACompiledFunction) {
  int computed = 0;
  const Buffer b("table", [&] { return ++computed, add(Tensor::of<float>({1, 2}), 1.0); });
  EXPECT_EQ(computed, 0);
  const auto f = compile([b](const Tensor& x) { return mul(x, b.use()); }, {.name = "looked up"});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(f(Tensor::of<float>({1, 1})).data<float>()[1], 3.0f);
  EXPECT_EQ(computed, 1);
  b.set(Tensor::of<float>({7, 8}));
  EXPECT_EQ(f(Tensor::of<float>({1, 1})).data<float>()[1], 8.0f);
}

TEST(Buffer, CannotKeepATensorThatOnlyATraceHas) {
  const Buffer b("running_mean", Tensor::of<float>({0.0f}));
  const auto f = compile([&](const Tensor& x) {
    b.set(mul(x, 2.0));
    return x;
  });
  EXPECT_NE(message_of([&] {
              f(Tensor::of<float>({1.0f}));
            }).find("buffer 'running_mean' cannot hold [1] f32 cpu, which exists only while compile() traces"),
            std::string::npos);
  EXPECT_EQ(b.use().item(), 0.0);
}

TEST(Buffer, RefusesUndefinedTensors) {
  EXPECT_EQ(message_of([] { Buffer("table", Tensor()); }),
            "buffer 'table' needs a value, or a function that computes it");
  EXPECT_EQ(message_of([] { Buffer("table", [] { return Tensor(); }).use(); }),
            "buffer 'table': its function returned an undefined tensor");
  EXPECT_EQ(message_of([] { Buffer().use(); }), "this buffer is undefined: its module was built without it");
}

}  // namespace
}  // namespace tutti::nn
