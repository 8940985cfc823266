// Opens the tokenizer that a config names under data.tokenizer.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "tutti/io/text_source.h"
#include "tutti/io/tokenizer.h"

namespace tutti {

// `spec` is
//   byte            one token per byte
//   bpe:N           N tokens of byte-level BPE learned from `paths` (bpe_trainer.h)
//   anything else   the path of a tokenizer.json or a GGUF file, or of a folder that holds one of them
// A learned tokenizer is stored in `cache_folder` under a name derived from N and the data files, under a keyed hash
// (runtime/sealed_cache.h), and learned again when it is not there; an empty folder name means no cache. May block
// while another process learns the same tokenizer. UsageError for an invalid spec; errors from reading the data or the
// file pass through.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec, std::span<const std::string> paths,
                                          const std::string& cache_folder, const TextSourceOptions& options = {});

// Whether `spec` is the path of a file or folder rather than 'byte' or bpe:N.
bool names_tokenizer_file(const std::string& spec);

}  // namespace tutti
