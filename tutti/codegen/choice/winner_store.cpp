#include "tutti/codegen/choice/winner_store.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <array>
#include <utility>

#include "tutti/codegen/cache_key.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/runtime/host.h"

namespace tutti::codegen::choice {
namespace {

constexpr int kVersion = 2;  // of label and contents
constexpr uint64_t kLongestName = 4096;
constexpr const char* kSuffix = ".choice";
constexpr int64_t kWritesPerLook = 64;  // at the number of files

std::string name_of_file(std::string_view label) { return cache_key(label, CpuTarget{}).hex() + kSuffix; }

std::string processor_name() {
  std::array<unsigned, 12> words{};
  for (unsigned part = 0; part < 3; ++part)
    if (!__get_cpuid(0x80000002u + part, &words[4 * part], &words[4 * part + 1], &words[4 * part + 2],
                     &words[4 * part + 3]))
      return "x86-64";
  std::string name(reinterpret_cast<const char*>(words.data()), sizeof(words));
  return name.substr(0, name.find('\0'));
}

}  // namespace

std::string machine_identity() {
  static const std::string identity =
      fmt::format("{}, {} cores, {}", processor_name(), usable_cores(), name_of(cpu_target()));
  return identity;
}

WinnerStore::WinnerStore(std::filesystem::path folder, std::string identity, int64_t limit)
    : sealed_(std::move(folder)), identity_(std::move(identity)), limit_(limit) {}

std::string WinnerStore::label_of(const Signature& signature) const {
  return fmt::format("choice {} {}{}{}", kVersion, identity_, '\0', signature.key());
}

std::filesystem::path WinnerStore::path_of(const Signature& signature) const {
  return sealed_.folder().path() / name_of_file(label_of(signature));
}

std::optional<std::string> WinnerStore::read(const Signature& signature) const {
  const std::string label = label_of(signature);
  return sealed_.read(name_of_file(label), label, kLongestName);
}

void WinnerStore::write(const Signature& signature, std::string_view winner) {
  const std::string label = label_of(signature);
  if (!sealed_.write(name_of_file(label), label, winner)) return;
  if (written_.fetch_add(1) % kWritesPerLook == kWritesPerLook - 1) sealed_.folder().evict(kSuffix, {.files = limit_});
}

}  // namespace tutti::codegen::choice
