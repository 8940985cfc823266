#include "tutti/codegen/cache_key.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tutti/codegen/cpu_target.h"
#include "tutti/core/hash.h"

namespace tutti::codegen {

std::string CacheKey::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

CacheKey cache_key(std::string_view spec_key, CpuTarget target) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(spec_key.data(), spec_key.size(), static_cast<uint64_t>(target));
  return {place_of(hash.high64), place_of(hash.low64)};
}

}  // namespace tutti::codegen
