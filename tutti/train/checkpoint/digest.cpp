#include "tutti/train/checkpoint/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/tensor/tensor.h"

namespace tutti::train {
namespace {

static_assert(std::endian::native == std::endian::little, "digests are of little-endian bytes");

int64_t block_count(int64_t numel) { return (numel + kDigestBlock - 1) / kDigestBlock; }

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace

std::vector<uint64_t> block_digests(const Tensor& tensor) {
  TUTTI_CHECK(tensor.is_contiguous(), "block_digests: the tensor {} is not contiguous; expected contiguous(t)",
              describe(tensor));
  const auto* bytes = static_cast<const std::byte*>(tensor.raw_data());
  const int64_t each = kDigestBlock * itemsize(tensor.dtype());
  std::vector<uint64_t> blocks;
  blocks.reserve(static_cast<size_t>(block_count(tensor.numel())));
  for (int64_t begin = 0; begin < tensor.nbytes(); begin += each)
    blocks.push_back(hash64(bytes + begin, static_cast<size_t>(std::min(each, tensor.nbytes() - begin)), 0));
  return blocks;
}

std::string tensor_digest(DType dtype, const Extents& sizes, std::span<const uint64_t> blocks) {
  TUTTI_CHECK(static_cast<int64_t>(blocks.size()) == block_count(numel_of(sizes)),
              "tensor_digest: {} block{} given; expected {} for {}", blocks.size(),
              blocks.size() == 1 ? " is" : "s are", block_count(numel_of(sizes)), sizes);
  return hex(hash64(blocks.data(), blocks.size_bytes(), hash64(fmt::format("{} {}", name_of(dtype), sizes))));
}

std::string tensor_digest(const Tensor& tensor) {
  return tensor_digest(tensor.dtype(), tensor.extents(), block_digests(tensor));
}

std::string blocks_digest(BlockFormat format, const Extents& sizes, std::span<const std::byte> blocks) {
  return hex(hash64(blocks.data(), blocks.size(), hash64(fmt::format("{} {}", name_of(format), sizes))));
}

std::string digest_of(const Digests& tensors) {
  std::string text;
  for (const auto& [name, digest] : tensors) text += fmt::format("{} {}\n", name, digest);
  return hex(hash64(text));
}

}  // namespace tutti::train
