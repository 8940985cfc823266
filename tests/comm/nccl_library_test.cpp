// What is said when the GPU's libraries are not what they should be.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tutti/comm/nccl/gpu_api.h"
#include "tutti/comm/nccl/nccl_api.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

template <class Fn>
std::string complaint(Fn&& fn) {
  try {
    fn();
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

TEST(NcclLibrary, AnOldVersionIsRefusedWithBothVersions) {
  const Variable library("TUTTI_NCCL_LIB", TUTTI_BINARY_DIR "/libtutti_fake_nccl.so");
  const Variable version("TUTTI_FAKE_NCCL_VERSION", "22605");
  EXPECT_EQ(complaint([] { NcclApi::open(); }),
            "backend nccl: " TUTTI_BINARY_DIR
            "/libtutti_fake_nccl.so is version 2.26.5; 2.27.0 or newer is "
            "required. Install a newer NCCL, or name another file in TUTTI_NCCL_LIB");
}

TEST(NcclLibrary, NewerVersionsAreTaken) {
  const Variable library("TUTTI_NCCL_LIB", TUTTI_BINARY_DIR "/libtutti_fake_nccl.so");
  for (const char* version : {"22700", "22703", "23007", "30000"}) {
    const Variable reported("TUTTI_FAKE_NCCL_VERSION", version);
    EXPECT_EQ(NcclApi::open()->version, std::atoi(version));
  }
  EXPECT_EQ(nccl_version_text(23007), "2.30.7");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

TEST(NcclLibrary, AMissingFileIsNamedWithTheReason) {
  const Variable library("TUTTI_NCCL_LIB", "/nowhere/libnccl.so.2");
  const std::string text = complaint([] { NcclApi::open(); });
  EXPECT_NE(text.find("/nowhere/libnccl.so.2: cannot open shared object file"), std::string::npos) << text;
  EXPECT_NE(text.find("TUTTI_NCCL_LIB names the file; without it libnccl.so.2, librccl.so.1 are tried"),
            std::string::npos)
      << text;
}

TEST(NcclLibrary, AMissingFunctionIsNamed) {
  const Variable library("TUTTI_NCCL_LIB", TUTTI_BINARY_DIR "/libtutti_fake_nccl_incomplete.so");
  EXPECT_NE(complaint([] { NcclApi::open(); }).find("has no function ncclGetUniqueId"), std::string::npos);
}

TEST(NcclLibrary, TheGpuLibraryIsNamedToo) {
  {
    const Variable library("TUTTI_CUDART_LIB", "/nowhere/libcudart.so");
    EXPECT_NE(complaint([] { GpuApi::open(); }).find("TUTTI_CUDART_LIB names the file"), std::string::npos);
  }
  const Variable library("TUTTI_CUDART_LIB", TUTTI_BINARY_DIR "/libtutti_fake_nccl.so");
  EXPECT_NE(complaint([] { GpuApi::open(); }).find("has no function cudaSetDevice or hipSetDevice"), std::string::npos);
}

}  // namespace
}  // namespace tutti::comm
