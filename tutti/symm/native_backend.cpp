// native: memory files whose descriptors the ranks of a host give each other.
#include "tutti/job/host/fd_passing.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/memory_file.h"

namespace tutti::comm::symm {
namespace {

class NativeBackend final : public Backend {
 public:
  const BackendTraits& traits() const override {
    static const BackendTraits traits{.name = "native"};
    return traits;
  }

  std::shared_ptr<Block> allocate(int64_t nbytes, Device) override { return FileBlock::create(nbytes); }
  std::string ticket(const Block&) override { return ""; }

  std::vector<std::shared_ptr<Block>> exchange(const Meeting& meeting, const std::shared_ptr<Block>& own) override {
    const auto file = std::static_pointer_cast<FileBlock>(own);
    const int rank = meeting.group.rank(), size = meeting.group.size();
    std::vector<UniqueFd> fds = all_gather_fds(*meeting.group.store(), meeting.key + "/blocks", rank, size, file->fd(),
                                               meeting.deadline, meeting.look_around);
    std::vector<std::shared_ptr<Block>> blocks;
    for (int r = 0; r < size; ++r) {
      if (r == rank) {
        blocks.push_back(own);
        continue;
      }
      auto peer = FileBlock::map(std::move(fds[static_cast<size_t>(r)]), own->nbytes);
      peer->close_fd();
      blocks.push_back(std::move(peer));
    }
    return blocks;
  }
};

}  // namespace

TUTTI_SYMM_BACKEND(native, NativeBackend);

}  // namespace tutti::comm::symm
