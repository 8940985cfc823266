// Tokenized corpora on disk, so that a text is tokenized once and not once per rank and run.
//
// A cache file is named by what it depends on: the data files (paths, sizes, times of change), how they are cut into
// documents, and the tokenizer. It is written atomically and mapped by all ranks of a host, so they share its pages. A file
// that is damaged or cut short is noticed by its checksum, one that was made to mislead by its offsets and ids; either is
// written anew. The newest eight are kept. What may be used at all runtime/cache_folder.h decides; a cache that fails costs
// time, never the run.
#pragma once

#include <span>
#include <string>

#include "tutti/io/text_source.h"
#include "tutti/io/token_corpus.h"

namespace tutti {

// The corpus that `paths` name (text_files.h, text_source.h) in tokens of `tokenizer`, out of `cache_folder` when it is
// there, which is created when missing. May block: while one process tokenizes, others that ask for the same folder wait
// and then map its file. An empty `cache_folder` means no cache.
// UsageError for data that is missing, malformed or empty; EnvironmentError when a file of it cannot be read.
TokenCorpus open_token_corpus(std::span<const std::string> paths, const Tokenizer& tokenizer,
                              const std::string& cache_folder, const TextSourceOptions& options = {});

}  // namespace tutti
