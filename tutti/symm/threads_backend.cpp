// threads: ranks in one address space share pointers.
#include <map>
#include <mutex>

#include "tutti/symm/backend.h"
#include "tutti/symm/memory_file.h"
#include "tutti/symm/peer_record.h"

namespace tutti::comm::symm {
namespace {

class ThreadsBackend final : public Backend {
 public:
  const BackendTraits& traits() const override {
    static const BackendTraits traits{.name = "threads", .reaches_processes = false};
    return traits;
  }

  std::shared_ptr<Block> allocate(int64_t nbytes, Device) override {
    auto block = FileBlock::create(nbytes);
    block->close_fd();  // pointers are all that is passed on
    const std::lock_guard lock(mutex_);
    std::erase_if(blocks_, [](const auto& entry) { return entry.second.expired(); });
    blocks_[++last_] = block;
    return block;
  }

  std::string ticket(const Block& block) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, entry] : blocks_) {
      if (entry.lock().get() == &block) return std::to_string(number);
    }
    throw InternalError("threads: an unknown block");
  }

  std::vector<std::shared_ptr<Block>> exchange(const Meeting& meeting, const std::shared_ptr<Block>&) override {
    std::vector<std::shared_ptr<Block>> blocks;
    for (size_t r = 0; r < meeting.peers.size(); ++r) {
      TUTTI_CHECK(meeting.peers[r].process == process_token(),
                  "backend threads: rank {} is in process {}, rank {} in another; use backend native", r,
                  meeting.peers[r].pid, meeting.group.rank());
      const std::lock_guard lock(mutex_);
      blocks.push_back(blocks_.at(std::stoull(meeting.peers[r].ticket)).lock());
    }
    return blocks;
  }

 private:
  std::mutex mutex_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::weak_ptr<Block>> blocks_;
};

}  // namespace

TUTTI_SYMM_BACKEND(threads, ThreadsBackend);

}  // namespace tutti::comm::symm
