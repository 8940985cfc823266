// WinnerStore: measured choices on disk, next to the kernels and under the same rules (runtime/sealed_cache.h). If the
// folder cannot be used, there is one warning and every process measures again.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/codegen/choice/signature.h"
#include "tutti/runtime/sealed_cache.h"

namespace tutti::codegen::choice {

// The properties that timings depend on besides the call: processor, cores, instruction set.
std::string machine_identity();

// Any thread, any number of processes.
class WinnerStore {
 public:
  // With an empty folder nothing is stored. `identity` describes the machine and the version of the timed code; winners
  // with another identity are not found. Beyond `limit` files the oldest are deleted.
  WinnerStore(std::filesystem::path folder, std::string identity, int64_t limit = 16384);

  // The name of the candidate that won for this call.
  std::optional<std::string> read(const Signature& signature) const;
  void write(const Signature& signature, std::string_view winner);

  bool is_usable() const { return sealed_.is_usable(); }
  std::filesystem::path path_of(const Signature& signature) const;

 private:
  std::string label_of(const Signature& signature) const;

  const SealedCache sealed_;
  const std::string identity_;
  const int64_t limit_;
  std::atomic<int64_t> written_ = 0;
};

}  // namespace tutti::codegen::choice
