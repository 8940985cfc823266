// Flags of a thread that the workers of its parallel loops have too, while they run them: for what holds for a call,
// whichever threads work on it.
#pragma once

#include <cstdint>
#include <utility>

namespace tutti {

enum class InheritedFlag : uint32_t {
  no_new_kernels = 1,  // codegen::NoNewKernels
};

class InheritedFlags {
 public:
  static uint32_t current() { return flags; }
  static bool has(InheritedFlag flag) { return (flags & static_cast<uint32_t>(flag)) != 0; }

  // The flags of this thread while it lives. Scopes must be nested.
  class Scope {
   public:
    explicit Scope(uint32_t all) : before_(std::exchange(flags, all)) {}
    explicit Scope(InheritedFlag more) : Scope(flags | static_cast<uint32_t>(more)) {}
    ~Scope() { flags = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const uint32_t before_;
  };

 private:
  static inline constinit thread_local uint32_t flags = 0;
};

}  // namespace tutti
