#include "tutti/codegen/cache_key.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tutti/core/hash.h"

namespace tutti::codegen {

std::string CacheKey::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

CacheKey cache_key(std::string_view spec_key, Target target) {
  const uint64_t seed = static_cast<uint64_t>(target.device) << 8 | target.features;
  const XXH128_hash_t hash = XXH3_128bits_withSeed(spec_key.data(), spec_key.size(), seed);
  return {place_of(hash.high64), place_of(hash.low64)};
}

}  // namespace tutti::codegen
