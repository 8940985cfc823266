// Where caches look for a kernel: a 128-bit hash of everything that determines its machine code. They compare the text
// itself as well.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/codegen/kernel.h"
#include "tutti/codegen/target.h"

namespace tutti::codegen {

struct CacheKey {
  uint64_t high = 0, low = 0;
  bool operator==(const CacheKey&) const = default;
  std::string hex() const;
};

// `spec_key` is KernelSpec::key().
CacheKey cache_key(std::string_view spec_key, Target target);

}  // namespace tutti::codegen
