#include "tutti/train/step/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tutti/autograd/tape.h"
#include "tutti/core/exact_sum.h"
#include "tutti/io/byte_ngram.h"
#include "tutti/models/language_model.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/train/data/batch.h"
#include "tutti/train/step/tensor_ranks.h"

namespace tutti::train {

double bits_per_byte(models::LanguageModel& model, const TokenDataset& data, const Tokenizer& tokenizer, int64_t rows,
                     const models::ForwardOptions& options, comm::ProcessGroup* group, const dist::Mesh& mesh) {
  NoGradScope no_grad;
  const nn::EvalScope evaluating(model);
  rows = std::min(rows, data.validation_row_count());
  const int64_t rank = group ? group->rank() : 0, ranks = group ? group->size() : 1;
  ExactSum nats(ExactTerm::value);
  int64_t nbytes = 0;
  // Rows are independent and the sum is order-free, so any split gives the same bits.
  for (int64_t row = rows * rank / ranks; row < rows * (rank + 1) / ranks; row += kRowsEvaluatedAtOnce) {
    const int64_t count = std::min(kRowsEvaluatedAtOnce, rows * (rank + 1) / ranks - row);
    const TokenRows batch = data.validation_rows(row, count);
    const Tensor losses = losses_of(model, to_batch(batch), labels_of(batch), options, mesh);
    nats.add({losses.data<float>(), static_cast<size_t>(losses.numel())});
    for (const int32_t label : batch.labels) {
      if (label != kIgnoreLabel) nbytes += tokenizer.text_nbytes(label);
    }
  }
  if (ranks > 1) {
    auto words = nats.words();
    group->all_reduce_values<int64_t>(words);
    nats.set_words(words);
    group->all_reduce_values<int64_t>({&nbytes, 1});
  }
  TUTTI_CHECK(nbytes > 0, "validation: the {} held-out rows hold no text", rows);
  return nats.value() / std::numbers::ln2 / static_cast<double>(nbytes);
}

double order2_bits_per_byte(const TokenDataset& data, const Tokenizer& tokenizer, int64_t rows) {
  ByteNgram model;
  for (const int64_t document : data.training_documents())
    model.add(tokenizer.decode(data.corpus().document(document)));
  double bits = 0, nbytes = 0;
  for (const int64_t document : data.validation_documents_in(rows)) {
    const std::string text = tokenizer.decode(data.corpus().document(document));
    bits += model.bits(text);
    nbytes += static_cast<double>(text.size());
  }
  return bits / nbytes;
}

}  // namespace tutti::train
