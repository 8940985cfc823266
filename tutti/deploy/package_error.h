// What is wrong with a package.
#pragma once

#include "tutti/core/error.h"

namespace tutti::deploy {

// A package that cannot be opened: the file or this machine, never the program that opens it.
class PackageError : public EnvironmentError {
 public:
  enum class Kind : uint8_t {
    file,       // it cannot be read
    damaged,    // bytes are not those that were written, or do not fit together
    version,    // made by another version of Tutti
    processor,  // no code for this processor
  };
  PackageError(Kind kind, const std::string& text) : EnvironmentError(text), kind(kind) {}
  const Kind kind;
};

[[noreturn]] inline void refuse_damaged(const std::string& text) {
  throw PackageError(PackageError::Kind::damaged, text);
}

}  // namespace tutti::deploy

// Throws the PackageError of a damaged file unless `condition` holds.
#define TUTTI_CHECK_PACKAGE(condition, ...)                      \
  do {                                                           \
    if (!(condition)) [[unlikely]]                               \
      ::tutti::deploy::refuse_damaged(fmt::format(__VA_ARGS__)); \
  } while (0)
