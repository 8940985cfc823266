// The part of ShmTransport that has the kernel copy offers out of the processes of peers.
#include <algorithm>
#include <cstring>

#include "tutti/comm/shm/shm_transport.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// Below this, for one peer, two copies beat a call of the kernel and waiting until the peers have made theirs.
constexpr int64_t kPulledBytes = 256 << 10;
// Below this, they do so where the bytes still stand in the caches of the owner's core, which the kernel's copy gets
// out slowly, and where the owner, who has nothing else to do, can copy a part while its peers copy the one before.
constexpr int64_t kPulledFreshBytes = 1536 << 10;
// Pulled offers that are added up stand in the caches of the core between the two: the blocks of all peers together,
// and of one.
constexpr int64_t kPulledBlocks = 512 << 10, kLargestPulledBlock = 128 << 10;
// A rank that pulls looks so often whether the group has failed.
constexpr int64_t kPulledAtOnce = 16 << 20;
constexpr int64_t kBlockUnit = 64;

bool takes_nothing(const Exchange& e, int rank, int size) {
  for (int p = 0; p < size; ++p) {
    if (p != rank && e.take_from(p) > 0) return false;
  }
  return true;
}

}  // namespace

// Becomes known to all ranks after the same round, so that they go on to divide reductions alike.
void ShmTransport::settle_pulling() {
  peer_memory_.settle(meeting_);
  if (peer_memory_.is_open()) traits_.one_piece_share_bytes = kPulledFreshBytes;
}

bool ShmTransport::lets_pull(Line& line, int64_t largest) {
  const Exchange& e = *exchange_;
  if (!peer_memory_.is_open() || e.overwrites_offers || largest < kPulledBytes) return false;
  if (largest < kPulledFreshBytes && (e.is_fresh || takes_nothing(e, rank_, size_))) return false;
  const auto block_of = [](const ConstBlock& offer) {
    return DirectBlock{.region = 0, .offset = reinterpret_cast<uint64_t>(offer.data)};
  };
  DirectBlock* blocks = segment_->area(rank_).blocks[meeting_ & 1];
  for (size_t p = 0; p < e.offers.size(); ++p) blocks[p] = block_of(e.offers[p]);
  if (line.one_block) std::memcpy(line.data, blocks, sizeof(DirectBlock));
  return true;
}

void ShmTransport::pull_and_deliver() {
  bool all_placed = true;
  for (int p = 0; p < size_; ++p) {
    const auto at = static_cast<size_t>(p);
    places_[at] = pulled_from_[at] == 0 ? nullptr : receiver_->place_of(p);
    all_placed &= pulled_from_[at] == 0 || places_[at] != nullptr;
  }
  if (all_placed) pull_to_places();
  else pull_in_blocks();
}

// Each rank begins with another one, so that they do not all read the same.
void ShmTransport::pull_to_places() {
  for (int i = 1; i < size_; ++i) {
    const int p = (rank_ + i) % size_;
    Arrival& arrival = arrivals_[static_cast<size_t>(p)];
    if (pulled_from_[static_cast<size_t>(p)] == 0) continue;
    std::byte* const to = places_[static_cast<size_t>(p)] + arrival.offset;
    pull(p, arrival.offset, to, arrival.bytes);
    arrival.data = to;
  }
  // Nobody needs to wait until this rank has copied its own part.
  if (!reads_in_place_) say_consumed();
  receiver_->receive(arrivals_);
}

void ShmTransport::pull_in_blocks() {
  const int64_t block = std::min(kLargestPulledBlock, kPulledBlocks / size_ / kBlockUnit * kBlockUnit);
  pulled_.resize(static_cast<size_t>(block * size_));
  const std::vector<Arrival> whole = arrivals_;
  int64_t longest = 0;
  for (const Arrival& arrival : whole) longest = std::max(longest, arrival.bytes);
  for (int64_t begin = 0; begin < longest; begin += block) {
    for (int p = 0; p < size_; ++p) {
      const Arrival& all = whole[static_cast<size_t>(p)];
      Arrival& part = arrivals_[static_cast<size_t>(p)];
      part = {.bytes = std::clamp<int64_t>(all.bytes - begin, 0, block), .offset = all.offset + begin};
      if (part.bytes == 0) continue;
      if (pulled_from_[static_cast<size_t>(p)] == 0) {
        part.data = all.data + begin;
        continue;
      }
      std::byte* const to = pulled_.data() + p * block;
      pull(p, part.offset, to, part.bytes);
      part.data = to;
    }
    receiver_->receive(arrivals_);
  }
}

// Has the kernel copy bytes of a peer's offer. A peer that gives up takes its memory back, but has failed the group
// before: what was read while the group was whole is right.
void ShmTransport::pull(int peer, int64_t offset, std::byte* to, int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += kPulledAtOnce) {
    bool is_gone = false;
    const std::string why =
        peer_memory_.read(peer, pulled_from_[static_cast<size_t>(peer)] + static_cast<uint64_t>(offset + done),
                          to + done, std::min(kPulledAtOnce, bytes - done), is_gone);
    std::atomic_thread_fence(std::memory_order_acquire);
    leave_if_failed();
    if (why.empty()) continue;
    const std::string who = describe(watch_.shown(peer), watch_.peer(peer));
    const std::string what =
        is_gone ? fmt::format("{} died (its process is gone) while rank {} waited for it", who, watch_.shown(rank_))
                : fmt::format("{} bytes at {:#x} of {} cannot be read (process_vm_readv: {}) by rank {}", bytes,
                              pulled_from_[static_cast<size_t>(peer)] + static_cast<uint64_t>(offset), who, why,
                              watch_.shown(rank_));
    fail(fmt::format("{} in {} #{} of group '{}'", what, name_of(call_->kind), call_->sequence, options_.group));
    leave_if_failed();
  }
}

}  // namespace tutti::comm
