// Gigabytes a second that THREADS threads read, copy and update in place (read and written bytes), each its own part of
// 64 MiB (memory), and read of 4 MiB (cache): the slopes of the roofline. The best of many passes. g++ -O3 -mavx2
// -std=c++20 -pthread memory_rate.cpp -o memory_rate && ./memory_rate THREADS
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

static void read_all(const char* at, size_t nbytes) {
  __m256i sums[8] = {};
  for (size_t i = 0; i < nbytes; i += 256)
    for (int v = 0; v < 8; ++v)
      sums[v] = _mm256_xor_si256(sums[v], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + i + 32 * v)));
  for (__m256i& sum : sums) asm volatile("" : "+x"(sum));
}

static void update_all(char* at, size_t nbytes) {
  for (size_t i = 0; i < nbytes; i += 32) {
    auto* place = reinterpret_cast<__m256i*>(at + i);
    _mm256_store_si256(place, _mm256_xor_si256(_mm256_load_si256(place), _mm256_set1_epi8(1)));
  }
}

// The best of the passes, of which each begins when all threads are there and ends with the last.
static double best_gbps(int threads, size_t nbytes, int passes,
                        const std::function<void(size_t begin, size_t count)>& work) {
  std::barrier meet(threads);
  double best = 1e30;
  const size_t each = nbytes / threads / 4096 * 4096;
  const auto one = [&](int index) {
    for (int pass = 0; pass < passes; ++pass) {
      meet.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      for (size_t repeat = 0; repeat < std::max<size_t>(1, (64 << 20) / nbytes); ++repeat) work(index * each, each);
      meet.arrive_and_wait();
      if (index == 0)
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(one, i);
  one(0);
  return static_cast<double>(each) * threads * static_cast<double>(std::max<size_t>(1, (64 << 20) / nbytes)) / best *
         1e-9;
}

int main(int, char** argv) {
  const int threads = std::atoi(argv[1]);
  constexpr size_t kLarge = 64 << 20, kSmall = 4 << 20;
  char* from = static_cast<char*>(std::aligned_alloc(2 << 20, kLarge));
  char* to = static_cast<char*>(std::aligned_alloc(2 << 20, kLarge));
  for (char* memory : {from, to}) {
    madvise(memory, kLarge, MADV_HUGEPAGE);
    std::memset(memory, 1, kLarge);
  }
  const auto read = [&](size_t begin, size_t count) { read_all(from + begin, count); };
  const auto copy = [&](size_t begin, size_t count) { std::memcpy(to + begin, from + begin, count); };
  const auto update = [&](size_t begin, size_t count) { update_all(to + begin, count); };
  std::printf("{\"read_gbps\":%.1f,\"copy_gbps\":%.1f,\"update_gbps\":%.1f,\"cache_read_gbps\":%.1f}\n",
              best_gbps(threads, kLarge, 25, read), 2 * best_gbps(threads, kLarge, 25, copy),
              2 * best_gbps(threads, kLarge, 25, update), best_gbps(threads, kSmall, 25, read));
}
