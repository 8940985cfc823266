#include "tutti/codegen/plugin_file.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

namespace tutti::codegen {
namespace {

namespace fs = std::filesystem;

// Where the dynamic linker looks for the program: LD_LIBRARY_PATH, its run path (programs that link an installed Tutti
// get one, tutti/CMakeLists.txt), the system's folders. Asking for the list opens nothing.
std::vector<fs::path> linker_folders() {
  void* program = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo size;
  if (!program || dlinfo(program, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  std::vector<Dl_serinfo> memory(size.dls_size / sizeof(Dl_serinfo) + 1);  // ends with text of varying length
  Dl_serinfo* info = memory.data();
  std::vector<fs::path> folders;
  if (dlinfo(program, RTLD_DI_SERINFOSIZE, info) != 0 || dlinfo(program, RTLD_DI_SERINFO, info) != 0) return {};
  for (unsigned k = 0; k < info->dls_cnt; ++k) folders.emplace_back(info->dls_serpath[k].dls_name);
  return folders;
}

std::vector<fs::path> search_folders() {
  std::vector<fs::path> homes;
  std::error_code ignored;
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&find_plugin_file), &self) && self.dli_fname)
    homes.push_back(fs::absolute(self.dli_fname, ignored).parent_path());
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  if (homes.empty() || homes.front() != program) homes.push_back(program);
  std::vector<fs::path> folders = homes;
  for (const fs::path& home : homes) folders.push_back(home.parent_path() / TUTTI_LIBDIR);
  for (const fs::path& folder : linker_folders()) folders.push_back(folder);
  return folders;
}

}  // namespace

PluginSearch find_plugin_file(const char* file_name) {
  PluginSearch search;
  std::error_code ignored;
  for (const fs::path& folder : search_folders()) {
    if (fs::exists(folder / file_name, ignored)) {
      search.path = folder / file_name;
      return search;
    }
    search.places += (search.places.empty() ? "" : ", ") + folder.string();
  }
  return search;
}

}  // namespace tutti::codegen
