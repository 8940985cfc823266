#include "tutti/codegen/choice/winner_store.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "tutti/codegen/cache_folder.h"
#include "tutti/codegen/cache_key.h"
#include "tutti/codegen/kernel.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/host.h"

namespace tutti::codegen::choice {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'U', 'T', 'T', 'I', 'C', 'H', 'O'};
constexpr uint32_t kVersion = 1;
constexpr uintmax_t kLargestFile = uintmax_t{1} << 20;
constexpr const char* kSuffix = ".choice";
constexpr int64_t kWritesPerLook = 64;  // at the number of files

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t winner_nbytes;
  uint64_t key_nbytes;
  uint64_t checksum;  // of key and winner
};
static_assert(sizeof(Header) == 32);

std::string processor_name() {
  std::array<unsigned, 12> words{};
  for (unsigned part = 0; part < 3; ++part)
    if (!__get_cpuid(0x80000002u + part, &words[4 * part], &words[4 * part + 1], &words[4 * part + 2], &words[4 * part + 3])) return "x86-64";
  std::string name(reinterpret_cast<const char*>(words.data()), sizeof(words));
  return name.substr(0, name.find('\0'));
}

}  // namespace

std::string machine_identity() {
  static const std::string identity = fmt::format("{}, {} cores, {}", processor_name(), usable_cores(), name_of(cpu_target()));
  return identity;
}

WinnerStore::WinnerStore(fs::path folder, std::string identity, int64_t limit)
    : folder_(std::move(folder)), identity_(std::move(identity)), limit_(limit) {
  if (folder_.empty()) return;
  usable_ = true;
  if (const std::string why = objection_to_cache_folder(folder_); !why.empty()) give_up(why);
}

void WinnerStore::give_up(std::string_view why) {
  if (usable_.exchange(false))
    fmt::print(stderr, "tutti: measured choices are not kept on disk: {}; every process measures anew\n", why);
}

std::string WinnerStore::key_of(const Signature& signature) const { return identity_ + '\0' + signature.key(); }

fs::path WinnerStore::path_of(const Signature& signature) const {
  return folder_ / (cache_key(key_of(signature), CpuTarget{}).hex() + kSuffix);
}

std::optional<std::string> WinnerStore::read(const Signature& signature) const {
  if (!is_usable()) return std::nullopt;
  const fs::path path = path_of(signature);
  std::error_code error;
  if (const uintmax_t nbytes = fs::file_size(path, error); error || nbytes > kLargestFile) return std::nullopt;
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  Header header;
  if (file.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof(header));
  const std::string_view body = std::string_view(file).substr(sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion || header.key_nbytes > body.size() ||
      header.winner_nbytes != body.size() - header.key_nbytes || header.checksum != hash64(body) ||
      body.substr(0, header.key_nbytes) != key_of(signature))
    return std::nullopt;
  return std::string(body.substr(header.key_nbytes));
}

void WinnerStore::write(const Signature& signature, std::string_view winner) {
  if (!is_usable()) return;
  const std::string key = key_of(signature), body = key + std::string(winner);
  Header header{.magic = {}, .version = kVersion, .winner_nbytes = static_cast<uint32_t>(winner.size()), .key_nbytes = key.size(),
                .checksum = hash64(body)};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  try {
    write_file_atomically(path_of(signature).string(), std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + body);
  } catch (const EnvironmentError& error) {
    return give_up(error.what());
  }
  if (written_.fetch_add(1) % kWritesPerLook == kWritesPerLook - 1) delete_oldest();
}

void WinnerStore::delete_oldest() const {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // another process may delete the file meanwhile
    const auto written = it->last_write_time(gone);
    if (!gone && it->path().extension() == kSuffix) files.emplace_back(written, it->path());
  }
  const int64_t too_many = static_cast<int64_t>(files.size()) - limit_;
  if (too_many <= 0) return;
  std::sort(files.begin(), files.end());
  for (int64_t i = 0; i < too_many; ++i) fs::remove(files[static_cast<size_t>(i)].second, error);
}

}  // namespace tutti::codegen::choice
