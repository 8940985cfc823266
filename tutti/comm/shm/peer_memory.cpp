#include "tutti/comm/shm/peer_memory.h"

#include <sys/random.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// Copies the bytes, and the word at `secret_at` in the call that brings the last of them. 0, or the number of the
// error.
int read_process(pid_t pid, uint64_t address, std::byte* to, int64_t bytes, uint64_t secret_at, uint64_t& secret) {
  for (;;) {
    const iovec local[] = {{.iov_base = to, .iov_len = static_cast<size_t>(bytes)},
                           {.iov_base = &secret, .iov_len = sizeof secret}};
    const iovec remote[] = {{.iov_base = reinterpret_cast<void*>(address), .iov_len = static_cast<size_t>(bytes)},
                            {.iov_base = reinterpret_cast<void*>(secret_at), .iov_len = sizeof secret}};
    const ssize_t got = process_vm_readv(pid, local, 2, remote, 2, 0);
    if (got < 0) return errno;
    if (got == bytes + static_cast<ssize_t>(sizeof secret)) return 0;
    if (got == 0 || got >= bytes) return EFAULT;
    to += got;
    address += static_cast<uint64_t>(got);
    bytes -= got;
  }
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
    is_open_ =
        is_open_ && segment_->area(p).readable.load(std::memory_order_acquire) == everybody(segment_->world_size());
  }
}

void PeerMemory::try_all() {
  uint64_t readable = 0;
  for (int p = 0; allowed_ && p < segment_->world_size(); ++p) {
    const RankArea& peer = segment_->area(p);
    uint64_t found = 0;
    const int error = p == rank_ ? 0
                                 : read_process(peer.pid.load(std::memory_order_acquire), peer.secret_at, nullptr, 0,
                                                peer.secret_at, found);
    if (p == rank_) found = secret_;
    if (error != 0 || found != peer.secret || found == 0) break;
    readable |= uint64_t{1} << p;
  }
  segment_->area(rank_).readable.store(readable, std::memory_order_release);
}

std::string PeerMemory::read(int peer, uint64_t address, std::byte* to, int64_t bytes, bool& is_gone) const {
  const RankArea& area = segment_->area(peer);
  uint64_t found = 0;
  const int error = read_process(area.pid.load(std::memory_order_relaxed), address, to, bytes, area.secret_at, found);
  // Its number may be that of another process by now, which does not know the secret.
  is_gone = error == ESRCH || (error == 0 && found != area.secret);
  if (is_gone) return detail::errno_text(ESRCH);
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
    const int error = read_process(self, 0, nullptr, 0, reinterpret_cast<uint64_t>(&word), found);
    _exit(error != 0 ? error : found == 0x7475747469 ? 0 : EPERM);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return "process_vm_readv ends the process that calls it";
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("process_vm_readv: {}", detail::errno_text(WEXITSTATUS(status)));
}

}  // namespace tutti::comm
