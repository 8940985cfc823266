// An output that lies with gaps gets the bits of a dense one: every op whose kernel is generated, every sample.
#include <algorithm>

#include "tests/contract/support/op_cases.h"
#include "tutti/ops/engine/eager.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT: the contract's own words

bool is_generated(const OpDef& op) {
  const auto is_written = [](int8_t input) { return input >= 0; };
  return op.recipe.build != nullptr && op.kernel == nullptr && op.view == nullptr &&
         std::none_of(std::begin(op.writes), std::end(op.writes), is_written);
}

class Outputs : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, Outputs, ::testing::ValuesIn(ops_where(is_generated)), name_of_op);

TEST_P(Outputs, MayHaveGaps) {
  const OpDef& op = *GetParam();
  for (const Sample& sample : op.samples()) {
    SCOPED_TRACE(sample.name);
    const std::vector<Tensor> dense = run_on(op, sample.inputs, sample.attrs);
    std::vector<Tensor> gapped = dense_copies(dense);
    for (const Tensor& t : gapped) std::fill_n(static_cast<char*>(t.raw_data()), t.nbytes(), char{1});
    gapped = gapped_copies(gapped);
    run_recipe({op, sample.inputs, sample.attrs}, gapped);
    for (size_t k = 0; k < dense.size(); ++k) EXPECT_EQ(bit_difference(gapped[k], dense[k]), "") << "output " << k;
  }
}

}  // namespace
}  // namespace tutti
