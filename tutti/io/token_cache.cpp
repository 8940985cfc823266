#include "tutti/io/token_cache.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/io/data_cache.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/text_files.h"
#include "tutti/runtime/cache_folder.h"

namespace tutti {
namespace {

constexpr char kMagic[8] = {'T', 'U', 'T', 'T', 'I', 'T', 'O', 'K'};
constexpr uint64_t kVersion = 3;
constexpr const char* kPrefix = "tokens-";

// Followed by document_count + 1 offsets (int64), token_count ids (int32), little endian as this machine, and the
// label.
struct Header {
  char magic[8];
  uint64_t version;
  uint64_t label_nbytes;
  int64_t document_count;
  int64_t token_count;
  uint64_t checksum;  // of everything behind the header, and of the counts
  TextCounts counts;
};

uint64_t checksum_of(std::span<const int64_t> offsets, std::span<const int32_t> tokens, std::string_view label,
                     const TextCounts& counts) {
  return hash64(label, hash64(tokens.data(), tokens.size_bytes(),
                              hash64(offsets.data(), offsets.size_bytes(), hash64(&counts, sizeof counts, 0))));
}

template <class T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// Documents follow one another from the first token to the last, and a model has a row for each token.
bool is_sound(std::span<const int64_t> offsets, std::span<const int32_t> tokens, int64_t vocab_size) {
  return offsets.front() == 0 && offsets.back() == static_cast<int64_t>(tokens.size()) &&
         std::is_sorted(offsets.begin(), offsets.end()) &&
         std::all_of(tokens.begin(), tokens.end(), [&](int32_t id) { return id >= 0 && id < vocab_size; });
}

// The corpus in the file, or nothing when it is not exactly what was written under `label`. The checksum finds
// accidents; what a file may do when somebody else has made it is_sound() decides.
std::optional<TokenCorpus> map_corpus(const CacheFolder& folder, const std::string& name, std::string_view label,
                                      int64_t vocab_size) {
  const CacheFile opened = folder.open(name);
  if (!opened) return std::nullopt;
  std::shared_ptr<const MappedFile> file;
  try {
    file = std::make_shared<const MappedFile>(opened.descriptor(), folder.path() / name);
  } catch (const EnvironmentError&) {
    return std::nullopt;  // a file system that cannot map files
  }
  const std::span<const std::byte> bytes = file->bytes();
  Header header{};
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion ||
      header.label_nbytes != label.size() || bytes.size() < sizeof(header) + label.size()) {
    return std::nullopt;
  }
  const std::span<const std::byte> end = bytes.last(label.size());
  if (std::memcmp(end.data(), label.data(), label.size()) != 0) return std::nullopt;
  // Counts are bounded by the file before anything is computed from them.
  const int64_t payload = static_cast<int64_t>(bytes.size() - sizeof(header) - label.size());
  if (header.document_count < 0 || header.document_count >= payload / 8 || header.token_count < 0 ||
      header.token_count > payload / 4 || (header.document_count + 1) * 8 + header.token_count * 4 != payload) {
    return std::nullopt;
  }
  const std::span offsets(reinterpret_cast<const int64_t*>(bytes.data() + sizeof(header)),
                          static_cast<size_t>(header.document_count) + 1);
  const std::span tokens(reinterpret_cast<const int32_t*>(offsets.data() + offsets.size()),
                         static_cast<size_t>(header.token_count));
  if (checksum_of(offsets, tokens, label, header.counts) != header.checksum || !is_sound(offsets, tokens, vocab_size))
    return std::nullopt;
  return TokenCorpus(offsets, tokens, file, header.counts);
}

bool write_corpus(const CacheFolder& folder, const std::string& name, std::string_view label,
                  const TokenCorpus& corpus) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.label_nbytes = label.size();
  header.document_count = corpus.document_count();
  header.token_count = corpus.token_count();
  header.counts = corpus.counts();
  header.checksum = checksum_of(corpus.offsets(), corpus.tokens(), label, header.counts);
  const std::string_view parts[] = {bytes_of(std::span<const Header>(&header, 1)), bytes_of(corpus.offsets()),
                                    bytes_of(corpus.tokens()), label};
  return folder.replace(name, parts);
}

TokenCorpus tokenize_files(std::span<const std::string> files, const Tokenizer& tokenizer,
                           const TextSourceOptions& options) {
  TokenCorpusBuilder builder(tokenizer);
  const TextCounts counts =
      for_each_document(files, [&](std::string_view document) { builder.add(document); }, options);
  TokenCorpus corpus = builder.finish(counts);
  TUTTI_CHECK(corpus.token_count() > 0, "no text in the data: {} file(s) read, all empty, the first being '{}'",
              files.size(), files.front());
  return corpus;
}

}  // namespace

TokenCorpus open_token_corpus(std::span<const std::string> paths, const Tokenizer& tokenizer,
                              const std::string& cache_folder, const TextSourceOptions& options) {
  const std::vector<std::string> files = expand_text_paths(paths);
  const CacheFolder folder(cache_folder);
  if (!folder.is_usable()) return tokenize_files(files, tokenizer, options);
  const std::string label =
      fmt::format("tokens by {} of {} tokens, digest {:016x}, from\n{}", tokenizer.name(), tokenizer.vocab_size(),
                  tokenizer.fingerprint(), io::data_label(files, options));
  const std::string name = io::data_file_name(kPrefix, label, ".bin");
  const auto cached = [&] { return map_corpus(folder, name, label, tokenizer.vocab_size()); };
  if (std::optional<TokenCorpus> corpus = cached()) return *corpus;
  const CacheLock lock = folder.lock(io::kDataLock, io::kDataPatience);
  // Another process may have written it while this one waited.
  if (std::optional<TokenCorpus> corpus = cached()) return *corpus;
  TokenCorpus made = tokenize_files(files, tokenizer, options);
  if (!write_corpus(folder, name, label, made)) return made;
  folder.evict(kPrefix, {.files = io::kKeptFiles});
  return cached().value_or(made);
}

}  // namespace tutti
