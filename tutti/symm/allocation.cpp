#include "tutti/symm/allocation.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "tutti/runtime/rank_context.h"
#include "tutti/symm/allocation_record.h"
#include "tutti/symm/group_state.h"
#include "tutti/symm/memory_file.h"
#include "tutti/symm/signal_pad.h"

namespace tutti::comm::symm {
namespace {

// Addresses of this process under which tensors on symmetric memory lie.
class AddressTable {
 public:
  static AddressTable& of_process() {
    static AddressTable& table = *new AddressTable;  // outlives tensors in static objects
    return table;
  }
  void insert(const std::shared_ptr<Allocation>& allocation) {
    const std::lock_guard lock(mutex_);
    entries_[allocation->data()] = allocation;
  }
  void erase(const Allocation& allocation) {
    const std::lock_guard lock(mutex_);
    entries_.erase(allocation.data());
  }
  // An empty view may lie at the very end.
  std::shared_ptr<Allocation> find(const std::byte* address, bool is_empty) {
    const std::lock_guard lock(mutex_);
    auto after = entries_.upper_bound(address);
    if (after == entries_.begin()) return nullptr;
    std::shared_ptr<Allocation> allocation = std::prev(after)->second.lock();
    if (!allocation) return nullptr;
    const int64_t offset = address - allocation->data();
    return offset < std::max<int64_t>(allocation->data_bytes, 1) + (is_empty ? 1 : 0) ? allocation : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::weak_ptr<Allocation>> entries_;
};

// Memory that is kept for its id, per rank.
struct PersistentMemory {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Allocation>> by_id;
};

std::atomic<uint64_t>& allocation_counter() {
  static std::atomic<uint64_t> counter{0};
  return counter;
}

int64_t bytes_of(const Extents& sizes, DType dtype) {
  const int64_t numel = numel_of(sizes);
  int64_t nbytes = 0;
  TUTTI_CHECK(!__builtin_mul_overflow(numel, itemsize(dtype), &nbytes) && nbytes < (int64_t{1} << 61),
              "empty_strided_p2p: {} elements of {} are more bytes than an address can name", numel, name_of(dtype));
  return nbytes;
}

void check_strides(const Extents& sizes, const Extents& strides, int64_t numel) {
  TUTTI_CHECK(sizes.ndim() == strides.ndim(), "empty_strided_p2p: sizes {} and strides {} differ in length", sizes,
              strides);
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    TUTTI_CHECK(sizes[d] >= 0 && strides[d] >= 0,
                "empty_strided_p2p: sizes {} and strides {}; negative ones are not allowed", sizes, strides);
    int64_t reach = 0;
    TUTTI_CHECK(numel == 0 || (!__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) &&
                               !__builtin_add_overflow(last, reach, &last)),
                "empty_strided_p2p: sizes {} with strides {} are too large", sizes, strides);
  }
  TUTTI_CHECK(
      numel == 0 || last < numel,
      "empty_strided_p2p: sizes {} with strides {} reach element {}, but the memory has the {} elements that the "
      "sizes ask for; strides do not enlarge it",
      sizes, strides, last, numel);
}

std::shared_ptr<Allocation> new_allocation(Device device, int64_t nbytes, const AllocationOptions& options) {
  const std::string name = options.group              ? options.group.backend()
                           : !options.backend.empty() ? options.backend
                                                      : default_backend_name();
  Backend& backend = find_backend(name);
  backend.open();
  TUTTI_CHECK(device.kind == backend.traits().device, "empty_strided_p2p: backend {} has memory on {}, not on {}", name,
              to_string(Device{backend.traits().device, 0}), to_string(device));
  return std::make_shared<Allocation>(backend, device, nbytes, options.signal_pad_bytes);
}

std::shared_ptr<Allocation> persistent_allocation(Device device, int64_t nbytes, const AllocationOptions& options) {
  PersistentMemory& memory = RankContext::current().slot<PersistentMemory>();
  const std::lock_guard lock(memory.mutex);
  std::shared_ptr<Allocation>& entry = memory.by_id[*options.alloc_id];
  if (!entry) {
    try {
      entry = new_allocation(device, nbytes, options);
    } catch (...) {
      memory.by_id.erase(*options.alloc_id);
      throw;
    }
    return entry;
  }
  TUTTI_CHECK(entry->generation() == 0, "empty_strided_p2p: a tensor with alloc_id {} is still alive",
              *options.alloc_id);
  TUTTI_CHECK(
      entry->data_bytes == nbytes && entry->device == device && entry->pad_slot_bytes == options.signal_pad_bytes,
      "empty_strided_p2p: alloc_id {} was made with {} bytes on {} and {} bytes of signals; now {} bytes on {} and "
      "{} are asked for",
      *options.alloc_id, entry->data_bytes, to_string(entry->device), entry->pad_slot_bytes, nbytes, to_string(device),
      options.signal_pad_bytes);
  return entry;
}

}  // namespace

Allocation::Allocation(Backend& maker, Device where, int64_t nbytes, int64_t signal_pad_bytes)
    : backend(maker),
      device(where),
      number(allocation_counter().fetch_add(1) + 1),
      data_bytes(nbytes),
      pad_slot_bytes(signal_pad_bytes),
      // A page even for zero bytes: every allocation has an address of its own.
      block(maker.allocate(
          round_up(static_cast<int64_t>(sizeof(BlockHeader)) + pad_bytes_with_header(signal_pad_bytes), kPageBytes) +
              round_up(std::max<int64_t>(nbytes, 1), kPageBytes),
          where)),
      data_offset(
          round_up(static_cast<int64_t>(sizeof(BlockHeader)) + pad_bytes_with_header(signal_pad_bytes), kPageBytes)) {
  if (!maker.traits().host_access) return;
  BlockHeader* header = new (block->base) BlockHeader{};
  header->pad_offset = sizeof(BlockHeader);
  header->data_offset = data_offset;
  header->data_bytes = nbytes;
  header->magic = kBlockMagic;
}

std::byte* Allocation::pad() const { return block->base + sizeof(BlockHeader); }

void Allocation::begin_generation(const SymmGroup& for_group) {
  const std::lock_guard lock(mutex_);
  ++generations_;
  pad_owner_ = nullptr;
  users_.clear();
  group.reset();
  ordinal = 0;
  if (for_group) {
    group = for_group.state();
    const std::lock_guard group_lock(for_group.state()->mutex);
    ordinal = ++for_group.state()->allocations;
  }
  if (backend.traits().host_access) {
    header().ordinal = ordinal;
    header().generation.store(generations_, std::memory_order_release);
  }
  live_.store(generations_, std::memory_order_release);
}

void Allocation::end_generation() {
  if (process_.is_in_child()) return;  // the parent still has its tensor
  std::vector<std::weak_ptr<GroupState>> users;
  {
    const std::lock_guard lock(mutex_);
    live_.store(0, std::memory_order_release);
    if (backend.traits().host_access) header().generation.store(0, std::memory_order_release);
    users.swap(users_);
  }
  for (const auto& user : users) {
    if (const auto state = user.lock()) state->forget(number);
  }
}

bool Allocation::claim_pad(const GroupState& claimer) {
  const std::lock_guard lock(mutex_);
  if (!backend.traits().host_access || (pad_owner_ != nullptr && pad_owner_ != &claimer)) return false;
  pad_owner_ = &claimer;
  return true;
}

void Allocation::remember(const std::shared_ptr<GroupState>& user) {
  const std::lock_guard lock(mutex_);
  users_.push_back(user);
}

Tensor empty_strided_p2p(const Extents& sizes, const Extents& strides, DType dtype, Device device,
                         const AllocationOptions& options) {
  const int64_t nbytes = bytes_of(sizes, dtype);
  check_strides(sizes, strides, numel_of(sizes));
  TUTTI_CHECK(
      options.signal_pad_bytes > 0 && options.signal_pad_bytes % 64 == 0 && options.signal_pad_bytes <= (1 << 30),
      "empty_strided_p2p: signal_pad_bytes is {}; expected a positive multiple of 64 up to 1 GiB",
      options.signal_pad_bytes);
  const std::shared_ptr<Allocation> allocation =
      options.alloc_id ? persistent_allocation(device, nbytes, options) : new_allocation(device, nbytes, options);
  allocation->begin_generation(options.group);
  AddressTable::of_process().insert(allocation);
  const auto release = [allocation] {
    AddressTable::of_process().erase(*allocation);
    allocation->end_generation();
  };
  return Tensor::over(StorageRef::adopt(Storage::wrap(allocation->data(), nbytes, device, release)), sizes, strides, 0,
                      dtype);
}

Tensor empty_symm(const Extents& sizes, DType dtype, Device device, const AllocationOptions& options) {
  return empty_strided_p2p(sizes, contiguous_strides(sizes), dtype, device, options);
}

uint64_t next_alloc_id() {
  static std::atomic<uint64_t> counter{0};
  return counter.fetch_add(1) + 1;
}

std::shared_ptr<Allocation> find_allocation(const Tensor& t) {
  if (!t.defined()) return nullptr;
  return AddressTable::of_process().find(static_cast<const std::byte*>(t.raw_data()), t.numel() == 0);
}

bool is_symm_mem_tensor(const Tensor& t) { return find_allocation(t) != nullptr; }

}  // namespace tutti::comm::symm
