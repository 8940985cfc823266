// From the word a config has under data.tokenizer to a tokenizer.
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
//   anything else   the path of a tokenizer.json, or of a folder that holds one
// A learned tokenizer is kept in `cache_folder` under a name made of N and the data files, sealed (runtime/sealed_cache.h),
// and learned again when it is not there; empty means no cache. May block while another process learns the same.
// UsageError for a spec that is none of these, and whatever reading the data or the file raises.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec, std::span<const std::string> paths,
                                          const std::string& cache_folder, const TextSourceOptions& options = {});

// Whether `spec` is the path of a file or folder rather than 'byte' or bpe:N.
bool names_tokenizer_file(const std::string& spec);

}  // namespace tutti
