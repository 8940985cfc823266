// Opening of GPU vendors' libraries when they are first needed. Tutti builds and runs without them.
#pragma once

#include <string>
#include <vector>

namespace tutti::comm {

// An open library. Never closed: its threads and memory may outlive everything here. Any thread.
class OpenLibrary {
 public:
  // Opens the file named by the environment `variable` when that is set, else the first of `names` that opens.
  // EnvironmentError: what it is needed `purpose` for, what was tried, and why each failed.
  OpenLibrary(std::string purpose, const std::string& variable, const std::vector<std::string>& names);

  const std::string& path() const { return path_; }
  // Sets `function` to the first of `names` that the library has. EnvironmentError names them all.
  template <class Function>
  void load(Function*& function, const std::vector<std::string>& names) const {
    function = reinterpret_cast<Function*>(symbol(names));
  }

 private:
  void* symbol(const std::vector<std::string>& names) const;
  std::string purpose_;
  std::string variable_;
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace tutti::comm
