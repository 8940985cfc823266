// Layouts of two and more axes.
#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

struct Row {
  Model model;
  Layout layout;
  Shares shares;
};

class Pairs : public testing::TestWithParam<Row> {};

TEST_P(Pairs, HaveTheBitsOfOneRank) { check_layout(GetParam().model, GetParam().layout, GetParam().shares); }

const Row kRows[] = {
    {Model::dense, {.dp = 2, .tp = 2}, {.flops = 0.26, .parameters = 0.52}},
    {Model::dense, {.fsdp = 2, .tp = 2}, {.flops = 0.26, .parameters = 0.27}},
    {Model::dense, {.fsdp = 2, .tp = 2, .sequence = true}, {.flops = 0.26, .parameters = 0.27}},
    {Model::dense, {.cp = 2, .tp = 2}, {.flops = 0.26, .parameters = 0.52}},
    {Model::dense, {.cp = 2, .tp = 2, .sequence = true}, {.flops = 0.26, .parameters = 0.52}},
    {Model::dense, {.fsdp = 2, .cp = 2}, {.flops = 0.25, .parameters = 0.501}},
    {Model::dense, {.pp = 2, .tp = 2}, {.flops = 0.33, .parameters = 0.31}},
    {Model::dense, {.pp = 2, .fsdp = 2}, {.flops = 0.33, .parameters = 0.301}},
    {Model::dense, {.pp = 2, .cp = 2}, {.flops = 0.33, .parameters = 0.6}},
    {Model::moe, {.dp = 4, .ep = 2}, {.flops = 0.3, .parameters = 0.75}},
    {Model::moe, {.dp = 2, .fsdp = 2, .ep = 2}, {.flops = 0.3, .parameters = 0.65}},
    {Model::moe, {.dp = 2, .cp = 2, .ep = 2}, {.flops = 0.3, .parameters = 0.75}},
    {Model::moe, {.dp = 2, .tp = 2, .ep = 2, .sequence = true}, {.flops = 0.3, .parameters = 0.6}},
    {Model::moe, {.pp = 2, .dp = 2, .ep = 2}, {.flops = 0.35, .parameters = 0.4}},
    {Model::dense, {.cp = 2, .tp = 2, .sequence = true, .checkpoint = true}, {.flops = 0.35, .parameters = 0.52}},
    {Model::moe, {.dp = 2, .fsdp = 2, .ep = 2, .checkpoint = true}, {.flops = 0.4, .parameters = 0.65}},
    {Model::moe, {.pp = 2, .dp = 2, .ep = 2, .checkpoint = true}, {.flops = 0.5, .parameters = 0.4}},
    {Model::dense, {.fsdp = 2, .cp = 2, .tp = 2, .sequence = true}, {.flops = 0.13, .parameters = 0.27}},
};

INSTANTIATE_TEST_SUITE_P(Layouts, Pairs, testing::ValuesIn(kRows), [](const auto& info) {
  std::string name = (info.param.model == Model::dense ? "dense_" : "moe_") + info.param.layout.name();
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '_'; });
  return name;
});

// The leaves of the contract: 128 for products and tokens, 512 classes, blocks of 64 keys.
TEST(DefaultLeaves, ContextAndTensorParallelRanksHaveTheBitsOfOneRank) {
  ModelConfig config = dense_config(DType::f32);
  config.dim = 65;
  config.kv_heads = 4;
  config.head_dim = 64;
  config.inner = 515;
  config.vocab = 1031;
  const RunConfig run{.steps = 1, .shards = 2, .tokens = 512};
  check_layout(config, run, {.cp = 2, .tp = 2, .sequence = true, .ring = true}, {.flops = 0.26, .parameters = 0.51});
}

}  // namespace
}  // namespace tutti::layouts
