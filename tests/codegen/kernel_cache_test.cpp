#include "tutti/codegen/kernel_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/codegen/support/harness.h"
#include "tests/support/message_of.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/runtime/fp_environment.h"

namespace tutti::codegen {
namespace {

namespace fs = std::filesystem;
using testing::Recipe;

const CpuTarget kTarget = CpuTarget::avx2;

// An empty directory of one test, removed afterwards.
class KernelCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tutti_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    fs::permissions(directory_, fs::perms::owner_all);
    fs::remove_all(directory_);
  }

  DiskCacheOptions options(int64_t limit_nbytes = int64_t{1} << 30) const {
    return {directory_ / "kernels", limit_nbytes};
  }

  std::vector<fs::path> entries() const {
    std::vector<fs::path> paths;
    for (const auto& file : fs::directory_iterator(directory_ / "kernels")) {
      if (file.path().extension() == ".kernel") paths.push_back(file.path());
    }
    return paths;
  }

  fs::path directory_;
};

// x + number, a kernel of its own for every number.
KernelSpec adding(double number) {
  Recipe recipe;
  recipe.output(recipe.input(DType::f32) + number, DType::f32);
  return recipe.finish("adding");
}

float result_of(const Kernel& kernel, float x) {
  set_fp_environment();
  float out = 0;
  uint32_t error = 0;
  const OperandCall operands[] = {{&x}, {&out}};
  const KernelCall call{.operands = operands, .params = nullptr, .n_inner = 1, .error = &error};
  kernel.entry(&call);
  return out;
}

TEST_F(KernelCacheTest, CompilesOnceAndThenReadsFromDisk) {
  KernelCache first(options()), second(options());
  EXPECT_EQ(result_of(first.get(adding(1), kTarget), 2), 3);
  EXPECT_EQ(result_of(first.get(adding(1), kTarget), 2), 3);
  EXPECT_EQ(first.statistics().compiled, 1);
  EXPECT_EQ(first.statistics().memory_hits, 1);
  EXPECT_GT(first.statistics().compile_ms, 0);
  EXPECT_EQ(result_of(second.get(adding(1), kTarget), 2), 3);
  EXPECT_EQ(second.statistics().compiled, 0);
  EXPECT_EQ(second.statistics().disk_hits, 1);
  EXPECT_EQ(second.get(adding(1), kTarget).compile_ms, 0);
}

TEST_F(KernelCacheTest, TheNameForPeopleIsNotPartOfTheKey) {
  KernelSpec a = adding(1), b = adding(1);
  b.name = "another name";
  EXPECT_EQ(a.key(), b.key());
  EXPECT_NE(a.key(), adding(2).key());
}

// Hashes only say where to look.
TEST_F(KernelCacheTest, KernelsWhoseHashesCollideAreTheirOwn) {
  const CollidingHashesForTests colliding;
  KernelCache first(options());
  for (int round = 0; round < 2; ++round) {
    for (const double number : {1.0, 2.0, 3.0}) EXPECT_EQ(result_of(first.get(adding(number), kTarget), 2), 2 + number);
    EXPECT_NE(first.get(adding(1), CpuTarget::avx2).entry, first.get(adding(1), CpuTarget::avx512).entry);
  }
  EXPECT_EQ(first.statistics().compiled, 4);
  EXPECT_EQ(entries().size(), 1u);  // the last one has replaced the others
  for (const double number : {1.0, 2.0})
    EXPECT_EQ(result_of(KernelCache(options()).get(adding(number), kTarget), 2), 2 + number);
}

TEST_F(KernelCacheTest, TargetsHaveEntriesOfTheirOwn) {
  KernelCache cache(options());
  // Dot products are for other kernels.
  if (cpu_target() > CpuTarget::avx512) {
    EXPECT_EQ(cache.get(adding(1), cpu_target()).entry, cache.get(adding(1), CpuTarget::avx512).entry);
  }
  const Kernel& narrow = cache.get(adding(1), CpuTarget::avx2);
  const Kernel& wide = cache.get(adding(1), CpuTarget::avx512);
  EXPECT_NE(narrow.entry, wide.entry);
  EXPECT_EQ(entries().size(), 2u);
}

// What one device has in the cache is never handed to another, whatever the hashes are.
TEST_F(KernelCacheTest, DevicesHaveEntriesOfTheirOwn) {
  const CollidingHashesForTests colliding;
  const Target other(DeviceKind::mock, static_cast<uint8_t>(kTarget));
  for (const bool warm : {false, true}) {
    KernelCache cache(options());
    EXPECT_EQ(result_of(cache.get(adding(1), kTarget), 2), 3);
    EXPECT_EQ(cache.statistics().disk_hits, warm ? 1 : 0);
    EXPECT_EQ(message_of([&] { static_cast<void>(cache.get(adding(1), other)); }),
              "no code is generated for mock:0 with the instructions 0; kernels are compiled for the cpu");
    EXPECT_EQ(entries().size(), 1u);
  }
  EXPECT_EQ(name_of(Target(CpuTarget::avx512)), "cpu avx512");
}

TEST_F(KernelCacheTest, DamagedEntriesAreCompiledAndWrittenAnew) {
  KernelCache(options()).get(adding(1), kTarget);
  const fs::path entry = entries().at(0);
  std::ifstream file(entry, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> damaged = {"", good.substr(0, 10), good.substr(0, good.size() - 1), good + "x"};
  for (size_t at = 0; at < good.size(); at += 37) {
    damaged.push_back(good);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x41);
  }
  for (const std::string& bytes : damaged) {
    std::ofstream(entry, std::ios::binary | std::ios::trunc) << bytes;
    KernelCache cache(options());
    EXPECT_EQ(result_of(cache.get(adding(1), kTarget), 2), 3);
    EXPECT_EQ(cache.statistics().compiled, 1);
    std::ifstream again(entry, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(again), {}), good);
  }
}

TEST_F(KernelCacheTest, OneProcessCompilesAndTheOthersRead) {
  constexpr int kProcesses = 3;
  int ready[2], go[2], counts[2];
  ASSERT_TRUE(pipe(ready) == 0 && pipe(go) == 0 && pipe(counts) == 0);
  for (int p = 0; p < kProcesses; ++p) {
    if (fork() != 0) continue;
    char byte = 0;
    int64_t compiled = -1;
    if (write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1) {
      KernelCache cache(options());
      if (result_of(cache.get(adding(4), kTarget), 2) == 6) compiled = cache.statistics().compiled;
    }
    _exit(write(counts[1], &compiled, sizeof(compiled)) == sizeof(compiled) ? 0 : 1);
  }
  char bytes[kProcesses] = {};
  for (char& byte : bytes) ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(write(go[1], bytes, kProcesses), kProcesses);
  int64_t total = 0;
  for (int p = 0; p < kProcesses; ++p) {
    int64_t compiled = -1;
    ASSERT_EQ(read(counts[0], &compiled, sizeof(compiled)), static_cast<ssize_t>(sizeof(compiled)));
    ASSERT_GE(compiled, 0);
    total += compiled;
  }
  for (int p = 0; p < kProcesses; ++p) wait(nullptr);
  EXPECT_EQ(total, 1);
}

TEST_F(KernelCacheTest, ThreadsShareOneCompilation) {
  KernelCache cache(options());
  std::vector<std::thread> threads;
  std::vector<const Kernel*> kernels(8);
  for (size_t t = 0; t < kernels.size(); ++t) {
    threads.emplace_back([&, t] {
      kernels[t] = &cache.get(adding(5), kTarget);
      EXPECT_EQ(result_of(*kernels[t], 2), 7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Kernel* kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
  EXPECT_EQ(cache.statistics().compiled, 1);
  EXPECT_EQ(cache.statistics().memory_hits, 7);
}

TEST_F(KernelCacheTest, ThreadsCompileDifferentKernelsAtOnce) {
  KernelCache cache(options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&cache, t] {
      for (int k = 0; k < 3; ++k)
        EXPECT_EQ(result_of(cache.get(adding(100 + t + k), kTarget), 2), static_cast<float>(102 + t + k));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.statistics().compiled, 10);
}

TEST_F(KernelCacheTest, AnErrorReachesTheCallerAndIsNotRemembered) {
  KernelCache cache(options());
  Recipe recipe;
  recipe.output(apply_scalar(ScalarOp::exp, recipe.input(DType::i32)), DType::i32);
  const KernelSpec& spec = recipe.finish("wrong");
  EXPECT_THROW(cache.get(spec, kTarget), UsageError);
  EXPECT_THROW(cache.get(spec, kTarget), UsageError);
  EXPECT_EQ(cache.statistics().compiled, 0);
}

TEST_F(KernelCacheTest, WorksInMemoryWhenTheDirectoryCannotBeMade) {
  std::ofstream(directory_ / "kernels") << "a file where the directory should be";
  KernelCache cache(options());
  EXPECT_EQ(result_of(cache.get(adding(6), kTarget), 2), 8);
  EXPECT_EQ(cache.statistics().compiled, 1);
}

TEST_F(KernelCacheTest, WorksInMemoryWhenNothingCanBeWritten) {
  KernelCache cache(options());
  // Removed below the cache's feet: no file can be made in it, whoever runs the test.
  fs::remove_all(directory_ / "kernels");
  EXPECT_EQ(result_of(cache.get(adding(7), kTarget), 2), 9);
  EXPECT_EQ(result_of(cache.get(adding(8), kTarget), 2), 10);
  EXPECT_EQ(cache.statistics().compiled, 2);
}

TEST_F(KernelCacheTest, RefusesADirectoryEverybodyMayWriteTo) {
  fs::create_directory(directory_ / "kernels");
  ASSERT_EQ(chmod((directory_ / "kernels").c_str(), 0777), 0);
  EXPECT_FALSE(DiskCache(options()).is_usable());
  KernelCache cache(options());
  EXPECT_EQ(result_of(cache.get(adding(9), kTarget), 2), 11);
  EXPECT_TRUE(entries().empty());
}

TEST_F(KernelCacheTest, MakesItsDirectoryForTheOwnerOnly) {
  KernelCache(options()).get(adding(1), kTarget);
  struct stat info;
  ASSERT_EQ(stat((directory_ / "kernels").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(KernelCacheTest, DeletesTheLongestUnusedEntriesBeyondTheLimit) {
  DiskCache cache(options(8000));
  const CodeBlob blob{std::string(1000, 'x'), 0};
  const auto name_of_entry = [](uint64_t k) { return CacheEntryName{{k, k}, "key", kTarget, 1}; };
  const auto an_hour = std::chrono::hours(1);
  for (uint64_t k = 0; k < 7; ++k) {
    cache.write(name_of_entry(k), blob);
    fs::last_write_time(cache.path_of(name_of_entry(k)), fs::file_time_type::clock::now() - (10 - k) * an_hour);
  }
  ASSERT_TRUE(cache.read(name_of_entry(0)));  // used now: the youngest
  cache.write(name_of_entry(7), blob);
  EXPECT_TRUE(cache.read(name_of_entry(0)));
  EXPECT_FALSE(cache.read(name_of_entry(1)));
  EXPECT_TRUE(cache.read(name_of_entry(7)));
  int64_t total = 0;
  for (const fs::path& entry : entries()) total += static_cast<int64_t>(fs::file_size(entry));
  EXPECT_LE(total, 8000);
}

TEST(CacheOptions, RefuseALimitThatIsNotANumber) {
  setenv("TUTTI_CACHE_LIMIT_MB", "plenty", 1);
  EXPECT_THROW(disk_cache_options_from_environment(), UsageError);
  setenv("TUTTI_CACHE_LIMIT_MB", "0", 1);
  EXPECT_TRUE(disk_cache_options_from_environment().directory.empty());
  unsetenv("TUTTI_CACHE_LIMIT_MB");
}

}  // namespace
}  // namespace tutti::codegen
