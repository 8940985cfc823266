// Training of a byte-level BPE vocabulary on documents.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tutti/io/bpe_model.h"

namespace tutti {

struct BpeTrainerOptions {
  int64_t vocab_size = 2048;
  // Pairs that occur less often are not merged; the vocabulary may then be smaller than vocab_size.
  int64_t min_count = 2;
  // How much of the text is used. Documents are divided into parts of 64 KiB; if their total size is larger than this,
  // parts are sampled evenly over the whole corpus, so that a sorted corpus is represented from beginning to end.
  int64_t sample_nbytes = 8 << 20;
  // The marker at the end of documents; it gets the last id. As there is no separate BOS, it also begins them.
  std::string eos_token = "<|endoftext|>";
};

// Ids: the 256 bytes in the order of their characters (byte_alphabet.h), then one token per merge, then EOS.
// Text is split into pieces by the pattern of Qwen's tokenizer, and merges never cross pieces. The most frequent pair
// is merged first, among equals the one with the smaller ids, so the result depends only on the documents and options.
// Training takes about one second for 8 MiB of English and 2048 tokens. UsageError when vocab_size is below 257 or
// there is no text.
BpeModel train_bpe(std::span<const std::string> documents, const BpeTrainerOptions& options = {});

}  // namespace tutti
