// A cache of tokenized corpora on disk, so that a text is tokenized once and not once per rank and run.
//
// The name of a cache file is derived from what it depends on: the data files (paths, sizes, times of change), how they
// are divided into documents, and the tokenizer. It is written atomically and mapped by all ranks of a host, which
// share its pages. A damaged or truncated file is detected by its checksum, and offsets and ids are validated against
// tampering; an invalid file is written again. The newest eight are kept. runtime/cache_folder.h decides which folders
// may be used. A failing cache costs time but never fails the run.
#pragma once

#include <span>
#include <string>

#include "tutti/io/text_source.h"
#include "tutti/io/token_corpus.h"

namespace tutti {

// The corpus that `paths` name (text_files.h, text_source.h), tokenized by `tokenizer`, or read from `cache_folder`
// when it is cached there. The folder is created when missing; an empty name means no cache. May block: while one
// process tokenizes, others that use the same folder wait and then map its file. UsageError for data that is missing,
// malformed or empty; EnvironmentError when a data file cannot be read.
TokenCorpus open_token_corpus(std::span<const std::string> paths, const Tokenizer& tokenizer,
                              const std::string& cache_folder, const TextSourceOptions& options = {});

}  // namespace tutti
