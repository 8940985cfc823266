// A compiled kernel is found by everything that it was made from.
#include <gtest/gtest.h>

#include <vector>

#include "tutti/ops/engine/recipe_kernel.h"

namespace tutti {
namespace {

TEST(KernelKey, KeysThatDifferInOneMemberAreDifferentKernels) {
  const OpDef one{.name = "one"}, two{.name = "two"};
  KernelKey key{.op = &one, .variant = 3, .kind = codegen::LoopKind::pointwise, .device = DeviceKind::cpu};
  key.add(DType::f32, codegen::StrideClass::contiguous);
  key.add(DType::bf16, codegen::StrideClass::contiguous);
  std::vector<KernelKey> others(7, key);
  others[0].op = &two;
  others[1].variant = 4;
  others[2].kind = codegen::LoopKind::row;
  others[3].device = DeviceKind::mock;
  others[4].add(DType::f32, codegen::StrideClass::contiguous);
  others[5].set_stride_class(1, codegen::StrideClass::broadcast);
  others[6].count = 1;
  EXPECT_TRUE(key == KernelKey(key));
  for (size_t i = 0; i < others.size(); ++i) EXPECT_FALSE(key == others[i]) << "member " << i;
}

}  // namespace
}  // namespace tutti
