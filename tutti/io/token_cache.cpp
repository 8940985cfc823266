#include "tutti/io/token_cache.h"

#include <cstring>
#include <filesystem>
#include <optional>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/io/data_cache.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/text_files.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'U', 'T', 'T', 'I', 'T', 'O', 'K'};
constexpr uint64_t kVersion = 1;
constexpr size_t kKeptFiles = 8;

// Followed by document_count + 1 offsets (int64) and token_count ids (int32), little endian as this machine.
struct Header {
  char magic[8];
  uint64_t version;
  uint64_t key;
  int64_t document_count;
  int64_t token_count;
  uint64_t checksum;  // of everything behind the header
};

uint64_t checksum_of(std::span<const int64_t> offsets, std::span<const int32_t> tokens) {
  return hash64(tokens.data(), tokens.size_bytes(), hash64(offsets.data(), offsets.size_bytes(), 0));
}

// The corpus in the file, or nothing when it is not exactly what was written for `key`.
std::optional<TokenCorpus> map_corpus(const std::string& path, uint64_t key) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  auto file = std::make_shared<const MappedFile>(path);
  const std::span<const std::byte> bytes = file->bytes();
  Header header{};
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion || header.key != key) {
    return std::nullopt;
  }
  // Counts are bounded by the file before anything is computed from them.
  const int64_t payload = static_cast<int64_t>(bytes.size() - sizeof(header));
  if (header.document_count < 0 || header.document_count >= payload / 8 || header.token_count < 0 ||
      header.token_count > payload / 4 || (header.document_count + 1) * 8 + header.token_count * 4 != payload) {
    return std::nullopt;
  }
  const std::span offsets(reinterpret_cast<const int64_t*>(bytes.data() + sizeof(header)),
                          static_cast<size_t>(header.document_count) + 1);
  const std::span tokens(reinterpret_cast<const int32_t*>(offsets.data() + offsets.size()),
                         static_cast<size_t>(header.token_count));
  if (checksum_of(offsets, tokens) != header.checksum) return std::nullopt;
  return TokenCorpus(offsets, tokens, file);
}

void write_corpus(const std::string& path, uint64_t key, const TokenCorpus& corpus) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.key = key;
  header.document_count = corpus.document_count();
  header.token_count = corpus.token_count();
  header.checksum = checksum_of(corpus.offsets(), corpus.tokens());
  AtomicFile file(path);
  file.write(&header, sizeof(header));
  file.write(corpus.offsets().data(), corpus.offsets().size_bytes());
  file.write(corpus.tokens().data(), corpus.tokens().size_bytes());
  file.commit();
}

TokenCorpus tokenize_files(std::span<const std::string> files, const Tokenizer& tokenizer,
                           const TextSourceOptions& options) {
  TokenCorpusBuilder builder(tokenizer);
  for_each_document(files, [&](std::string_view document) { builder.add(document); }, options);
  TokenCorpus corpus = builder.finish();
  TUTTI_CHECK(corpus.token_count() > 0, "no text in the data: {} file(s) read, all empty, the first being '{}'",
              files.size(), files.front());
  return corpus;
}

}  // namespace

TokenCorpus open_token_corpus(std::span<const std::string> paths, const Tokenizer& tokenizer,
                              const std::string& cache_folder, const TextSourceOptions& options) {
  const std::vector<std::string> files = expand_text_paths(paths);
  if (cache_folder.empty()) return tokenize_files(files, tokenizer, options);
  const uint64_t key = hash64(fmt::format("{} {:016x}", kVersion, tokenizer.fingerprint()), io::data_key(files, options));
  const std::string path = fmt::format("{}/tokens-{:016x}.bin", cache_folder, key);
  if (std::optional<TokenCorpus> cached = map_corpus(path, key)) return *cached;
  const io::DataCacheLock lock(cache_folder);
  // Another process may have written it while this one waited.
  if (std::optional<TokenCorpus> cached = map_corpus(path, key)) return *cached;
  write_corpus(path, key, tokenize_files(files, tokenizer, options));
  io::keep_newest(cache_folder, "tokens-", kKeptFiles);
  std::optional<TokenCorpus> written = map_corpus(path, key);
  TUTTI_CHECK_ENV(written.has_value(), "'{}' does not hold what was just written to it; check the disk", path);
  return *written;
}

}  // namespace tutti
