#include "tutti/core/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tutti {

uint64_t hash64(const void* data, size_t nbytes, uint64_t seed) { return XXH3_64bits_withSeed(data, nbytes, seed); }

}  // namespace tutti
