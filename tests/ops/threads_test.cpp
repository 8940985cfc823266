// Work that is large enough to be shared between threads has the bits of one thread.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

struct Work {
  const char* name;
  Tensor (*run)(const Tensor&);
};
void PrintTo(const Work& work, std::ostream* out) { *out << work.name; }

class SharedWork : public ::testing::TestWithParam<Work> {};
INSTANTIATE_TEST_SUITE_P(
    , SharedWork,
    ::testing::Values(Work{"Flat", [](const Tensor& x) { return exp(x); }},
                      Work{"Broadcast", [](const Tensor& x) { return add(x, sum(x, {.dims = {0}})); }},
                      Work{"Transposed", [](const Tensor& x) { return exp(x.view_as({701, 203}, {1, 701}, 0)); }},
                      Work{"Rows", [](const Tensor& x) { return sum(x, {.dims = {1}}); }},
                      Work{"Columns", [](const Tensor& x) { return sum(x, {.dims = {0}}); }},
                      Work{"Everything", [](const Tensor& x) { return sum(x); }},
                      Work{"Variance", [](const Tensor& x) { return var(x, {.dims = {1}}); }},
                      Work{"Scan", [](const Tensor& x) { return cumsum(x, 1); }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(SharedWork, HasTheBitsOfOneThread) {
  const Tensor x = facets::sample_tensor(1, {203, 701});
  RankContext& context = RankContext::current();
  context.set_threads(1);
  const Tensor alone = GetParam().run(x);
  context.set_threads(3);
  const Tensor shared = GetParam().run(x);
  context.set_threads(0);
  ASSERT_EQ(alone.extents(), shared.extents());
  EXPECT_EQ(std::memcmp(alone.raw_data(), shared.raw_data(), static_cast<size_t>(alone.nbytes())), 0);
}

// A library in the same process may flush denormals; eager calls keep them all the same.
TEST(Eager, KeepsDenormalsWhateverTheCallersFloatingPointMode) {
  const Tensor tiny = Tensor::of<float>({1e-40f, -1e-42f});
  __builtin_ia32_ldmxcsr(0x1f80 | 0x8040);
  const Tensor sum = add(tiny, tiny);
  __builtin_ia32_ldmxcsr(0x1f80);
  EXPECT_EQ(sum.data<float>()[0], 2 * tiny.data<float>()[0]);
  EXPECT_EQ(sum.data<float>()[1], 2 * tiny.data<float>()[1]);
}

}  // namespace
}  // namespace tutti
