#include "tutti/ops/attention.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.extents(), b.extents());
  EXPECT_EQ(std::memcmp(to_contiguous(a).raw_data(), to_contiguous(b).raw_data(), static_cast<size_t>(a.nbytes())), 0);
}

struct Row {
  Tensor q = facets::sample_tensor(1, {1, 9, 4, 16}), k = facets::sample_tensor(2, {1, 256, 2, 16}), v = facets::sample_tensor(3, {1, 256, 2, 16});
};

Tensor last_keys(std::vector<int32_t> keys, int32_t chunk_begin = 0) {
  for (int32_t& key : keys) key -= chunk_begin;
  return Tensor::of(keys, {1, static_cast<int64_t>(keys.size())});
}

const std::vector<int32_t> kPositions{3, 64, 63, 200, 255, 0, 130, 127, 128};

TEST(Attention, ChunksOfTheKeysCombineToTheBitsOfTheWholeRow) {
  const Row row;
  std::vector<SdpaPartial> nodes;
  for (const int32_t begin : {0, 64, 128, 192})
    nodes.push_back(sdpa_partial(row.q, narrow(row.k, 1, begin, 64), narrow(row.v, 1, begin, 64), {.last_key = last_keys(kPositions, begin)}));
  const SdpaResult parts = sdpa_of(combine(combine(nodes[0], nodes[1]), combine(nodes[2], nodes[3])), DType::f32);
  const SdpaResult whole = sdpa_with_logsumexp(row.q, row.k, row.v, {.last_key = last_keys(kPositions)});
  expect_same_bits(parts.output, whole.output);
  expect_same_bits(parts.logsumexp, whole.logsumexp);
}

TEST(Attention, QueriesInAnyOrderGiveTheSameRows) {
  const Row row;
  const Tensor causal = sdpa(narrow(row.q, 1, 0, 4), narrow(row.k, 1, 0, 4), narrow(row.v, 1, 0, 4), {.causal = true});
  for (const int32_t position : {3, 0, 2, 1}) {
    const Tensor alone = sdpa(narrow(row.q, 1, position, 1), narrow(row.k, 1, 0, 4), narrow(row.v, 1, 0, 4), {.last_key = last_keys({position})});
    expect_same_bits(alone, narrow(causal, 1, position, 1));
  }
}

TEST(Attention, AQueryThatSeesNoKeyOfAChunkIsItsIdentity) {
  const Row row;
  const SdpaPartial hidden = sdpa_partial(row.q, narrow(row.k, 1, 64, 64), narrow(row.v, 1, 64, 64),
                                          {.last_key = last_keys(std::vector<int32_t>(9, -1))});
  const SdpaPartial seen = sdpa_partial(row.q, narrow(row.k, 1, 0, 64), narrow(row.v, 1, 0, 64));
  expect_same_bits(combine(seen, hidden).output, seen.output);
  expect_same_bits(combine(seen, hidden).sum, seen.sum);
}

}  // namespace
}  // namespace tutti
