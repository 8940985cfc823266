// Connection: an allocation as shared with a group by a rendezvous, with the blocks and pads of all ranks mapped into
// this process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/symm/allocation_record.h"
#include "tutti/symm/memory_file.h"
#include "tutti/symm/signal_pad.h"

namespace tutti::comm::symm {

// Which channels of a connection are leased.
class ChannelPool {
 public:
  explicit ChannelPool(int channels) : leased_(static_cast<size_t>(channels)) {}
  // The highest free one, or -1.
  int lease();
  void release(int channel);

 private:
  std::mutex mutex_;
  std::vector<bool> leased_;
};

class Connection {
 public:
  std::shared_ptr<Allocation> allocation;  // of this rank
  uint64_t generation = 0;                 // of its tensor
  int64_t number = 0;                      // of the rendezvous in the group: the same on all ranks
  int own_rank = 0;
  std::vector<std::shared_ptr<Block>> blocks;        // by rank
  std::vector<uint64_t> generations;                 // of the peers' tensors, at rendezvous
  std::vector<std::shared_ptr<FileBlock>> own_pads;  // by rank where they are not inside the blocks; else empty
  std::shared_ptr<ChannelPool> channels;
  std::unique_ptr<SignalPads> pads;  // null: the backend signals by itself, or not at all

  std::byte* data(int rank) const {
    std::byte* base = blocks[static_cast<size_t>(rank)]->base;
    return base == nullptr ? nullptr : base + allocation->data_offset;
  }
  // Whether the memory of `rank` is still what it was at rendezvous.
  bool is_current(int rank) const;
  // Whether a new tensor lives on it, to which the pad inside the block belongs now.
  bool is_reused(int rank) const;

  // All ranks' data side by side, made on first use. Bytes from one rank to the next: view_stride().
  std::byte* contiguous_view();
  int64_t view_stride() const { return round_up(std::max<int64_t>(allocation->data_bytes, 1), kPageBytes); }

  ~Connection();

 private:
  std::mutex mutex_;
  std::unique_ptr<AddressRange> view_;
};

}  // namespace tutti::comm::symm
