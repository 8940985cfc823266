#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

// The table is used on both stages: embedding on the first, head on the second.
TEST(PipelineParallel, TwoStagesShareATiedTable) {
  check_layout(Model::dense, {.pp = 2}, {.flops = 0.65, .parameters = 0.6});
}
TEST(PipelineParallel, MixtureOfExperts) { check_layout(Model::moe, {.pp = 2}, {.flops = 0.65, .parameters = 0.51}); }

}  // namespace
}  // namespace tutti::layouts
