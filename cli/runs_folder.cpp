#include "cli/runs_folder.h"

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "tutti/core/error.h"

namespace tutti::cli {

namespace fs = std::filesystem;

RunsFolder::RunsFolder(const std::string& keep, const std::string& prefix) : is_kept_(!keep.empty()) {
  if (is_kept_) {
    path_ = keep;
    std::error_code failed;
    fs::create_directories(path_, failed);
    TUTTI_CHECK_ENV(!failed, "cannot make the folder {}: {}", keep, failed.message());
    TUTTI_CHECK(fs::is_empty(path_), "{} is not empty; the runs need a folder of their own", keep);
    return;
  }
  std::string name = (fs::temp_directory_path() / (prefix + "-XXXXXX")).string();
  TUTTI_CHECK_ENV(mkdtemp(name.data()) != nullptr, "cannot make a folder {}: {}", name, detail::errno_text(errno));
  path_ = name;
}

RunsFolder::~RunsFolder() { remove(); }

void RunsFolder::remove() const {
  std::error_code none;
  if (!is_kept_) fs::remove_all(path_, none);
}

}  // namespace tutti::cli
