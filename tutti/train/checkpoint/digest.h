// Digests of saved tensors: equal for equal bits, whatever layout wrote them. For comparison, not for security.
//
// The digest of a tensor is a hash of the hashes of its blocks, so that ranks that hold different blocks can compute it
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tutti/core/block_format.h"
#include "tutti/core/dtype.h"
#include "tutti/core/shape.h"

namespace tutti {
class Tensor;
}

namespace tutti::train {

constexpr int64_t kDigestBlock = 65536;  // elements, in row-major order; the last block may have fewer

// The hashes of the blocks of a contiguous CPU tensor; none for an empty one.
std::vector<uint64_t> block_digests(const Tensor& tensor);
// The digest of a tensor as 16 hexadecimal digits, computed from its dtype, sizes and the hashes of its blocks in
// order. UsageError when the number of blocks does not match the sizes.
std::string tensor_digest(DType dtype, const Extents& sizes, std::span<const uint64_t> blocks);
std::string tensor_digest(const Tensor& tensor);
// The digest of a tensor that is stored as blocks, computed from their bytes.
std::string blocks_digest(BlockFormat format, const Extents& sizes, std::span<const std::byte> blocks);

using Digests = std::map<std::string, std::string>;  // digests of tensors by name

// One digest for all of a checkpoint's tensors and their names, as 16 hexadecimal digits.
std::string digest_of(const Digests& tensors);

}  // namespace tutti::train
