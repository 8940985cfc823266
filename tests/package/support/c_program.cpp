#include "tests/package/support/c_program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tutti/ops/cast.h"

namespace tutti::package_test {

const std::string kProgram = TUTTI_BINARY_DIR "/run_package";

Outcome run_command(const std::string& command) {
  Outcome outcome{-1, ""};
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) outcome.text.append(buffer, n);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

std::string emulated(const std::string& processor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "";  // the emulator has no room for what sanitizers note
#endif
  if (access("/usr/bin/qemu-x86_64", X_OK) == 0) return fmt::format("/usr/bin/qemu-x86_64 -cpu {} ", processor);
  EXPECT_EQ(std::getenv("CI"), nullptr) << "qemu-user is missing, which packages.txt names";
  return "";
}

Tensor pattern(const Extents& sizes, DType dtype) {
  Tensor t = Tensor::empty(sizes);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = is_floating(dtype) ? (static_cast<float>(i % 7) - 3) / 4 : static_cast<float>(i % 2);
  return cast(t, dtype);
}

std::string fnv(const Tensor& result) {
  const Tensor t = to_contiguous(result);
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < t.nbytes(); ++i)
    hash = (hash ^ static_cast<const unsigned char*>(t.raw_data())[i]) * 1099511628211u;
  return fmt::format("hash {:016x}", hash);
}

}  // namespace tutti::package_test
