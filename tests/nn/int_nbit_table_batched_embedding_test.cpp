#include "tutti/nn/int_nbit_table_batched_embedding.h"

#include <gtest/gtest.h>

#include "tests/nn/support/user_and_item_tables.h"
#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"

namespace tutti::nn {
namespace {

constexpr RowQuantization k8Bits = RowQuantization::fused_8bit_rowwise_sbhalf_front,
                          k4Bits = RowQuantization::fused_4bit_rowwise_sbhalf;

TEST(IntNBitTableBatchedEmbeddingBags, LooksUpWhatTheTrainedTablesBecome) {
  const auto trained = filled(options_of(TableStep{.lr = 0.1}));
  const TableBatch batch = drawn(1);
  for (const std::vector<RowQuantization>& formats : {std::vector{k8Bits}, {k8Bits, k4Bits}}) {
    const auto module = quantize_tables(*trained, formats);
    std::vector<Tensor> numbers;
    for (size_t t = 0; t < 2; ++t) {
      EXPECT_EQ(module->format(t), formats[t % formats.size()]);
      numbers.push_back(dequantize_rows(quantize_rows(trained->weight(t).master(), module->format(t)),
                                        module->format(t), t == 0 ? 8 : 5));
    }
    TableBatch named = batch;
    named.features = {0, 1, 0};
    expect_same_bits(module->forward(batch), table_batched_embedding_bags(numbers, named).values);
  }
}

// The program of docs/embeddings.md.
std::unique_ptr<IntNBitTableBatchedEmbeddingBags> in_4_bits(const TableBatchedEmbeddingBags& trained) {
  return quantize_tables(trained, {RowQuantization::fused_4bit_rowwise_sbhalf_front});
}

TEST(IntNBitTableBatchedEmbeddingBags, HasOneFormatForAllTables) {
  const auto module = in_4_bits(*filled(options_of({})));
  EXPECT_EQ(module->format(1), RowQuantization::fused_4bit_rowwise_sbhalf_front);
  EXPECT_EQ(module->rows(0).use().size(1), 16);
}

TEST(IntNBitTableBatchedEmbeddingBags, HasAStateDictThatAnotherLoads) {
  const auto trained = filled(options_of({}));
  const auto module = quantize_tables(*trained, {k4Bits});
  IntNBitTableBatchedEmbeddingBags other(trained->tables(), {k4Bits}, options_of({}));
  const StateDict state = module->state_dict();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].first, "user.rows");
  EXPECT_EQ(state[1].first, "item.rows");
  EXPECT_EQ(module->named_parameters().size(), 0u);
  EXPECT_TRUE(other.load_state_dict(state).empty());
  expect_same_bits(other.forward(drawn(2)), module->forward(drawn(2)));
}

TEST(IntNBitTableBatchedEmbeddingBags, RefusesFormatsAndFeaturesThatDoNotFit) {
  const auto trained = filled(options_of({}));
  EXPECT_EQ(message_of([&] { quantize_tables(*trained, {k4Bits, k4Bits, k8Bits}); }),
            "IntNBitTableBatchedEmbeddingBags: 3 formats for 2 tables; give one for all, or one for each");
  TableBatch batch = drawn(1);
  batch.features = {0, 1, 0};
  EXPECT_EQ(
      message_of([&] { quantize_tables(*trained)->forward(batch); }),
      "IntNBitTableBatchedEmbeddingBags: the batch names the tables of 3 features; they are options of the module");
}

}  // namespace
}  // namespace tutti::nn
