// Every cache that keeps files between runs, each as one function, so that tests can loop over them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tutti::testing {

struct AnyCache {
  std::string name;
  // In the names of its files.
  std::string mark;
  // Whether its files carry a keyed hash.
  bool is_sealed;
  // The value that a new process gets from `folder`: the kept one, else one that it makes itself, which depends on
  // `fresh` and is kept. An empty folder means no cache.
  std::function<std::string(const std::filesystem::path& folder, const std::string& fresh)> get;

  std::string made(const std::string& fresh) const { return get({}, fresh); }
  // The one file of this cache in `folder`.
  std::filesystem::path file_in(const std::filesystem::path& folder) const;
};

const std::vector<AnyCache>& every_cache();

}  // namespace tutti::testing
