// Digests of tensors against those that another implementation of XXH3 (the Python package xxhash) gives.
#include "tutti/train/checkpoint/digest.h"

#include <gtest/gtest.h>

#include "tutti/core/error.h"
#include "tutti/ops/creation.h"

namespace tutti::train {
namespace {

// Values 0, step, 2 step, ... that the type holds exactly.
template <class T>
Tensor counting(Extents sizes, DType dtype, T step) {
  Tensor t = Tensor::empty(sizes, dtype);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<T>()[i] = static_cast<T>(i) * step;
  return t;
}

TEST(Digest, IsAHashOfHashesOfBlocks) {
  EXPECT_EQ(tensor_digest(counting<float>({3, 43691}, DType::f32, 1.0f)),
            "3158fec62f921233");  // one block and one element, thrice
  EXPECT_EQ(tensor_digest(counting<int64_t>({65536}, DType::i64, -1)), "3d2b19806966c4e8");  // one whole block
  EXPECT_EQ(tensor_digest(Tensor::empty({0, 4}, DType::bf16)), "42fadc964ea967df");
  Tensor scalar = Tensor::empty({}, DType::u8);
  *scalar.data<uint8_t>() = 7;
  EXPECT_EQ(tensor_digest(scalar), "3120ee0d600f81a3");
  EXPECT_EQ(digest_of({{"b", "0000000000000002"}, {"a", "0000000000000001"}}), "c4c9c6c566887d86");
}

// Ranks that hold blocks of one tensor form its digest from theirs.
TEST(Digest, IsFormedFromPartsThatBeginAtBlocks) {
  const Tensor whole = counting<float>({3 * kDigestBlock + 17}, DType::f32, 0.5f);
  std::vector<uint64_t> blocks;
  for (const int64_t begin : {int64_t{0}, 2 * kDigestBlock}) {
    const int64_t end = begin == 0 ? 2 * kDigestBlock : whole.numel();
    Tensor part = Tensor::empty({end - begin}, DType::f32);
    std::copy(whole.data<float>() + begin, whole.data<float>() + end, part.data<float>());
    for (const uint64_t hash : block_digests(part)) blocks.push_back(hash);
  }
  EXPECT_EQ(blocks.size(), 4u);
  EXPECT_EQ(tensor_digest(whole.dtype(), whole.extents(), blocks), tensor_digest(whole));
}

TEST(Digest, NoticesTheFirstAndTheLastBitOfEveryBlockAndTheShape) {
  Tensor t = counting<float>({2, kDigestBlock}, DType::f32, 1.0f);
  const std::string digest = tensor_digest(t);
  for (const int64_t element : {int64_t{0}, kDigestBlock - 1, kDigestBlock, 2 * kDigestBlock - 1}) {
    auto* bits = reinterpret_cast<uint32_t*>(t.data<float>() + element);
    for (const uint32_t bit : {1u, 0x80000000u}) {
      *bits ^= bit;
      EXPECT_NE(tensor_digest(t), digest) << element;
      *bits ^= bit;
    }
  }
  EXPECT_EQ(tensor_digest(t), digest);
  EXPECT_NE(tensor_digest(DType::f32, {kDigestBlock, 2}, block_digests(t)), digest);
  EXPECT_NE(tensor_digest(DType::i32, {2, kDigestBlock}, block_digests(t)), digest);
}

TEST(Digest, AWrongNumberOfBlocksIsRefused) {
  const std::vector<uint64_t> one(1);
  try {
    tensor_digest(DType::f32, {kDigestBlock + 1}, one);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "tensor_digest: 1 block is given; expected 2 for [65537]");
  }
}

}  // namespace
}  // namespace tutti::train
