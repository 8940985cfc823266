#include "tutti/train/checkpoint/reshard.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "tutti/core/error.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/unique_fd.h"
#include "tutti/train/checkpoint/checkpoint.h"

namespace tutti::train {
namespace fs = std::filesystem;
namespace {

constexpr size_t kLargestState = size_t{1} << 30;

// The folder that a checkpoint is written to before it has its name: one process has it at a time, as long as it lives.
// What a killed one left in it goes.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const fs::path& target)
      : path_(target.parent_path() / (kUnfinished + target.filename().string())) {
    while (!claim(target)) {
    }
    for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
  }
  // Unless it has been renamed, it is deleted.
  ~UnfinishedFolder() {
    std::error_code ignored;
    if (!is_renamed_) fs::remove_all(path_, ignored);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  const fs::path& path() const { return path_; }
  void rename_to(const fs::path& target) {
    fs::rename(path_, target);
    is_renamed_ = true;
  }

 private:
  // False when another process has renamed or deleted the folder meanwhile.
  bool claim(const fs::path& target) {
    TUTTI_CHECK(!fs::exists(target), "{} exists; give the name of a new folder, which the checkpoint is written to",
                target.string());
    fs::create_directory(path_);
    lock_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!lock_ && errno == ENOENT) return false;
    TUTTI_CHECK_ENV(static_cast<bool>(lock_), "cannot open {}: {}", path_.string(), detail::errno_text(errno));
    int locks;
    do locks = flock(lock_.get(), LOCK_EX | LOCK_NB);
    while (locks != 0 && errno == EINTR);
    TUTTI_CHECK_ENV(locks == 0 || errno == EWOULDBLOCK,
                    "cannot lock {}: {}; give a folder on a file system that has locks (flock)", path_.string(),
                    detail::errno_text(errno));
    TUTTI_CHECK(locks == 0,
                "another process is writing {} at this moment, in {}; wait for it, or give the name of another folder",
                target.string(), path_.string());
    struct stat locked, named;
    TUTTI_CHECK_ENV(fstat(lock_.get(), &locked) == 0, "cannot look at {}: {}", path_.string(),
                    detail::errno_text(errno));
    return stat(path_.c_str(), &named) == 0 && locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
  }

  const fs::path path_;
  UniqueFd lock_;
  bool is_renamed_ = false;
};

// Writes the tensors of a set, in at most `files` files. Returns in how many.
int64_t rewrite(const fs::path& from, const fs::path& to, int64_t files) {
  const SafetensorsShards set(from);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const io::SafetensorsEntry& entry : set.entries()) tensors.emplace_back(entry.name, set.tensor(entry.name));
  write_safetensors_shards(to, tensors, set.metadata(), files);
  return files;
}

}  // namespace

Resharded reshard_checkpoint(const fs::path& from, const fs::path& to, int64_t files) {
  const fs::path source = resolve_checkpoint(from);
  const SavedState saved = read_state(source);
  fs::path target = fs::absolute(to).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "folder/"
  TUTTI_CHECK(!fs::exists(target), "{} exists; give the name of a new folder, which the checkpoint is written to",
              target.string());
  TUTTI_CHECK(fs::is_directory(target.parent_path()), "{} does not exist; make the folder in which {} is to be",
              target.parent_path().string(), target.filename().string());
  const int64_t named = step_of(target).value_or(saved.train.step);
  TUTTI_CHECK(named == saved.train.step,
              "{} is named for step {}, and {} is of step {}; name it step-{}, or anything else", target.string(),
              named, source.string(), saved.train.step, saved.train.step);
  const auto tensors = std::ssize(SafetensorsShards(source / kModelFile).entries());
  TUTTI_CHECK(files >= 1 && files <= tensors, "reshard: {} files for the {} tensors of the model; expected 1 to {}",
              files, tensors, tensors);
  const auto moments = std::ssize(SafetensorsShards(source / kOptimizerFile).entries());

  Resharded result{.step = saved.train.step, .digests = saved.digests};
  try {
    UnfinishedFolder folder(target);
    const fs::path& unfinished = folder.path();
    result.model_files = static_cast<size_t>(rewrite(source / kModelFile, unfinished / kModelFile, files));
    result.optimizer_files = static_cast<size_t>(
        rewrite(source / kOptimizerFile, unfinished / kOptimizerFile, std::clamp<int64_t>(moments, 1, files)));
    write_file_atomically((unfinished / kStateFile).string(),
                          read_regular_file((source / kStateFile).string(), kLargestState));
    sync_folder(unfinished);
    check_digests(unfinished, saved.digests);
    TUTTI_CHECK(!fs::exists(target), "{} exists by now; give the name of a new folder", target.string());
    folder.rename_to(target);
    sync_folder(target.parent_path());
  } catch (const std::exception& e) {
    if (dynamic_cast<const UsageError*>(&e) != nullptr) throw;
    throw EnvironmentError(fmt::format("{} was not written to {}: {}", source.string(), target.string(), e.what()));
  }
  return result;
}

}  // namespace tutti::train
