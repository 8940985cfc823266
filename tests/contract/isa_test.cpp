// AVX2, AVX-512 and its dot units of integers and of bf16 give the same bits, for every op.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tutti/codegen/cpu_target.h"

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
  const auto narrow = hashes("avx2");
  ASSERT_GT(narrow.size(), 100u);
  // A machine with nothing else compares two runs of AVX2.
  std::vector<std::string> others = {"avx2"};
  if (codegen::has_wide_registers(codegen::cpu_target())) others.clear();
  for (int target = 1; target <= static_cast<int>(codegen::cpu_target()); ++target)
    others.emplace_back(codegen::name_of(static_cast<codegen::CpuTarget>(target)));
  for (const std::string& other : others) {
    const auto wide = hashes(other);
    EXPECT_EQ(narrow.size(), wide.size());
    for (const auto& [key, hash] : narrow) {
      const auto found = wide.find(key);
      ASSERT_NE(found, wide.end()) << key;
      EXPECT_EQ(hash, found->second) << key << " on avx2 and " << other;
    }
  }
  RecordProperty("compared", fmt::format("avx2 with {}", fmt::join(others, " and ")));
}

}  // namespace
}  // namespace tutti
