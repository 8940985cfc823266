// The program without libtutti_llvm.so, which it needs for kernels that its cache does not have.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/support/program.h"
#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace fs = std::filesystem;
namespace {

TEST(MissingPlugin, IsNotMissedByTrainingWithAWarmCache) {
  const Workplace work;
  write_tiny_run(work);
  const fs::path installed = work.folder() / "installed", plugin = installed / "libtutti_llvm.so";
  fs::create_directory(installed);
  fs::copy_file(TUTTI_BINARY_DIR "/tutti", installed / "tutti");
  fs::copy_file(TUTTI_BINARY_DIR "/libtutti_llvm.so", plugin);
  const auto train = [&](const std::string& name, const std::string& cache) {
    return work.run("unset TUTTI_LLVM_PLUGIN; TUTTI_CACHE_DIR=$PWD/" + cache +
                    " installed/tutti train run.toml --quiet --training.steps=2 --lr_scheduler.warmup_steps=1"
                    " --run.name=" +
                    name);
  };
  const Output with = train("with", "cache");
  ASSERT_EQ(with.status, 0) << with.err;
  fs::remove(plugin);
  const Output without = train("without", "cache");
  ASSERT_EQ(without.status, 0) << without.err;
  EXPECT_EQ(outcome_of(work, "runs/without"), outcome_of(work, "runs/with"));

  const Output cold = train("cold", "another_cache");
  EXPECT_EQ(cold.status, 1);
  for (const std::string part : {"a kernel must be compiled", "libtutti_llvm.so", "TUTTI_LLVM_PLUGIN"})
    EXPECT_NE(cold.err.find(part), std::string::npos) << cold.err;
  EXPECT_NE(cold.err.find(fs::canonical(installed).string()), std::string::npos) << cold.err;
}

}  // namespace
}  // namespace tutti::test
