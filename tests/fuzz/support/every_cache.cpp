#include "tests/fuzz/support/every_cache.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "tutti/codegen/choice/winner_store.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/disk_cache.h"
#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/byte_tokenizer.h"
#include "tutti/io/token_cache.h"
#include "tutti/io/tokenizer_source.h"

namespace tutti::testing {
namespace {

namespace fs = std::filesystem;

std::string kernel(const fs::path& folder, const std::string& fresh) {
  codegen::DiskCache cache({.directory = folder});
  const codegen::CacheEntryName name{{1, 2}, "key", codegen::CpuTarget{}, 3};
  const CacheLock lock = cache.lock(name.key);
  if (const auto kept = cache.read(name)) return kept->bytes;
  cache.write(name, {fresh, 0});
  return fresh;
}

std::string choice_of(const fs::path& folder, const std::string& fresh) {
  codegen::choice::WinnerStore store(folder, "machine");
  const codegen::choice::Signature call{.op = "test", .operands = {}, .epilogue = {}};
  if (const auto kept = store.read(call)) return *kept;
  store.write(call, fresh);
  return fresh;
}

// A text file that looks the same to a cache whatever stands in it: path, size, inode and all times stay, that of the
// inode's change too, because memory that is shared with a file of tmpfs is written without the file system's
// knowledge.
class TextFile {
 public:
  TextFile() : path_("/dev/shm/tutti-test-XXXXXX") {
    const int descriptor = mkstemp(path_.data());
    TUTTI_CHECK_ENV(descriptor >= 0 && ftruncate(descriptor, kNbytes) == 0 && fchmod(descriptor, 0644) == 0,
                    "cannot make {}", path_);
    text_ = static_cast<char*>(mmap(nullptr, kNbytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
    close(descriptor);
    TUTTI_CHECK_ENV(text_ != MAP_FAILED, "cannot map {}", path_);
  }
  ~TextFile() {
    munmap(text_, kNbytes);
    unlink(path_.c_str());
  }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const std::string& with(const std::string& fresh) {
    std::string text;
    while (text.size() < kNbytes) text += fresh + " ";
    text.copy(text_, kNbytes);
    return path_;
  }

 private:
  static constexpr size_t kNbytes = 4000;
  std::string path_;
  char* text_;
};

const std::string& text_file(const std::string& fresh) {
  static TextFile file;
  return file.with(fresh);
}

std::string tokens(const fs::path& folder, const std::string& fresh) {
  const ByteTokenizer tokenizer;
  const std::vector<std::string> paths = {text_file(fresh)};
  const TokenCorpus corpus = open_token_corpus(paths, tokenizer, folder.string());
  std::string text;
  for (int64_t i = 0; i < corpus.document_count(); ++i) text += tokenizer.decode(corpus.document(i)) + "\n";
  return text;
}

std::string learned_tokenizer(const fs::path& folder, const std::string& fresh) {
  const std::vector<std::string> paths = {text_file(fresh)};
  const auto tokenizer = open_tokenizer("bpe:264", paths, folder.string());
  return dynamic_cast<const BpeTokenizer&>(*tokenizer).to_json();
}

}  // namespace

fs::path AnyCache::file_in(const fs::path& folder) const {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().find(mark) != std::string::npos) return entry.path();
  }
  return {};
}

const std::vector<AnyCache>& every_cache() {
  static const std::vector<AnyCache> all = {{"kernels", ".kernel", true, kernel},
                                            {"choices", ".choice", true, choice_of},
                                            {"tokens", "tokens-", false, tokens},
                                            {"tokenizers", "tokenizer-", true, learned_tokenizer}};
  return all;
}

}  // namespace tutti::testing
