// How long a compiled function holds what collectives bring.
#include <gtest/gtest.h>

#include "tests/comm/support/compiled_support.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/matmul.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm::functional {
namespace {

using compiled_test::expect_same;
using compiled_test::values;

// A chain of gathers, products and scatters needs the memory of a link or two, however long it is: its results were
// once kept until the function returned.
TEST(CompiledMemory, ResultsOfCollectivesGoAfterTheirLastReader) {
  constexpr int64_t kRows = 64, kColumns = 512, kPart = kRows * kColumns * 4;
  constexpr int kLinks = 24;
  for (const std::string& transport : world_transports()) {
    for (const bool joined : {false, true}) {
      run_over(transport, 2, [&](ProcessGroup& group) {
        const auto fn = [&](const Tensor& x, const Tensor& w) {
          Tensor part = x;
          for (int i = 0; i < kLinks; ++i) {
            const Tensor whole = all_gather_single(part, 0, group);
            part = reduce_scatter_single(matmul(whole, w), "sum", 0, group);
          }
          return part;
        };
        const auto f = compile(fn, {.collectives = {.join_products = joined}});
        const Tensor x = values({kRows, kColumns}, group.rank(), 1), w = values({kColumns, kColumns}, 0, 2);
        expect_same(f(x, w), fn(x, w));
        TUTTI_CHECK((f.statistics().last.joined > 0) == joined, "{} joined", f.statistics().last.joined);
        Allocator& memory = RankContext::current().allocator();
        memory.reset_peak();
        const int64_t before = memory.statistics().current_bytes;
        const Tensor y = wait_tensor(f(x, w));
        const int64_t taken = memory.statistics().peak_bytes - before;
        // Two links of a part, the gathered parts, the product and what a transport copies of it.
        TUTTI_CHECK(taken <= 16 * kPart, "{}, joined {}: {} bytes for {} links of {}", transport, joined, taken, kLinks,
                    kPart);
      });
    }
  }
}

}  // namespace
}  // namespace tutti::comm::functional
