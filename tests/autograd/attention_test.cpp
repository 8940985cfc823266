#include "tutti/ops/attention.h"

#include <gtest/gtest.h>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"

namespace tutti {
namespace {

TEST(AttentionGradient, AMaskThatWantsAGradientIsRefused) {
  const Tensor q = facets::sample_tensor(1, {1, 3, 2, 4}), mask = facets::sample_tensor(2, {1, 1, 3, 3});
  requires_grad_(q);
  const Tensor fixed[] = {sum(sdpa(q, q, q, {.mask = mask}))}, inputs[] = {q};
  EXPECT_TRUE(grad(fixed, inputs)[0].defined());
  requires_grad_(mask);
  const Tensor learned = sum(sdpa(q, q, q, {.mask = mask}));
  try {
    backward(learned);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("the mask wants a gradient, which attention does not give; detach it, or "
                                         "write attention with matmul and softmax"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace tutti
