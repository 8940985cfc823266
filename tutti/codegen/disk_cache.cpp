#include "tutti/codegen/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tutti/codegen/cache_folder.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::codegen {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'U', 'T', 'T', 'I', 'K', 'R', 'N'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kLargestEntry = uint64_t{1} << 30;
constexpr const char* kSuffix = ".kernel";
constexpr int kLockFiles = 64;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t target;
  uint64_t fingerprint;
  uint64_t key_nbytes;
  uint64_t code_nbytes;
  uint64_t entry;
  uint64_t checksum;  // of key and code
};
static_assert(sizeof(Header) == 56);

class File {
 public:
  File(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() { if (fd_ >= 0) ::close(fd_); }
  File(const File&) = delete;
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool read_all(int fd, std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// The entry's code when every field is right; sizes first, so that nothing is read past the file.
std::optional<CodeBlob> parse(const std::string& file, const CacheEntryName& name) {
  Header header;
  if (file.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof(header));
  const uint64_t rest = file.size() - sizeof(header);
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion ||
      header.target != static_cast<uint32_t>(name.target) || header.fingerprint != name.fingerprint ||
      header.key_nbytes > rest || header.code_nbytes != rest - header.key_nbytes || header.entry >= header.code_nbytes)
    return std::nullopt;
  const std::string_view body = std::string_view(file).substr(sizeof(header));
  if (body.substr(0, header.key_nbytes) != name.spec_key || hash64(body, header.entry) != header.checksum)
    return std::nullopt;
  return CodeBlob{std::string(body.substr(header.key_nbytes)), header.entry};
}

std::string serialize(const CacheEntryName& name, const CodeBlob& blob) {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.target = static_cast<uint32_t>(name.target);
  header.fingerprint = name.fingerprint;
  header.key_nbytes = name.spec_key.size();
  header.code_nbytes = blob.bytes.size();
  header.entry = blob.entry;
  const std::string body = std::string(name.spec_key) + blob.bytes;
  header.checksum = hash64(body, header.entry);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + body;
}

}  // namespace

DiskCacheOptions disk_cache_options_from_environment() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  DiskCacheOptions options;
  if (const std::string limit = variable("TUTTI_CACHE_LIMIT_MB"); !limit.empty()) {
    char* end = nullptr;
    const long long mebibytes = std::strtoll(limit.c_str(), &end, 10);
    TUTTI_CHECK(*end == '\0' && mebibytes >= 0 && mebibytes <= (1LL << 40),
                "TUTTI_CACHE_LIMIT_MB={}: expected a number of MiB, or 0 for no cache on disk", limit);
    if (mebibytes == 0) return options;
    options.limit_nbytes = mebibytes << 20;
  }
  if (const std::string own = variable("TUTTI_CACHE_DIR"); !own.empty()) options.directory = own;
  else if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) options.directory = fs::path(xdg) / "tutti";
  else if (const std::string home = variable("HOME"); !home.empty()) options.directory = fs::path(home) / ".cache" / "tutti";
  return options;
}

CacheLock::~CacheLock() {
  if (fd_ >= 0) ::close(fd_);  // releases the lock
}

DiskCache::DiskCache(DiskCacheOptions options) : options_(std::move(options)) {
  if (options_.directory.empty()) return;
  usable_ = true;
  if (const std::string why = objection_to_cache_folder(options_.directory); !why.empty()) give_up(why);
}

void DiskCache::give_up(std::string_view why) {
  if (usable_.exchange(false))
    fmt::print(stderr, "tutti: no kernel cache on disk: {}; kernels are compiled anew in every process\n", why);
}

fs::path DiskCache::path_of(const CacheEntryName& name) const {
  return options_.directory / fmt::format("{}-{:016x}{}", name.key.hex(), name.fingerprint, kSuffix);
}

std::optional<CodeBlob> DiskCache::read(const CacheEntryName& name) {
  if (!is_usable()) return std::nullopt;
  const File file(path_of(name), O_RDONLY);
  struct stat info;
  if (!file.is_open() || ::fstat(file.fd(), &info) != 0) return std::nullopt;
  const uint64_t nbytes = static_cast<uint64_t>(info.st_size);
  if (nbytes > kLargestEntry) return std::nullopt;
  std::string bytes(nbytes, '\0');
  if (!read_all(file.fd(), bytes)) return std::nullopt;
  std::optional<CodeBlob> blob = parse(bytes, name);
  // The modification time tells when an entry was last of use; a failure here only makes it look older.
  if (blob) (void)::futimens(file.fd(), nullptr);
  return blob;
}

void DiskCache::write(const CacheEntryName& name, const CodeBlob& blob) {
  if (!is_usable()) return;
  const fs::path path = path_of(name);
  const fs::path temporary = path.string() + fmt::format(".{}", ::getpid());
  const std::string bytes = serialize(name, blob);
  bool written = false;
  {
    const File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    written = file.is_open() && write_all(file.fd(), bytes);
  }
  if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return give_up(fmt::format("cannot write {}: {}", path.string(), detail::errno_text(error)));
  }
  note_written(static_cast<int64_t>(bytes.size()));
}

CacheLock DiskCache::lock(const CacheKey& key) {
  if (!is_usable()) return CacheLock();
  File file(options_.directory / fmt::format("lock.{:02}", key.high % kLockFiles), O_RDWR | O_CREAT);
  if (!file.is_open()) {
    give_up(fmt::format("cannot lock {}: {}", options_.directory.string(), detail::errno_text(errno)));
    return CacheLock();
  }
  while (::flock(file.fd(), LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    return CacheLock();  // a file system without locks: several processes may compile the same kernel
  }
  return CacheLock(file.release());
}

void DiskCache::note_written(int64_t nbytes) {
  const std::lock_guard guard(size_mutex_);
  if (known_nbytes_ >= 0) known_nbytes_ += nbytes;
  if (known_nbytes_ < 0 || known_nbytes_ > options_.limit_nbytes) known_nbytes_ = evict();
}

int64_t DiskCache::evict() {
  struct Entry {
    fs::path path;
    fs::file_time_type used;
    int64_t nbytes;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(options_.directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // another process may delete the file meanwhile
    if (it->path().filename().string().find(kSuffix) == std::string::npos) continue;
    const auto used = it->last_write_time(gone);
    const auto nbytes = gone ? 0 : static_cast<int64_t>(it->file_size(gone));
    if (gone) continue;
    entries.push_back({it->path(), used, nbytes});
    total += nbytes;
  }
  if (total <= options_.limit_nbytes) return total;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  // Some slack, so that the next write does not scan again.
  const int64_t target = options_.limit_nbytes - options_.limit_nbytes / 8;
  for (const Entry& entry : entries) {
    if (total <= target) break;
    if (fs::remove(entry.path, error)) total -= entry.nbytes;
  }
  return total;
}

}  // namespace tutti::codegen
