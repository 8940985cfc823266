#include "tutti/symm/handle.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/job/deadline.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/connection.h"
#include "tutti/symm/group_state.h"

namespace tutti::comm::symm {
namespace {

// Bytes from the first to behind the last element of sizes and strides; UsageError when that overflows.
int64_t span_bytes(const char* call, const Extents& sizes, const Extents& strides, DType dtype) {
  TUTTI_CHECK(sizes.ndim() == strides.ndim(), "{}: sizes {} and strides {} differ in length", call, sizes, strides);
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    TUTTI_CHECK(sizes[d] >= 0 && strides[d] >= 0, "{}: sizes {}, strides {}; negative ones are not allowed", call,
                sizes, strides);
  }
  if (numel_of(sizes) == 0) return 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t reach = 0;
    TUTTI_CHECK(
        !__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) && !__builtin_add_overflow(last, reach, &last),
        "{}: sizes {}, strides {} are too large", call, sizes, strides);
  }
  int64_t nbytes = 0;
  TUTTI_CHECK(!__builtin_add_overflow(last, 1, &last) && !__builtin_mul_overflow(last, itemsize(dtype), &nbytes),
              "{}: sizes {}, strides {} are too large", call, sizes, strides);
  return nbytes;
}

int64_t bytes_of_offset(const char* call, int64_t offset, DType dtype) {
  TUTTI_CHECK(offset >= 0, "{}: offset {} is negative", call, offset);
  int64_t nbytes = 0;
  TUTTI_CHECK(!__builtin_mul_overflow(offset, itemsize(dtype), &nbytes), "{}: offset {} is too large", call, offset);
  return nbytes;
}

}  // namespace

ChannelLease::ChannelLease(std::shared_ptr<ChannelPool> pool, int channel)
    : pool_(std::move(pool)), channel_(channel) {}
ChannelLease::~ChannelLease() {
  if (pool_) pool_->release(channel_);
}

SymmHandle::SymmHandle(std::shared_ptr<Connection> connection, const SymmGroup& group, int64_t offset)
    : connection_(std::move(connection)),
      group_(group.state()),
      group_name_(group.name()),
      timeout_(group.timeout()),
      rank_(group.rank()),
      global_ranks_(group.global_ranks()),
      offset_(offset) {}

SymmHandle::~SymmHandle() = default;

std::string SymmHandle::title() const {
  return fmt::format("symmetric memory group '{}', rank {} of {}", group_name_, rank_, world_size());
}

SymmGroup SymmHandle::group() const {
  SymmGroup group(group_.lock());
  TUTTI_CHECK(group, "{}: the group is gone", title());
  return group;
}

Device SymmHandle::device() const { return connection_->allocation->device; }
std::string SymmHandle::backend() const { return connection_->allocation->backend.traits().name; }
int64_t SymmHandle::buffer_size() const { return connection_->allocation->data_bytes; }
int64_t SymmHandle::signal_pad_size() const { return connection_->allocation->pad_slot_bytes; }

std::vector<void*> SymmHandle::buffer_ptrs() const {
  std::vector<void*> pointers;
  for (int r = 0; r < world_size(); ++r) pointers.push_back(connection_->data(r));
  return pointers;
}

std::vector<void*> SymmHandle::signal_pad_ptrs() const {
  std::vector<void*> pointers;
  for (int r = 0; r < world_size(); ++r) pointers.push_back(connection_->pads ? connection_->pads->slots(r) : nullptr);
  return pointers;
}

bool SymmHandle::world_within_direct_access() const {
  for (int r = 0; r < world_size(); ++r) {
    if (connection_->data(r) == nullptr) return false;
  }
  return true;
}

void SymmHandle::check_rank(const char* call, int rank) const {
  TUTTI_CHECK(rank >= 0 && rank < world_size(), "{}: {}: rank {}; ranks are 0 to {}", title(), call, rank,
              world_size() - 1);
}

void SymmHandle::check_pad(const char* call, int rank) const {
  if (rank < 0 || rank >= world_size()) return;  // the call itself complains
  TUTTI_CHECK(!connection_->is_reused(rank),
              "{}: {}: rank {} has freed the tensor that was met with, and its memory has a new "
              "one; use the handle of that",
              title(), call, rank);
}

std::byte* SymmHandle::address(const char* call, int rank) const {
  if (process_.is_in_child()) [[unlikely]]
    process_.check(title());
  check_rank(call, rank);
  std::byte* data = connection_->data(rank);
  TUTTI_CHECK(data != nullptr, "{}: {}: the memory of rank {} cannot be reached by load and store with backend {}",
              title(), call, rank, backend());
  TUTTI_CHECK(connection_->is_current(rank),
              "{}: {}: rank {} has freed the tensor that was met with; allocate and rendezvous again on all ranks",
              title(), call, rank);
  return data;
}

void SymmHandle::check_range(const char* call, int64_t byte_offset, int64_t nbytes, DType dtype) const {
  int64_t end = 0;
  TUTTI_CHECK(byte_offset >= 0 && !__builtin_add_overflow(byte_offset, nbytes, &end) && end <= buffer_size(),
              "{}: {}: bytes {} to {} of an allocation of {} bytes", title(), call, byte_offset,
              static_cast<double>(byte_offset) + static_cast<double>(nbytes), buffer_size());
  TUTTI_CHECK(byte_offset % itemsize(dtype) == 0, "{}: {}: byte {} is no place for elements of {}, which have {} bytes",
              title(), call, byte_offset, name_of(dtype), itemsize(dtype));
}

Tensor SymmHandle::view(const char* call, int rank, int64_t byte_offset, const Extents& sizes, const Extents& strides,
                        DType dtype) const {
  std::byte* data = address(call, rank);
  const int64_t nbytes = span_bytes(call, sizes, strides, dtype);
  check_range(call, byte_offset, nbytes, dtype);
  Storage* storage = Storage::wrap(data + byte_offset, nbytes, device(), [kept = connection_] {});
  return Tensor::over(StorageRef::adopt(storage), sizes, strides, 0, dtype);
}

Tensor SymmHandle::get_buffer(int rank, const Extents& sizes, DType dtype, int64_t storage_offset) const {
  const int64_t begin = bytes_of_offset("get_buffer", storage_offset, dtype);
  return view("get_buffer", rank, begin, sizes, contiguous_strides(sizes), dtype);
}

Tensor SymmHandle::get_remote_tensor(int peer, const Extents& sizes, DType dtype) const {
  return view("get_remote_tensor", peer, offset_, sizes, contiguous_strides(sizes), dtype);
}

Tensor SymmHandle::get_remote_strided(int peer, const Extents& sizes, const Extents& strides, DType dtype) const {
  return view("get_remote_strided", peer, offset_, sizes, strides, dtype);
}

Tensor SymmHandle::get_signal_pad(int rank, const std::optional<Extents>& sizes, DType dtype,
                                  int64_t storage_offset) const {
  constexpr const char* kCall = "get_signal_pad";
  check_rank(kCall, rank);
  TUTTI_CHECK(connection_->pads != nullptr, "{}: {}: backend {} has no pads in memory", title(), kCall, backend());
  const int64_t begin = bytes_of_offset(kCall, storage_offset, dtype);
  const int64_t bytes = signal_pad_size();
  const Extents shape = sizes ? *sizes : Extents{std::max<int64_t>(bytes - begin, 0) / itemsize(dtype)};
  const int64_t nbytes = span_bytes(kCall, shape, contiguous_strides(shape), dtype);
  int64_t end = 0;
  TUTTI_CHECK(!__builtin_add_overflow(begin, nbytes, &end) && end <= bytes,
              "{}: {}: offset {} and sizes {} of {} in a pad of {} bytes", title(), kCall, storage_offset, shape,
              name_of(dtype), bytes);
  Storage* storage = Storage::wrap(connection_->pads->slots(rank) + begin, nbytes, kCpu, [kept = connection_] {});
  return Tensor::over(StorageRef::adopt(storage), shape, contiguous_strides(shape), 0, dtype);
}

Tensor SymmHandle::contiguous_view(const Extents& sizes, const Extents& strides, DType dtype) const {
  constexpr const char* kCall = "contiguous_view";
  TUTTI_CHECK(connection_->allocation->backend.traits().contiguous_view,
              "{}: {}: backend {} has no contiguous views; native and threads have", title(), kCall, backend());
  for (int r = 0; r < world_size(); ++r) address(kCall, r);
  check_range(kCall, offset_, span_bytes(kCall, sizes, strides, dtype), dtype);
  Extents all_sizes = sizes, all_strides = strides;
  all_sizes.insert(0, world_size());
  all_strides.insert(0, connection_->view_stride() / itemsize(dtype));
  Storage* storage = Storage::wrap(connection_->contiguous_view(), connection_->view_stride() * world_size(), device(),
                                   [kept = connection_] {});
  return Tensor::over(StorageRef::adopt(storage), all_sizes, all_strides, offset_ / itemsize(dtype), dtype);
}

std::chrono::steady_clock::time_point SymmHandle::deadline(Timeout timeout) const {
  const auto limit = timeout.value_or(timeout_);
  TUTTI_CHECK(limit.count() >= 0, "{}: a timeout of {} ms", title(), limit.count());
  return deadline_after(limit);
}

int SymmHandle::channels() const { return connection_->pads ? connection_->pads->channels() : 1; }

ChannelLease SymmHandle::lease_channel() const {
  const int channel = connection_->channels->lease();
  TUTTI_CHECK(channel >= 0, "{}: all {} channels are leased; allocate with a larger signal_pad_bytes", title(),
              channels());
  return ChannelLease(connection_->channels, channel);
}

void SymmHandle::barrier(int channel, Timeout timeout) const {
  Backend& backend = connection_->allocation->backend;
  backend.synchronize(device());
  check_pad("barrier", rank_);
  if (connection_->pads) return connection_->pads->barrier(channel, deadline(timeout));
  backend.barrier(group(), channel, deadline(timeout));
}

void SymmHandle::put_signal(int peer, int channel, Timeout timeout) const {
  Backend& backend = connection_->allocation->backend;
  backend.synchronize(device());
  check_pad("put_signal", peer);
  if (connection_->pads) return connection_->pads->put_signal(peer, channel, deadline(timeout));
  check_rank("put_signal", peer);
  backend.signal(group(), peer, channel, deadline(timeout));
}

void SymmHandle::wait_signal(int peer, int channel, Timeout timeout) const {
  check_pad("wait_signal", rank_);
  if (connection_->pads) return connection_->pads->wait_signal(peer, channel, deadline(timeout));
  check_rank("wait_signal", peer);
  connection_->allocation->backend.wait_signal(group(), peer, channel, deadline(timeout));
}

static SignalPads& counters(const Connection& connection, const std::string& title) {
  TUTTI_CHECK(connection.pads != nullptr, "{}: backend {} has no counting signals; native, threads and cuda have",
              title, connection.allocation->backend.traits().name);
  return *connection.pads;
}

void SymmHandle::signal_add(int peer, uint64_t amount, int channel) const {
  connection_->allocation->backend.synchronize(device());
  check_pad("signal_add", peer);
  counters(*connection_, title()).add(peer, amount, channel);
}

uint64_t SymmHandle::signal_value(int peer, int channel) const {
  return counters(*connection_, title()).value(peer, channel);
}

uint64_t SymmHandle::wait_until(int peer, uint64_t value, int channel, Timeout timeout) const {
  check_pad("wait_until", rank_);
  return counters(*connection_, title()).wait_until(peer, value, channel, deadline(timeout));
}

void SymmHandle::put(const Tensor& src, int peer, int64_t offset) const {
  std::byte* data = address("put", peer);
  TUTTI_CHECK(src.is_contiguous() && src.device() == device(), "{}: put: {} must be contiguous and on {}", title(),
              describe(src), to_string(device()));
  const int64_t begin = offset_ + bytes_of_offset("put", offset, src.dtype());
  check_range("put", begin, src.nbytes(), src.dtype());
  connection_->allocation->backend.copy(data + begin, src.raw_data(), src.nbytes(), device());
}

void SymmHandle::get(const Tensor& dst, int peer, int64_t offset) const {
  const std::byte* data = address("get", peer);
  TUTTI_CHECK(dst.is_contiguous() && dst.device() == device(), "{}: get: {} must be contiguous and on {}", title(),
              describe(dst), to_string(device()));
  const int64_t begin = offset_ + bytes_of_offset("get", offset, dst.dtype());
  check_range("get", begin, dst.nbytes(), dst.dtype());
  connection_->allocation->backend.copy(dst.raw_data(), data + begin, dst.nbytes(), device());
  dst.storage()->bump_version();
}

void SymmHandle::put_with_signal(const Tensor& src, int peer, int64_t offset, int channel) const {
  put(src, peer, offset);
  signal_add(peer, 1, channel);
}

// On the host a copy is done when put() returns, and every signal and barrier comes after it in memory.
void SymmHandle::quiet() const { connection_->allocation->backend.synchronize(device()); }
void SymmHandle::fence() const { connection_->allocation->backend.synchronize(device()); }

// No backend of this version maps multicast addresses; multicast_write reaches every rank all the same.
void* SymmHandle::multicast_ptr() const { return nullptr; }

void SymmHandle::multicast_write(const Tensor& src, int64_t offset) const {
  for (int i = 0; i < world_size(); ++i) put(src, (rank_ + i) % world_size(), offset);
}

}  // namespace tutti::comm::symm
