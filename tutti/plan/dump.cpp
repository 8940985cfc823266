#include "tutti/plan/dump.h"

#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tutti/core/error.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti::graph {

void dump_stage(const std::string& name, const char* stage, FunctionRef<std::string()> text) {
  const char* folder = std::getenv("TUTTI_COMPILE_DUMP");
  if (folder == nullptr || *folder == '\0') return;
  static std::atomic<int> count{0};
  static std::atomic<bool> complained{false};
  std::string file = name;
  for (char& c : file) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  const std::filesystem::path path =
      std::filesystem::path(folder) / fmt::format("{}-{:03}-{}.txt", file, count++, stage);
  try {
    std::filesystem::create_directories(folder);
    write_file_atomically(path.string(), text());
  } catch (const std::exception& e) {
    if (!complained.exchange(true)) std::fprintf(stderr, "TUTTI_COMPILE_DUMP: %s; going on without\n", e.what());
  }
}

}  // namespace tutti::graph
