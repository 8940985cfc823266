#include "tutti/comm/shm/peer_memory.h"

#include <sys/random.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// 0, or the number of the error.
int read_process(pid_t pid, uint64_t address, std::byte* to, int64_t bytes) {
  while (bytes > 0) {
    const iovec local{.iov_base = to, .iov_len = static_cast<size_t>(bytes)};
    const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = static_cast<size_t>(bytes)};
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got < 0) return errno;
    if (got == 0) return EFAULT;
    to += got;
    address += static_cast<uint64_t>(got);
    bytes -= got;
  }
  return 0;
}

uint64_t everybody(int ranks) { return ranks == kMaxShmRanks ? ~uint64_t{0} : (uint64_t{1} << ranks) - 1; }

}  // namespace

PeerMemory::PeerMemory(std::shared_ptr<Segment> segment, int rank, bool allowed)
    : segment_(std::move(segment)), rank_(rank), allowed_(allowed) {
  RankArea& own = segment_->area(rank_);
  // A process that is not the peer, but has its number somewhere else, does not know the secret.
  if (getrandom(&secret_, sizeof secret_, GRND_NONBLOCK) != sizeof secret_) secret_ = 0;
  own.secret = secret_;
  own.secret_at = reinterpret_cast<uint64_t>(&secret_);
}

void PeerMemory::settle(uint64_t meeting) {
  if (meeting == 1) return try_all();
  is_open_ = true;
  for (int p = 0; p < segment_->world_size(); ++p) {
    is_open_ = is_open_ && segment_->area(p).readable.load(std::memory_order_acquire) == everybody(segment_->world_size());
  }
}

void PeerMemory::try_all() {
  uint64_t readable = 0;
  for (int p = 0; allowed_ && p < segment_->world_size(); ++p) {
    const RankArea& peer = segment_->area(p);
    uint64_t found = 0;
    const int error = p == rank_ ? 0 : read_process(peer.pid.load(std::memory_order_acquire), peer.secret_at, reinterpret_cast<std::byte*>(&found), sizeof found);
    if (p == rank_) found = secret_;
    if (error != 0 || found != peer.secret || found == 0) break;
    readable |= uint64_t{1} << p;
  }
  segment_->area(rank_).readable.store(readable, std::memory_order_release);
}

std::string PeerMemory::read(int peer, uint64_t address, std::byte* to, int64_t bytes, bool& is_gone) const {
  const int error = read_process(segment_->area(peer).pid.load(std::memory_order_relaxed), address, to, bytes);
  is_gone = error == ESRCH;
  return error == 0 ? "" : detail::errno_text(error);
}

std::string why_no_peer_memory() {
  static std::atomic<uint64_t> word{0x7475747469};
  const pid_t self = getpid(), child = fork();
  if (child < 0) return fmt::format("no process to try it with: {}", detail::errno_text(errno));
  if (child == 0) {
    // A child is no ancestor of its parent, just as ranks are not of each other.
    uint64_t found = 0;
    word.store(0);
    const int error = read_process(self, reinterpret_cast<uint64_t>(&word), reinterpret_cast<std::byte*>(&found), sizeof found);
    _exit(error != 0 ? error : found == 0x7475747469 ? 0 : EPERM);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return "process_vm_readv ends the process that calls it";
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("process_vm_readv: {}", detail::errno_text(WEXITSTATUS(status)));
}

}  // namespace tutti::comm
