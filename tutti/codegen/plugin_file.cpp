#include "tutti/codegen/plugin_file.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <vector>

namespace tutti::codegen {
namespace {

namespace fs = std::filesystem;

// Where the linker looks for what a loaded program or library needs: LD_LIBRARY_PATH, its run path (what links an
// installed Tutti gets one, tutti/CMakeLists.txt), the system's folders. Asking for the list opens nothing.
std::vector<fs::path> searched_for(void* handle) {
  Dl_serinfo size;
  if (handle == nullptr || dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  std::vector<Dl_serinfo> memory(size.dls_size / sizeof(Dl_serinfo) + 1);  // ends with text of varying length
  Dl_serinfo* info = memory.data();
  std::vector<fs::path> folders;
  if (dlinfo(handle, RTLD_DI_SERINFOSIZE, info) != 0 || dlinfo(handle, RTLD_DI_SERINFO, info) != 0) return {};
  for (unsigned k = 0; k < info->dls_cnt; ++k) folders.emplace_back(info->dls_serpath[k].dls_name);
  return folders;
}

// The program or shared library that this code is linked into, as the dynamic linker knows it. Its own data tells: a
// function of the same name may be another library's.
class Home {
 public:
  Home() {
    static const char own = 0;
    Dl_info info;
    link_map* map = nullptr;
    if (!dladdr1(&own, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) || map == nullptr) return;
    const bool is_program = map->l_name[0] == '\0';
    handle_ = dlopen(is_program ? nullptr : map->l_name, RTLD_LAZY | RTLD_NOLOAD);
    file_ = is_program ? "" : fs::path(map->l_name).filename();
  }
  ~Home() {
    if (handle_) dlclose(handle_);
  }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

  // The folder that it was loaded from, and the one that a link there leads to. The linker noted it when it was loaded:
  // the path it was given may be relative, and the working folder another one now.
  std::vector<fs::path> folders() const {
    char origin[PATH_MAX + 1];
    if (handle_ == nullptr || file_.empty() || dlinfo(handle_, RTLD_DI_ORIGIN, origin) != 0) return {};
    std::error_code ignored;
    return {origin, fs::weakly_canonical(fs::path(origin) / file_, ignored).parent_path()};
  }
  std::vector<fs::path> searched() const { return searched_for(handle_); }

 private:
  void* handle_ = nullptr;
  fs::path file_;  // empty: the program
};

std::vector<fs::path> search_folders() {
  const Home home;
  std::error_code ignored;
  std::vector<fs::path> homes = home.folders();
  homes.push_back(fs::read_symlink("/proc/self/exe", ignored).parent_path());
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& folder) {
    if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  for (const fs::path& folder : homes) add(folder);
  for (const fs::path& folder : homes) add(folder.parent_path() / TUTTI_LIBDIR);
  for (const fs::path& folder : home.searched()) add(folder);
  for (const fs::path& folder : searched_for(dlopen(nullptr, RTLD_LAZY))) add(folder);
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
