#include "tutti/io/tokenizer_source.h"

#include <charconv>
#include <filesystem>
#include <fstream>

#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/bpe_trainer.h"
#include "tutti/io/byte_tokenizer.h"
#include "tutti/io/data_cache.h"
#include "tutti/io/gguf_header.h"
#include "tutti/io/gguf_vocabulary.h"
#include "tutti/io/model_file.h"
#include "tutti/io/published_tokenizer.h"
#include "tutti/io/text_files.h"
#include "tutti/runtime/sealed_cache.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBpePrefix = "bpe:";
constexpr const char* kTokenizerPrefix = "tokenizer-";
constexpr uint64_t kLargestFile = uint64_t{1} << 30;
// Part of the names of cached tokenizers: raise it when the trainer learns something else from the same text.
constexpr int kTrainerVersion = 1;

int64_t vocab_size_of(const std::string& spec) {
  const char* begin = spec.data() + kBpePrefix.size();
  const char* end = spec.data() + spec.size();
  int64_t size = 0;
  const auto [stopped, error] = std::from_chars(begin, end, size);
  TUTTI_CHECK(error == std::errc() && stopped == end, "tokenizer '{}': expected a number behind bpe:, such as bpe:2048",
              spec);
  return size;
}

std::unique_ptr<BpeTokenizer> learn(int64_t vocab_size, std::span<const std::string> paths,
                                    const TextSourceOptions& options) {
  return std::make_unique<BpeTokenizer>(train_bpe(read_documents(paths, options), {.vocab_size = vocab_size}));
}

std::unique_ptr<Tokenizer> open_bpe(int64_t vocab_size, std::span<const std::string> paths, const std::string& folder,
                                    const TextSourceOptions& options) {
  const SealedCache cache(folder);
  if (!cache.is_usable()) return learn(vocab_size, paths, options);
  const std::string label = fmt::format("tokenizer {} of {} tokens from\n{}", kTrainerVersion, vocab_size,
                                        io::data_label(expand_text_paths(paths), options));
  const std::string name = io::data_file_name(kTokenizerPrefix, label);
  const auto kept = [&]() -> std::unique_ptr<Tokenizer> {
    try {
      const std::optional<std::string> json = cache.read(name, label, kLargestFile);
      return json ? BpeTokenizer::parse(*json, (cache.folder().path() / name).string()) : nullptr;
    } catch (const UsageError&) {
      return nullptr;  // of a version that wrote something else under this label
    }
  };
  if (auto tokenizer = kept()) return tokenizer;
  const CacheLock lock = cache.folder().lock(io::kDataLock, io::kDataPatience);
  // Another process may have learned it while this one waited.
  if (auto tokenizer = kept()) return tokenizer;
  std::unique_ptr<BpeTokenizer> learned = learn(vocab_size, paths, options);
  cache.write(name, label, learned->to_json());
  cache.folder().evict(kTokenizerPrefix, {.files = io::kKeptFiles});
  return learned;
}

// Whether the path is that of a GGUF file, or of a folder that holds one and no tokenizer.json.
bool is_gguf(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return !fs::exists(path / "tokenizer.json", error) && holds_model(path) && ModelFile(path).format() == "gguf";
  if (!fs::is_regular_file(path, error)) return false;  // a pipe would wait for somebody to write
  std::ifstream file(path, std::ios::binary);
  std::string head(io::kGgufMagic.size(), '\0');
  return file.read(head.data(), std::ssize(head)) && head == io::kGgufMagic;
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec, std::span<const std::string> paths,
                                          const std::string& cache_folder, const TextSourceOptions& options) {
  if (spec == "byte") return std::make_unique<ByteTokenizer>();
  if (spec.starts_with(kBpePrefix)) return open_bpe(vocab_size_of(spec), paths, cache_folder, options);
  std::error_code error;
  if (is_gguf(spec)) {
    const ModelFile file(spec);
    return tokenizer_of_gguf(read_gguf_vocabulary(file.metadata()), file.path());
  }
  if (fs::is_directory(spec, error)) return load_tokenizer((fs::path(spec) / "tokenizer.json").string());
  TUTTI_CHECK(fs::exists(spec, error),
              "tokenizer '{}' is neither 'byte', 'bpe:N' nor the path of a tokenizer.json that exists", spec);
  return load_tokenizer(spec);
}

bool names_tokenizer_file(const std::string& spec) { return spec != "byte" && !spec.starts_with(kBpePrefix); }

}  // namespace tutti
