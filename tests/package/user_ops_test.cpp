// Ops of the program itself, which it has added to the op table.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/package/support/c_program.h"
#include "tests/package/support/packaged_cases.h"
#include "tutti/deploy/tutti_runtime.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/engine/op_rooms.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

using package_test::for_this_processor;
using package_test::values;

struct StepAttrs {
  double step;
  static constexpr auto fields() { return field_list(field::number<&StepAttrs::step>("step")); }
};

// Rounds down to multiples of `step`.
const OpDef kRoundDown{
    .name = "test_round_down",
    .num_inputs = 1,
    .infer = [](const OpCall& c, OutputMetas& m) { m.add(c[0].dtype(), c[0].sizes()); },
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const Tensor x = to_contiguous(call[0]);
          const double step = call.attrs.as<StepAttrs>().step;
          for (int64_t i = 0; i < x.numel(); ++i)
            outputs[0].data<float>()[i] = static_cast<float>(std::floor(x.data<float>()[i] / step) * step);
        },
    .samples =
        [] {
          return std::vector<Sample>{{"quarters", {Tensor::of<float>({1.3f, -0.1f})}, Attrs::of(StepAttrs{0.25})}};
        }};
const OpDef* const kOps[] = {&kRoundDown};
[[maybe_unused]] const bool joined = (join_op_table(kOps), true);

Tensor rounded(const Tensor& x) {
  const Tensor y = exp(x);
  return tanh(apply1(kRoundDown, {&y, 1}, Attrs::of(StepAttrs{0.125})));
}

TEST(PackagedUserOps, RunInProgramsThatHaveThem) {
  const testing::TemporaryFolder folder;
  package(folder / "f", &rounded, for_this_processor("f", {{.name = "n", .dims = {{0, 0}}, .least = 1, .most = 5}}),
          values(1, {3, 4}));
  const auto opened = deploy::Package::open(folder / "f");
  for (int64_t n = 1; n <= 5; ++n)
    expect_same_bits(opened->run({{values(2, {n, 4})}})[0], rounded(values(2, {n, 4})), fmt::format("{} rows", n));
  const package_test::Outcome outcome =
      package_test::run_command(fmt::format("{} {}", package_test::kProgram, folder / "f"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find(fmt::format("error {}: ", static_cast<int>(TUTTI_OTHER_VERSION))), std::string::npos);
  EXPECT_NE(outcome.text.find("calls ops that this runtime does not have: test_round_down"), std::string::npos)
      << outcome.text;
}

}  // namespace
}  // namespace tutti
