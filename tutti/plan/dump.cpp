#include "tutti/plan/dump.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tutti/core/error.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti::graph {
namespace {

// The folder of the dumps; null: nothing is dumped.
const char* dump_folder() {
  const char* folder = std::getenv("TUTTI_COMPILE_DUMP");
  return folder == nullptr || *folder == '\0' ? nullptr : folder;
}

}  // namespace

std::set<std::string> stages_asked_for(std::span<const std::string> known) {
  const char* text = std::getenv("TUTTI_COMPILE_DUMP_PASSES");
  if (text == nullptr || dump_folder() == nullptr) return {};
  std::set<std::string> names;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "all") return {known.begin(), known.end()};
    TUTTI_CHECK(std::find(known.begin(), known.end(), name) != known.end(), "TUTTI_COMPILE_DUMP_PASSES: {}",
                unknown_name_message("pass", name, known));
    names.insert(name);
  }
  return names;
}

void dump_stage(const std::string& name, const char* stage, FunctionRef<std::string()> text) {
  const char* folder = dump_folder();
  if (folder == nullptr) return;
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
