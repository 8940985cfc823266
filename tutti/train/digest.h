// Digests of saved tensors: equal for equal bits, whatever layout wrote them. For comparing, not for security.
//
// The digest of a tensor is a hash of the hashes of its blocks, so that ranks that hold different blocks can form it together.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::train {

constexpr int64_t kDigestBlock = 65536;  // elements, in row-major order; the last block may have fewer

// The hashes of the blocks of a contiguous CPU tensor; none for an empty one.
std::vector<uint64_t> block_digests(const Tensor& tensor);
// Of the whole tensor whose blocks these are: of dtype, sizes and the blocks in order, as 16 hexadecimal digits. UsageError when
// the number of blocks is not that of such a tensor.
std::string tensor_digest(DType dtype, const Extents& sizes, std::span<const uint64_t> blocks);
std::string tensor_digest(const Tensor& tensor);

using Digests = std::map<std::string, std::string>;  // of tensors, by name

// One digest for all of a checkpoint's tensors and their names, as 16 hexadecimal digits.
std::string digest_of(const Digests& tensors);

}  // namespace tutti::train
