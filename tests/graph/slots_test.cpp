// Compiled functions read slots before each call, so that they never work on a tensor that was replaced.
#include <gtest/gtest.h>

#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/tensor/tensor_slot.h"

namespace tutti {
namespace {

struct Slot final : TensorSlot {
  explicit Slot(Tensor t) : tensor(std::move(t)) {}
  Tensor held() const override { return tensor; }
  std::string description() const override { return "parameter 'scale'"; }
  Tensor tensor;
};

TEST(Slots, AreReadEagerly) {
  const auto slot = std::make_shared<Slot>(Tensor::of<float>({2}));
  EXPECT_EQ(read_slot(slot).item(), 2.0);
  slot->tensor = Tensor::of<float>({3});
  EXPECT_EQ(read_slot(slot).item(), 3.0);
}

TEST(Slots, GiveACompiledFunctionTheTensorOfTheCall) {
  const auto slot = std::make_shared<Slot>(Tensor::of<float>({2}));
  const auto f = compile([slot](const Tensor& x) { return mul(x, read_slot(slot)); }, {.name = "scaled"});
  const Tensor x = Tensor::of<float>({10});
  // Replaced at every call and at calls between looks, with and without a handle that keeps the old one.
  std::vector<Tensor> kept;
  for (int i = 1; i < 40; ++i) {
    if (i % 3 == 0 || i > 35) {
      if (i % 2 == 0) kept.push_back(slot->tensor);
      slot->tensor = Tensor::of<float>({static_cast<float>(i)});
    }
    EXPECT_EQ(f(x).item(), 10.0 * slot->tensor.item()) << i;
  }
}

TEST(Slots, WrittenInPlaceNeedNoCompilation) {
  const auto slot = std::make_shared<Slot>(Tensor::of<float>({2}));
  const auto f = compile([slot](const Tensor& x) { return mul(x, read_slot(slot)); }, {.name = "scaled"});
  const Tensor x = Tensor::of<float>({10});
  for (int i = 0; i < 10; ++i) {
    fill_(slot->tensor, i);
    EXPECT_EQ(f(x).item(), 10.0 * i);
  }
  EXPECT_EQ(f.statistics().compiles, 1);
}

TEST(Slots, GetGradientsWhereverTheirTensorIs) {
  const auto slot = std::make_shared<Slot>(requires_grad_(Tensor::of<float>({2})));
  const auto f = compile([slot](const Tensor& x) { return sum(mul(x, mul(read_slot(slot), read_slot(slot)))); },
                         {.name = "squared"});
  const Tensor x = Tensor::of<float>({10});
  for (int i = 1; i < 5; ++i) {
    slot->tensor = requires_grad_(Tensor::of<float>({static_cast<float>(i)}));
    backward(f(x));
    EXPECT_EQ(grad_of(slot->tensor).item(), 20.0 * i);
  }
}

TEST(Slots, ThatFailSaySoInTheCaller) {
  struct Failing final : TensorSlot {
    Tensor held() const override { throw UsageError("parameter 'w' is not materialized"); }
    std::string description() const override { return "parameter 'w'"; }
  };
  const auto slot = std::make_shared<Failing>();
  const auto f = compile([slot](const Tensor& x) { return mul(x, read_slot(slot)); }, {.name = "scaled"});
  try {
    f(Tensor::of<float>({1}));
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("parameter 'w' is not materialized"), std::string::npos) << e.what();
  }
}

TEST(Slots, MayNotBeReplacedByTheFunctionThatReadsThem) {
  const auto slot = std::make_shared<Slot>(Tensor::of<float>({2}));
  const auto f = compile(
      [slot](const Tensor& x) {
        const Tensor y = mul(x, read_slot(slot));
        slot->tensor = Tensor::of<float>({3});
        return mul(y, read_slot(slot));
      },
      {.name = "replacing"});
  try {
    f(Tensor::of<float>({1}));
    FAIL();
  } catch (const CaptureError& e) {
    EXPECT_NE(std::string(e.what()).find("TUTTI-CAPTURE-037"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("parameter 'scale'"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti
