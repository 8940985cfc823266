// Libraries that are opened when they are first needed, so that Tutti runs without them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/symm/backend.h"

namespace tutti::comm::symm {

class Library {
 public:
  // `backend` opens the messages; `variable` may name another file; `names` are tried in order without it. Nothing is
  // opened yet.
  Library(std::string backend, std::string variable, std::vector<std::string> names);
  // LibraryError naming what was tried and why each failed. Does nothing when it is open; never closes: memory of the
  // library may outlive everything else.
  void open();
  bool is_open() const { return handle_ != nullptr; }
  // LibraryError naming library and function when it is missing.
  template <class Function>
  void load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(symbol(name));
  }
  const std::string& path() const { return path_; }
  const std::string& backend() const { return backend_; }

 private:
  void* symbol(const char* name);
  std::string backend_;
  std::string variable_;
  std::vector<std::string> names_;
  std::string path_;
  void* handle_ = nullptr;
};

// A version as people write it.
std::string version_text(int major, int minor, int patch = -1);

}  // namespace tutti::comm::symm
