#include "tutti/train/step/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/train/support/tiny_model.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/ops/creation.h"

namespace tutti::train {
namespace {

// All logits 0: every token has the probability 1 / 258.
void flatten(models::Decoder& model) {
  for (const nn::NamedParameter& p : model.named_parameters()) p.parameter.assign(zeros(to_shape(p.parameter.sizes())));
}

TEST(BitsPerByte, OfEqualLogitsCountsEveryLabelAndDividesByTheTextsBytes) {
  TinyModel tiny;
  flatten(tiny.model);
  const TokenDataset data = tiny_dataset();
  const int64_t rows = data.validation_row_count();
  int64_t labels = 0, nbytes = 0;
  for (const int32_t label : data.validation_rows(0, rows).labels) {
    ++labels;
    nbytes += label < 256;  // BOS and EOS stand for no text
  }
  const double expected = static_cast<double>(labels) * std::log2(258.0) / static_cast<double>(nbytes);
  EXPECT_NEAR(bits_per_byte(tiny.model, data, ByteTokenizer(), rows, {}, nullptr), expected, 1e-5);
}

TEST(BitsPerByte, IsTheSameOnEveryNumberOfRanks) {
  TinyModel tiny;
  const double one = bits_per_byte(tiny.model, tiny_dataset(), ByteTokenizer(), 7, {}, nullptr);
  for (const int ranks : {2, 4}) {
    std::mutex mutex;
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const double mine = bits_per_byte(tiny.model, tiny_dataset(), ByteTokenizer(), 7, {}, &group);
      std::lock_guard lock(mutex);
      EXPECT_EQ(mine, one) << "rank " << group.rank() << " of " << ranks;
    });
  }
}

TEST(BitsPerByte, TakesAllRowsWhenMoreAreAskedFor) {
  TinyModel tiny;
  const TokenDataset data = tiny_dataset();
  const ByteTokenizer tokenizer;
  EXPECT_EQ(bits_per_byte(tiny.model, data, tokenizer, data.validation_row_count(), {}, nullptr),
            bits_per_byte(tiny.model, data, tokenizer, 1 << 20, {}, nullptr));
}

TEST(BitsPerByte, OfNoRowsIsAnError) {
  TinyModel tiny;
  EXPECT_THROW(bits_per_byte(tiny.model, tiny_dataset(), ByteTokenizer(), 0, {}, nullptr), UsageError);
}

TEST(Order2BitsPerByte, IsLowOnTextThatRepeatsItself) {
  const ByteTokenizer tokenizer;
  std::vector<std::string> documents(30, "abcabcabcabcabcabcabcabcabcabc");
  const TokenDataset data(tokenize(documents, tokenizer), tokenizer,
                          {.sequence_length = 16, .validation_fraction = 0.2, .seed = 1});
  const double repeated = order2_bits_per_byte(data, tokenizer, data.validation_row_count());
  EXPECT_GT(repeated, 0);
  EXPECT_LT(repeated, 1);
  EXPECT_LT(repeated, order2_bits_per_byte(tiny_dataset(), tokenizer, 100));
}

}  // namespace
}  // namespace tutti::train
