#include "tutti/ops/engine/attrs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace tutti {
namespace {

struct Holes {
  int64_t dim;
  bool flag;    // 3 bytes of padding behind it
  int32_t peer;
  bool last;    // 7 bytes
};

// Passes compare attrs as bytes. What lay in memory before must not tell equal ones apart: ranks would come to graphs of
// their own.
TEST(Attrs, DoNotCarryWhatLayBetweenTheirFields) {
  alignas(Holes) unsigned char memory[2][sizeof(Holes)];
  std::memset(memory[0], 0x00, sizeof(Holes));
  std::memset(memory[1], 0xa5, sizeof(Holes));
  Attrs made[2];
  for (int i = 0; i < 2; ++i) {
    auto* value = new (memory[i]) Holes;
    value->dim = 3, value->flag = true, value->peer = -1, value->last = false;
    made[i] = Attrs::of(*value);
  }
  EXPECT_NE(std::memcmp(memory[0], memory[1], sizeof(Holes)), 0);
  EXPECT_TRUE(std::ranges::equal(made[0].bytes(), made[1].bytes()));
  EXPECT_EQ(made[1].as<Holes>().peer, -1);
  EXPECT_TRUE(made[1].as<Holes>().flag);
}

}  // namespace
}  // namespace tutti
