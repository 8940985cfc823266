// The blocks that a GEMM hands on: every element once, with the bits it has in C, whether C is kept or not.
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "tutti/codegen/gemm/choice.h"
#include "tutti/codegen/gemm/gemm.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

struct Shape {
  int64_t m, n, k;
  int64_t batch = 1;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool a_transposed = false, b_transposed = false;
  bool b_shared = false;  // by the batch
};

std::vector<std::byte> random(int64_t count, DType dtype, uint64_t state) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * itemsize(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    store_from_double(bytes.data() + i * itemsize(dtype), dtype,
                      static_cast<double>(static_cast<int32_t>(state >> 32)) * 0x1p-31);
  }
  return bytes;
}

class Product {
 public:
  explicit Product(const Shape& shape)
      : s(shape), a_(random(s.batch * s.m * s.k, s.a, 1)), b_(random(s.batch * s.k * s.n, s.b, 2)) {}

  void run(void* c, const GemmOptions& options) const {
    batched_gemm({s.batch, s.m * s.k, s.b_shared ? 0 : s.k * s.n, s.m * s.n}, s.m, s.n, s.k,
                 {a_.data(), s.a, s.a_transposed ? 1 : s.k, s.a_transposed ? s.m : 1},
                 {b_.data(), s.b, s.b_transposed ? 1 : s.n, s.b_transposed ? s.k : 1}, {c, s.c, s.n},
                 ContractionTree::halving(s.k, 32), options);
  }
  std::vector<std::byte> whole(ThreadPool& pool) const {
    std::vector<std::byte> c(static_cast<size_t>(s.batch * s.m * s.n * itemsize(s.c)));
    run(c.data(), {.pool = &pool});
    return c;
  }

  const Shape s;

 private:
  std::vector<std::byte> a_, b_;
};

// What blocks bring, and how often each element came.
struct Collected {
  explicit Collected(const Shape& s)
      : shape(s),
        bytes(static_cast<size_t>(s.batch * s.m * s.n * itemsize(s.c))),
        times(static_cast<size_t>(s.batch * s.m * s.n)) {}

  void take(const GemmBlock& block) {
    std::lock_guard lock(mutex);
    const int64_t size = itemsize(shape.c);
    for (int64_t i = 0; i < block.rows; ++i) {
      const int64_t first = (block.first_row + i) * shape.n + block.first_column;
      std::byte* row = static_cast<std::byte*>(block.data) + i * block.row_stride * size;
      std::memcpy(bytes.data() + first * size, row, static_cast<size_t>(block.columns * size));
      for (int64_t j = 0; j < block.columns; ++j) ++times[static_cast<size_t>(first + j)];
      std::memset(row, 0x11, static_cast<size_t>(block.columns * size));  // a consumer may overwrite what it got
    }
  }

  const Shape shape;
  std::mutex mutex;
  std::vector<std::byte> bytes;
  std::vector<int> times;
};

void expect_blocks(const Shape& shape, ThreadPool& pool, const std::string& what) {
  const Product product(shape);
  const std::vector<std::byte> whole = product.whole(pool);
  for (const bool kept : {false, true}) {
    Collected collected(shape);
    std::vector<std::byte> c(whole.size() + 1);
    const auto take = [&](const GemmBlock& block) { collected.take(block); };
    const GemmConsumer consumer(take);
    product.run(kept ? c.data() : nullptr, {.pool = &pool, .consumer = &consumer});
    EXPECT_EQ(collected.bytes, whole) << what << " kept: " << kept;
    EXPECT_EQ(collected.times, std::vector<int>(collected.times.size(), 1)) << what << " kept: " << kept;
    if (kept) {
      EXPECT_TRUE(std::all_of(c.begin(), c.end() - 1, [](std::byte b) { return b == std::byte{0x11}; })) << what;
    }
  }
}

TEST(GemmBlocks, CoverOddSizes) {
  ThreadPool pool(2);
  for (const int64_t m : {1, 3, 17, 65, 130, 200})
    for (const int64_t n : {1, 5, 31, 48, 97})
      for (const int64_t k : {1, 33, 129}) expect_blocks({m, n, k}, pool, fmt::format("{} x {} x {}", m, n, k));
}

TEST(GemmBlocks, CoverTransposedOperandsOfEveryDType) {
  ThreadPool pool(3);
  for (const DType a : {DType::f64, DType::f32, DType::bf16})
    for (const DType c : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const bool transposed : {false, true})
        for (const int64_t n : {3, 70})
          expect_blocks({.m = 75,
                         .n = n,
                         .k = 140,
                         .a = a,
                         .b = a,
                         .c = c,
                         .a_transposed = transposed,
                         .b_transposed = transposed},
                        pool, fmt::format("{} -> {}, transposed {}, n {}", name_of(a), name_of(c), transposed, n));
}

TEST(GemmBlocks, CoverLongContractionsAndManyThreads) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    expect_blocks({.m = 150, .n = 100, .k = 1500}, pool, fmt::format("{} threads", threads));
    expect_blocks({.m = 300, .n = 10, .k = 900}, pool, fmt::format("narrow, {} threads", threads));
  }
}

TEST(GemmBlocks, CountRowsThroughABatch) {
  for (const int threads : {1, 4})
    for (const bool shared : {false, true})
      for (const int64_t n : {3, 50}) {
        ThreadPool pool(threads);
        expect_blocks({.m = 21, .n = n, .k = 40, .batch = 5, .b_shared = shared}, pool,
                      fmt::format("shared {}, n {}", shared, n));
      }
}

TEST(GemmBlocks, OfNoProductsAreTheIdentityOfASum) {
  ThreadPool pool(1);
  expect_blocks({.m = 3, .n = 5, .k = 0, .batch = 2}, pool, "k = 0");
  expect_blocks({.m = 0, .n = 5, .k = 4}, pool, "no rows");
}

TEST(GemmBlocks, OfMoreRowsThanArePackedAtOnceAreCovered) {
  ThreadPool pool(2);
  expect_blocks({.m = 3003, .n = 16, .k = 1000}, pool, "blocks of A");
  expect_blocks({.m = 900, .n = 16, .k = 5000}, pool, "blocks of rows and k");
}

TEST(GemmBlocks, AreHandedOnOnceWhenCutsAreMeasured) {
  const Shape shape{.m = 130, .n = 100, .k = 100};
  ThreadPool pool(2);
  GemmChooser chooser({.mode = choice::ChoiceMode::measure});
  const Product product(shape);
  Collected collected(shape);
  const auto take = [&](const GemmBlock& block) { collected.take(block); };
  const GemmConsumer consumer(take);
  product.run(nullptr, {.pool = &pool, .chooser = &chooser, .consumer = &consumer});
  EXPECT_GT(chooser.engine().statistics().measured, 0);
  EXPECT_EQ(collected.bytes, product.whole(pool));
  EXPECT_EQ(collected.times, std::vector<int>(collected.times.size(), 1));
}

TEST(GemmBlocks, SomebodyMustTakeC) {
  ThreadPool pool(1);
  const Product product({.m = 2, .n = 2, .k = 2});
  try {
    product.run(nullptr, {.pool = &pool});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("c has no memory; give GemmOptions::consumer"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti::codegen
