// Keys that earlier versions had and that select nothing any more. Files that name them are still read: the
// configuration that an old run has saved, and those that users keep.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tutti::train {

struct RetiredKey {
  std::string_view section, key;
  std::string_view why;  // ends the sentence "section.key selects nothing: ..."
};
std::span<const RetiredKey> retired_keys();

// The note for somebody who sets section.key: "runtime.symm_backend selects nothing: ...; leave it out". "" for a key
// that is not retired.
std::string retired_note(std::string_view section, std::string_view key);

}  // namespace tutti::train
