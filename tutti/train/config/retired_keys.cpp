#include "tutti/train/config/retired_keys.h"

#include <fmt/format.h>

namespace tutti::train {
namespace {

constexpr RetiredKey kRetired[] = {
    {"runtime", "symm_backend", "ranks share memory as runtime.transport says"},
};

}  // namespace

std::span<const RetiredKey> retired_keys() { return kRetired; }

std::string retired_note(std::string_view section, std::string_view key) {
  for (const RetiredKey& k : kRetired) {
    if (k.section == section && k.key == key)
      return fmt::format("{}.{} selects nothing: {}; leave it out", section, key, k.why);
  }
  return "";
}

}  // namespace tutti::train
