// AVX2 and AVX-512 give the same bits, for every op.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include <fmt/format.h>

namespace tutti {
namespace {

// What the program op_hashes prints with kernels for `target`: key -> hash.
std::map<std::string, std::string> hashes(const std::string& target) {
  std::map<std::string, std::string> result;
  FILE* pipe = popen(fmt::format("TUTTI_CPU={} {}/op_hashes", target, TUTTI_BINARY_DIR).c_str(), "r");
  if (pipe == nullptr) return result;
  char line[512];
  while (std::fgets(line, sizeof line, pipe)) {
    const std::string text(line);
    const size_t space = text.rfind(' ');
    if (space != std::string::npos) result[text.substr(0, space)] = text.substr(space + 1);
  }
  EXPECT_EQ(pclose(pipe), 0) << "op_hashes failed with TUTTI_CPU=" << target;
  return result;
}

TEST(InstructionSets, GiveTheSameBits) {
  // A machine without AVX-512 compares two runs of AVX2.
  const std::string other = __builtin_cpu_supports("avx512f") ? "avx512" : "avx2";
  const auto narrow = hashes("avx2"), wide = hashes(other);
  ASSERT_GT(narrow.size(), 100u);
  EXPECT_EQ(narrow.size(), wide.size());
  for (const auto& [key, hash] : narrow) {
    const auto found = wide.find(key);
    ASSERT_NE(found, wide.end()) << key;
    EXPECT_EQ(hash, found->second) << key << " on avx2 and " << other;
  }
  RecordProperty("compared", fmt::format("avx2 with {}", other));
}

}  // namespace
}  // namespace tutti
