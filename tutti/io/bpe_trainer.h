// Learning a byte-level BPE vocabulary from documents.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tutti/io/bpe_model.h"

namespace tutti {

struct BpeTrainerOptions {
  int64_t vocab_size = 2048;
  // Pairs that occur less often are not merged; the vocabulary may then end smaller than asked.
  int64_t min_count = 2;
  // How much of the text is looked at. Documents are cut into stretches of 64 KiB; when all together are larger than
  // this, stretches are taken evenly over the whole, so that a sorted corpus is seen from its first to its last page.
  int64_t sample_nbytes = 8 << 20;
  // The marker that ends documents: the last id. As no other BOS exists, it also begins them.
  std::string eos_token = "<|endoftext|>";
};

// Ids: the 256 bytes in the order of their characters (byte_alphabet.h), then one token per merge, then EOS.
// Pieces are split as Qwen's tokenizer splits, and merges never cross pieces. The most frequent pair is merged first, of
// equals the one with the smaller ids, so the result depends on the documents and options only.
// Time: about one second for 8 MiB of English and 2048 tokens. UsageError when vocab_size is below 257 or there is no text.
BpeModel train_bpe(std::span<const std::string> documents, const BpeTrainerOptions& options = {});

}  // namespace tutti
