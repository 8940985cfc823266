// Pages, prefixes and windows of the cache, in orders that an engine may call them.
#include "tutti/generate/paged_cache.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/generate/support/tiny_decoders.h"
#include "tests/support/message_of.h"

namespace tutti::generate {
namespace {

std::vector<int32_t> tokens_from(int32_t first, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

PagedCache cache_of(const std::string& kind, int64_t pages_each) {
  const int64_t page = 2 * kPageKeys * 2 * 10 * 4 * 3;
  return {tiny_decoder(kind), {.bytes = pages_each * page, .context = 400, .sequences = 8, .batch_tokens = 64}};
}

CachedSequence written(PagedCache& cache, const std::vector<int32_t>& tokens) {
  CachedSequence sequence;
  EXPECT_TRUE(cache.reserve(sequence, std::ssize(tokens)));
  cache.advance(sequence, tokens, std::ssize(tokens));
  return sequence;
}

TEST(PrefixIndex, FindsAPrefixByAllOfItsTokens) {
  PrefixIndex index;
  const uint64_t a = index.add(PrefixIndex::kEmpty, tokens_from(0, 16)), b = index.add(a, tokens_from(16, 16));
  EXPECT_EQ(index.add(PrefixIndex::kEmpty, tokens_from(0, 16)), a);
  EXPECT_EQ(index.find(PrefixIndex::kEmpty, tokens_from(0, 16)), a);
  EXPECT_EQ(index.find(a, tokens_from(16, 16)), b);
  EXPECT_EQ(index.find(PrefixIndex::kEmpty, tokens_from(16, 16)), std::nullopt);
  EXPECT_EQ(index.find(PrefixIndex::kEmpty, tokens_from(0, 15)), std::nullopt);
  index.remove(a);
  index.remove(a);
  EXPECT_EQ(index.find(PrefixIndex::kEmpty, tokens_from(0, 16)), std::nullopt);
  const uint64_t again = index.add(PrefixIndex::kEmpty, tokens_from(0, 16));
  EXPECT_NE(again, a);
  EXPECT_EQ(index.find(again, tokens_from(16, 16)), std::nullopt);  // what stood behind the old one is not its
}

TEST(PagePool, GivesPublishedPagesLastAndTheOldestOfThemFirst) {
  std::vector<uint64_t> forgotten;
  PagePool pool(4, [&](uint64_t prefix) { forgotten.push_back(prefix); });
  const int32_t a = *pool.take(), b = *pool.take(), c = *pool.take();
  pool.publish(a, 1);
  pool.publish(b, 2);
  pool.publish(c, 1);  // another page has it
  EXPECT_FALSE(pool.is_published(c));
  pool.release(b);
  pool.release(a);
  pool.release(c);
  EXPECT_EQ(pool.available(), 4);
  EXPECT_EQ(pool.take(), c);
  EXPECT_NE(pool.take(), a);
  pool.hold(b);
  EXPECT_EQ(pool.take(), a);
  EXPECT_EQ(forgotten, std::vector<uint64_t>{1});
  EXPECT_EQ(pool.take(), std::nullopt);
  EXPECT_EQ(pool.published(2), b);
}

TEST(PagedCache, SharesWholePagesOfEqualBeginnings) {
  PagedCache cache = cache_of("dense", 20);
  std::vector<int32_t> tokens = tokens_from(0, 50);
  CachedSequence first = written(cache, tokens);
  EXPECT_EQ(cache.available(), 16);
  CachedSequence second, third, fourth;
  EXPECT_EQ(cache.reuse(second, tokens), 48);
  EXPECT_EQ(cache.available(), 16);
  EXPECT_EQ(cache.reuse(third, std::span(tokens).first(48)), 32);  // a token is left to read
  tokens[20] = 7;
  EXPECT_EQ(cache.reuse(fourth, tokens), 16);
  EXPECT_EQ(second.tables[0][2], first.tables[0][2]);
  for (CachedSequence* sequence : {&first, &third, &second, &fourth}) cache.release(*sequence);
  EXPECT_EQ(cache.available(), 20);
  CachedSequence later;
  EXPECT_EQ(cache.reuse(later, tokens_from(0, 50)), 48);  // pages keep their content until they are needed
  cache.release(later);
  CachedSequence large = written(cache, tokens_from(200, 320));
  CachedSequence gone;
  EXPECT_EQ(cache.reuse(gone, tokens_from(0, 50)), 0);
}

TEST(PagedCache, ReservesAllPagesOrNone) {
  PagedCache cache = cache_of("dense", 5);
  CachedSequence sequence;
  EXPECT_FALSE(cache.reserve(sequence, 81));
  EXPECT_EQ(cache.available(), 5);
  EXPECT_TRUE(cache.reserve(sequence, 80));
  EXPECT_EQ(cache.longest(), 80);
  CachedSequence other;
  EXPECT_FALSE(cache.reserve(other, 1));
  cache.release(sequence);
  EXPECT_TRUE(cache.reserve(other, 1));
}

TEST(PagedCache, GivesPagesBeforeTheWindowBack) {
  PagedCache cache = cache_of("windows", 40);
  const std::vector<int32_t> tokens = tokens_from(0, 200);
  CachedSequence sequence;
  int64_t most = 0;
  for (int64_t length = 10; length <= 200; length += 10) {
    ASSERT_TRUE(cache.reserve(sequence, length));
    most = std::max(most, cache.pages() - cache.available());
    cache.advance(sequence, tokens, length);
  }
  EXPECT_LE(most, 4);  // 20 keys and 10 new ones
  // Position 192 sees keys from 173 on, which are in pages 10 and 11.
  CachedSequence again;
  EXPECT_EQ(cache.reuse(again, tokens), 192);
  EXPECT_EQ(again.tables[0][9], -1);
  EXPECT_EQ(again.tables[0][11], sequence.tables[0][11]);
}

// A page before a window has been taken for something else: what comes behind it cannot be used without it.
TEST(PagedCache, ReusesOnlyWhatAllLayersStillHave) {
  PagedCache cache = cache_of("window", 64);
  const std::vector<int32_t> tokens = tokens_from(0, 100);
  CachedSequence first = written(cache, tokens);
  CachedSequence second;
  EXPECT_EQ(cache.reuse(second, tokens), 96);
  EXPECT_EQ(second.tables.size(), 3u);
  cache.release(first);
  cache.release(second);
  for (int round = 0; round < 12; ++round) {
    CachedSequence other = written(cache, tokens_from(1000 * (round + 1), 90));
    CachedSequence again;
    const int64_t reused = cache.reuse(again, tokens);
    for (size_t g = 0; g < again.tables.size(); ++g) EXPECT_EQ(std::ssize(again.tables[g]), reused / kPageKeys);
    cache.release(again);
    cache.release(other);
  }
  EXPECT_EQ(cache.available(), cache.pages());
}

TEST(PagedCache, LayersThatShareKeysTakeNoMemory) {
  models::DecoderConfig alone = tiny_decoder("gemma4");
  const PagedCacheOptions options{.bytes = int64_t{1} << 30, .context = 160, .sequences = 2, .batch_tokens = 16};
  const int64_t shared = PagedCache(alone, options).bytes();
  for (models::LayerConfig& layer : alone.layers) layer.attention.shared_layer.reset();
  EXPECT_EQ(6 * shared, 4 * PagedCache(alone, options).bytes()) << "4 of 6 layers, 2 of each kind, have their own";
}

// A row of 10 elements is 10 codes and a scale.
TEST(PagedCache, CodesTakeAQuarterOfTheirNumbersAndAScaleForEachRow) {
  EXPECT_EQ(position_bytes(2, 10, DType::f32), 160);
  EXPECT_EQ(position_bytes(2, 10, DType::bf16), 80);
  const auto cache = [](DType dtype, int64_t bytes) {
    return PagedCache(tiny_decoder("dense"), {.dtype = dtype, .bytes = bytes, .context = 4000, .sequences = 3});
  };
  for (const DType code : {DType::i8, DType::f8e4m3fn}) {
    EXPECT_EQ(position_bytes(2, 10, code), 56);
    EXPECT_EQ(cache(code, 25 * 16 * 56 * 3 + 100).bytes(), 25 * 16 * 56 * 3);
    EXPECT_EQ(cache(code, 25 * 16 * 56 * 3 + 100).longest(), 400);
    EXPECT_EQ(cache(DType::f32, 25 * 16 * 160 * 3).longest(), 400);
  }
}

TEST(PagedCache, TakesTheMemoryThatIsSaidBefore) {
  for (const char* kind : {"qwen3", "gemma3", "gemma4"})
    for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::f8e4m3fn}) {
      const models::DecoderConfig config = tiny_decoder(kind);
      const PagedCacheOptions options{.dtype = dtype, .bytes = int64_t{1} << 32, .context = 400, .sequences = 2};
      EXPECT_EQ(PagedCache(config, options).bytes(), most_bytes(config, options)) << kind;
      EXPECT_LE(most_bytes(config, options), 2 * 400 * position_bytes(config, dtype)) << kind;
    }
}

TEST(PagedCache, OtherDTypesAreRefused) {
  for (const DType dtype : {DType::u8, DType::f8e5m2, DType::i32, DType::boolean})
    EXPECT_EQ(message_of([&] { PagedCache(tiny_decoder("dense"), {.dtype = dtype, .context = 64}); }),
              fmt::format("a cache of {}; expected i8 or f8e4m3fn, or the dtype in which the model computes",
                          name_of(dtype)));
}

TEST(PagedCache, MemoryThatHoldsNoPageIsRefused) {
  EXPECT_EQ(message_of([] { PagedCache(tiny_decoder("dense"), {.dtype = DType::i8, .bytes = 2687, .context = 64}); }),
            "a cache of 2687 bytes holds no page of llama dense: a page of 16 keys takes 2688 bytes; allow more");
  EXPECT_EQ(message_of([] { PagedCache(tiny_decoder("dense"), {.bytes = 7679, .context = 64}); }),
            "a cache of 7679 bytes holds no page of llama dense: a page of 16 keys takes 7680 bytes; allow more");
}

}  // namespace
}  // namespace tutti::generate
