// Compiled functions of ops along dims on tensors without elements.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tests/support/ops_over_dims.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

TEST(CompiledEmptyDims, GiveWhatEagerCallsGive) {
  for (const OpOverDims& op : ops_over_dims()) {
    for (const Extents& shape : {Extents{0, 2, 3, 2}, Extents{2, 0, 3, 2}, Extents{2, 2, 0, 3}}) {
      const Dims dims = op.takes_several ? Dims{1, 3} : Dims{1};
      const std::string about = fmt::format("{} over [{}] of {}", op.name, fmt::join(dims, ", "), shape);
      const Tensor x = facets::sample_tensor(1, shape);
      try {
        std::vector<Tensor> eager, compiled;
        const std::string said = message_of([&] { eager = op.run(x, dims); });
        const auto fn = compile([&](const std::vector<Tensor>& in) { return op.run(in[0], dims); });
        const std::string other = message_of([&] { compiled = fn(std::vector<Tensor>{x}); });
        EXPECT_EQ(said == "no error", other == "no error") << about << ": " << other;
        ASSERT_EQ(eager.size(), compiled.size()) << about;
        for (size_t k = 0; k < eager.size(); ++k) {
          EXPECT_EQ(eager[k].extents(), compiled[k].extents()) << about;
          for (int64_t i = 0; i < eager[k].numel(); ++i) {
            const double a = facets::read_double(eager[k], i), b = facets::read_double(compiled[k], i);
            EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << about;
          }
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << about << ": " << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace tutti
