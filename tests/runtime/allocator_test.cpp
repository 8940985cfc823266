#include "tutti/runtime/allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr MemoryCategory kData = MemoryCategory::data;

class AllocatorTest : public ::testing::Test {
 protected:
  ~AllocatorTest() override { allocator.release_cached(); }
  Allocator& allocator = *Allocator::create();
};

TEST_F(AllocatorTest, AlignsEveryBlock) {
  for (size_t nbytes : {1u, 63u, 64u, 65u, 1000u, 4097u, 100000u, 3u << 20}) {
    void* block = allocator.allocate(nbytes, kData);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % Allocator::kAlignment, 0u) << nbytes;
    std::memset(block, 0xab, nbytes);
    allocator.deallocate(block, nbytes, kData);
  }
}

TEST_F(AllocatorTest, BlocksOfEverySizeDoNotOverlap) {
  struct Held {
    unsigned char* data;
    size_t nbytes;
  };
  std::vector<Held> blocks;
  for (size_t nbytes = 1; nbytes < 5000; nbytes += 37) {
    auto* data = static_cast<unsigned char*>(allocator.allocate(nbytes, kData));
    std::memset(data, static_cast<int>(nbytes % 251), nbytes);
    blocks.push_back({data, nbytes});
  }
  for (auto [data, nbytes] : blocks) {
    for (size_t i = 0; i < nbytes; ++i) ASSERT_EQ(data[i], nbytes % 251);
    allocator.deallocate(data, nbytes, kData);
  }
}

TEST_F(AllocatorTest, NothingIsANullPointer) {
  EXPECT_EQ(allocator.allocate(0, kData), nullptr);
  allocator.deallocate(nullptr, 0, kData);
  EXPECT_EQ(allocator.statistics().allocations, 0);
}

TEST_F(AllocatorTest, ReusesAFreedBlockOfTheSameClass) {
  void* first = allocator.allocate(1000, kData);
  allocator.deallocate(first, 1000, kData);
  void* second = allocator.allocate(990, kData);
  EXPECT_EQ(second, first);
  EXPECT_EQ(allocator.statistics().allocations, 2);
  EXPECT_EQ(allocator.statistics().reserved_bytes, 1024);
  allocator.deallocate(second, 990, kData);
}

TEST_F(AllocatorTest, WastesLessThanAQuarter) {
  for (size_t nbytes = 257; nbytes < 2000000; nbytes = nbytes * 5 / 4 + 1) {
    void* block = allocator.allocate(nbytes, kData);
    const int64_t taken = allocator.statistics().current_bytes;
    EXPECT_GE(taken, static_cast<int64_t>(nbytes));
    EXPECT_LT(taken, static_cast<int64_t>(nbytes) * 5 / 4 + 64);
    allocator.deallocate(block, nbytes, kData);
  }
}

TEST_F(AllocatorTest, CountsByCategory) {
  void* weights = allocator.allocate(640, MemoryCategory::parameters);
  void* work = allocator.allocate(128, MemoryCategory::workspace);
  const MemoryStatistics s = allocator.statistics();
  EXPECT_EQ(s.current_bytes, 768);
  EXPECT_EQ(s.current_by_category[static_cast<size_t>(MemoryCategory::parameters)], 640);
  EXPECT_EQ(s.current_by_category[static_cast<size_t>(MemoryCategory::workspace)], 128);
  allocator.deallocate(weights, 640, MemoryCategory::parameters);
  allocator.deallocate(work, 128, MemoryCategory::workspace);
  EXPECT_EQ(allocator.statistics().current_bytes, 0);
}

TEST_F(AllocatorTest, RemembersThePeakAndWhatItWasMadeOf) {
  void* a = allocator.allocate(640, MemoryCategory::gradients);
  void* b = allocator.allocate(64, MemoryCategory::data);
  allocator.deallocate(a, 640, MemoryCategory::gradients);
  MemoryStatistics s = allocator.statistics();
  EXPECT_EQ(s.peak_bytes, 704);
  EXPECT_EQ(s.at_peak_by_category[static_cast<size_t>(MemoryCategory::gradients)], 640);
  allocator.reset_peak();
  s = allocator.statistics();
  EXPECT_EQ(s.peak_bytes, 64);
  EXPECT_EQ(s.at_peak_by_category[static_cast<size_t>(MemoryCategory::gradients)], 0);
  allocator.deallocate(b, 64, MemoryCategory::data);
}

TEST_F(AllocatorTest, GivesCachedBlocksBack) {
  void* used = allocator.allocate(128, kData);
  allocator.deallocate(allocator.allocate(6400, kData), 6400, kData);
  allocator.release_cached();
  EXPECT_EQ(allocator.statistics().reserved_bytes, 128);
  allocator.deallocate(used, 128, kData);
}

TEST_F(AllocatorTest, OutOfMemoryIsAnErrorWithTheFigures) {
  void* used = allocator.allocate(640, kData);
  try {
    allocator.allocate(size_t{1} << 49, MemoryCategory::gradients);  // more than an address space
    FAIL();
  } catch (const EnvironmentError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("562949953421312 bytes for gradients failed; 640 bytes are in use, 640 reserved"),
              std::string::npos)
        << text;
  }
  EXPECT_THROW(allocator.allocate(~size_t{0}, kData), EnvironmentError);
  allocator.deallocate(used, 640, kData);
}

TEST_F(AllocatorTest, AFailedAllocationIsNotCounted) {
  EXPECT_THROW(allocator.allocate(size_t{1} << 49, kData), EnvironmentError);
  const MemoryStatistics s = allocator.statistics();
  EXPECT_EQ(s.current_bytes, 0);
  EXPECT_EQ(s.peak_bytes, 0);
  EXPECT_EQ(s.reserved_bytes, 0);
  EXPECT_EQ(s.allocations, 0);
}

TEST_F(AllocatorTest, ThreadsMayFreeWhatOthersAllocated) {
  std::vector<void*> blocks(200);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = static_cast<size_t>(t); i < blocks.size(); i += 4)
        blocks[i] = allocator.allocate(64 * (i % 7 + 1), kData);
    });
  }
  for (std::thread& t : threads) t.join();
  threads.clear();
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = static_cast<size_t>(3 - t); i < blocks.size(); i += 4)
        allocator.deallocate(blocks[i], 64 * (i % 7 + 1), kData);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(allocator.statistics().current_bytes, 0);
  EXPECT_EQ(allocator.statistics().allocations, 200);
}

TEST(MemoryCategoryScope, NestsAndEndsWithItsBlock) {
  EXPECT_EQ(MemoryCategoryScope::current(), MemoryCategory::activations);
  {
    MemoryCategoryScope outer(MemoryCategory::optimizer);
    {
      MemoryCategoryScope inner(MemoryCategory::data);
      EXPECT_EQ(MemoryCategoryScope::current(), MemoryCategory::data);
    }
    EXPECT_EQ(MemoryCategoryScope::current(), MemoryCategory::optimizer);
  }
  EXPECT_EQ(MemoryCategoryScope::current(), MemoryCategory::activations);
}

TEST(MemoryCategory, EveryCategoryHasAName) {
  for (int i = 0; i < kNumMemoryCategories; ++i) EXPECT_FALSE(name_of(static_cast<MemoryCategory>(i)).empty());
}

}  // namespace
}  // namespace tutti
