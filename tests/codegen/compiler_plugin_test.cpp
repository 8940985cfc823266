// What a program does without the code generator of its build. Each case is a process of its own: the plugin is looked
// for once.
#include "tutti/codegen/compiler_plugin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/codegen/support/harness.h"
#include "tutti/codegen/generator_fingerprint.h"
#include "tutti/codegen/kernel_cache.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

namespace fs = std::filesystem;
using ::testing::ExitedWithCode;

constexpr const char* kPlugin = TUTTI_BINARY_DIR "/libtutti_llvm.so";
constexpr const char* kNowhere = "/nowhere/libtutti_llvm.so";
constexpr const char* kOfAnotherBuild = TUTTI_BINARY_DIR "/libtutti_generator_of_another_build.so";

// The processes of a test share a folder, which it makes.
class CompilerPluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // processes that have nothing of this one
    if (const char* shared = std::getenv(kVariable)) {
      folder_ = shared;
      return;
    }
    std::string pattern = (fs::temp_directory_path() / "tutti_plugin_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    setenv(kVariable, pattern.c_str(), 1);
  }
  void TearDown() override {
    unsetenv(kVariable);
    fs::remove_all(folder_);
  }

  // Asks for a kernel, says where it came from or why it did not, and ends the process.
  [[noreturn]] void ask(const char* plugin) const {
    setenv("TUTTI_LLVM_PLUGIN", plugin, 1);
    testing::Recipe recipe;
    recipe.output(recipe.input(DType::f32) + 1.0, DType::f32);
    KernelCache cache({.directory = folder_ / "kernels"});
    try {
      cache.get(recipe.finish("adding"), CpuTarget::avx2);
      const CacheStatistics count = cache.statistics();
      fmt::print(stderr, "compiled {}, read {}\n", count.compiled, count.disk_hits);
    } catch (const EnvironmentError& error) {
      fmt::print(stderr, "error: {}\n", error.what());
    }
    _exit(0);
  }

 private:
  static constexpr const char* kVariable = "TUTTI_TEST_FOLDER_OF_PROCESSES";
  fs::path folder_;
};

TEST_F(CompilerPluginTest, IsNotMissedWhenTheCacheHasTheKernel) {
  EXPECT_EXIT(ask(kPlugin), ExitedWithCode(0), "compiled 1, read 0");
  EXPECT_EXIT(ask(kNowhere), ExitedWithCode(0), "compiled 0, read 1");
}

TEST_F(CompilerPluginTest, ThatIsMissingIsAnErrorWithItsPathWhenAKernelMustBeCompiled) {
  EXPECT_EXIT(ask(kNowhere), ExitedWithCode(0),
              "error: a kernel must be compiled, but TUTTI_LLVM_PLUGIN=/nowhere/libtutti_llvm.so: no such file");
}

TEST_F(CompilerPluginTest, OfAnotherBuildIsRefused) {
  EXPECT_EXIT(ask(kOfAnotherBuild), ExitedWithCode(0),
              fmt::format("error: the code generator {} belongs to another build: its fingerprint is 0123456789abcdef, "
                          "the program's is {:016x}. Build and install both together",
                          kOfAnotherBuild, generator_fingerprint()));
  // Nothing of it has been kept.
  EXPECT_EXIT(ask(kPlugin), ExitedWithCode(0), "compiled 1, read 0");
}

TEST_F(CompilerPluginTest, OfAnotherBuildIsNotOpenedWhenTheCacheHasTheKernel) {
  EXPECT_EXIT(ask(kPlugin), ExitedWithCode(0), "compiled 1, read 0");
  EXPECT_EXIT(ask(kOfAnotherBuild), ExitedWithCode(0), "compiled 0, read 1");
}

TEST_F(CompilerPluginTest, ThatIsAnyOtherLibraryIsRefused) {
  EXPECT_EXIT(ask(TUTTI_BINARY_DIR "/library_of_others/libtutti_compiled_in_a_library.so"), ExitedWithCode(0),
              "is not a code generator of this Tutti: it has no tutti_llvm_fingerprint. Build it together");
}

}  // namespace
}  // namespace tutti::codegen
