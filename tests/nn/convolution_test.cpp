#include "tutti/nn/convolution.h"

#include <gtest/gtest.h>

#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"

namespace tutti::nn {
namespace {

TEST(Conv, HasItsParametersAndTheirGradients) {
  Conv1d line(4, 6, {3}, {.groups = 2});
  Conv2d plane(3, 5, {3, 2}, {.padding = {1}}, false);
  Conv3d space(1, 2, {2});
  EXPECT_EQ(line.weight.sizes(), (Extents{6, 2, 3}));
  EXPECT_EQ(line.bias.sizes(), (Extents{6}));
  EXPECT_EQ(plane.weight.sizes(), (Extents{5, 3, 3, 2}));
  EXPECT_FALSE(plane.bias.defined());
  EXPECT_EQ(space.weight.sizes(), (Extents{2, 1, 2, 2, 2}));
  EXPECT_EQ(plane.named_parameters().size(), 1u);
  initialize(line), initialize(plane), initialize(space);
  const Tensor a = line.forward(facets::sample_tensor(1, {2, 4, 7})),
               b = plane.forward(facets::sample_tensor(2, {2, 3, 5, 5}));
  const Tensor c = space.forward(facets::sample_tensor(3, {1, 3, 3, 3}));
  EXPECT_EQ(a.extents(), (Extents{2, 6, 5}));
  EXPECT_EQ(b.extents(), (Extents{2, 5, 5, 6}));
  EXPECT_EQ(c.extents(), (Extents{2, 2, 2, 2}));
  backward(add(sum(mul(a, a)), add(sum(b), sum(c))));
  for (const Conv* m :
       {static_cast<const Conv*>(&line), static_cast<const Conv*>(&plane), static_cast<const Conv*>(&space)})
    EXPECT_EQ(m->weight.grad().extents(), m->weight.sizes());
  // Every output has one bias: 2 images of 2 * 2 * 2 positions each would be 16, one image has 8.
  EXPECT_EQ(space.bias.grad().data<float>()[0], 8.0f);
}

TEST(Conv, RefusesChannelsThatGroupsDoNotDivide) {
  try {
    Conv2d(3, 4, {3}, {.groups = 2});
    FAIL() << "was made";
  } catch (const UsageError& e) {
    EXPECT_STREQ(
        e.what(),
        "Conv2d: 3 channels to 4 outputs in 2 groups; expected 1 or more of each, and groups that divide both");
  }
  EXPECT_THROW(Conv2d(2, 4, {3, 3, 3}), UsageError);
}

}  // namespace
}  // namespace tutti::nn
