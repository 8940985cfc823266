#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

// Storage is cut flat, at any element: parameters and moments at rest are a half, a quarter, a third of a norm weight.
TEST(Fsdp, TwoRanksHoldHalfOfEveryParameter) { check_layout(Model::dense, {.fsdp = 2}, {.flops = 0.5, .parameters = 0.501}); }
TEST(Fsdp, FourRanksHoldAQuarter) { check_layout(Model::dense, {.fsdp = 4}, {.flops = 0.25, .parameters = 0.251}); }
TEST(Fsdp, TwoReplicasOfTwoParts) { check_layout(Model::dense, {.dp = 2, .fsdp = 2}, {.flops = 0.25, .parameters = 0.501}); }
TEST(Fsdp, MixtureOfExperts) { check_layout(Model::moe, {.fsdp = 2}, {.flops = 0.501, .parameters = 0.501}); }

}  // namespace
}  // namespace tutti::layouts
