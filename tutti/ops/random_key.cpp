#include "tutti/ops/random_key.h"

#include <cstring>
#include <string>

#include "tutti/core/hash.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

uint64_t hash_of(uint64_t seed, std::string_view path, uint64_t ordinal) {
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &seed, 8);
  std::memcpy(bytes.data() + 8, &ordinal, 8);
  return hash64(bytes.append(path));
}

}  // namespace

RandomKey random_key(std::string_view path, uint64_t ordinal, uint32_t step, uint32_t virtual_shard) {
  return {.key = hash_of(RankContext::current().seed, path, ordinal), .step = step, .virtual_shard = virtual_shard};
}

RandomKey next_random_key() {
  RankContext& context = RankContext::current();
  // No module has this path, so anonymous draws meet no named ones.
  return {.key = hash_of(context.seed, std::string_view("\0draw", 5), context.next_draw++)};
}

RandomKey part_of(const RandomKey& whole, const Extents& sizes, const Extents& part, const Extents& offsets) {
  TUTTI_CHECK(whole.run_length == 0, "part_of: the key already belongs to a part; cut the whole tensor instead");
  const Extents strides = contiguous_strides(sizes);
  RandomKey key = whole;
  for (size_t d = 0; d < sizes.size(); ++d) key.first_index += offsets[d] * strides[d];
  if (numel_of(part) == 0) return key;
  // Dims from the last one on that are whole form one run with the first that is cut.
  int d = sizes.ndim() - 1;
  while (d >= 0 && part[static_cast<size_t>(d)] == sizes[static_cast<size_t>(d)]) --d;
  if (d < 0) return key;
  const size_t cut = static_cast<size_t>(d);
  key.run_length = part[cut] * strides[cut];
  key.run_stride = sizes[cut] * strides[cut];
  int64_t runs = 1;
  for (size_t e = cut; e-- > 0;) {
    TUTTI_CHECK(part[e] == 1 || strides[e] == runs * key.run_stride,
                "part_of: the part {} of {} is cut along dims {} and {}; beside the outermost dim only one may be cut", part,
                sizes, e + 1, cut);
    runs *= part[e];
  }
  if (runs == 1) key.run_length = key.run_stride = 0;
  return key;
}

}  // namespace tutti
