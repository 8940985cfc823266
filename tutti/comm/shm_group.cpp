#include "tutti/comm/shm_group.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tutti/comm/tree_sum.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

enum Op : uint32_t { kAllReduceSum, kAllReduceMax, kBroadcast, kAllGather, kBarrier };
constexpr std::array<const char*, 5> kOpNames{"all_reduce_sum", "all_reduce_max", "broadcast", "all_gather", "barrier"};

enum Dtype : uint32_t { kF32, kF64, kI64, kBytes };
constexpr std::array<const char*, 4> kDtypeNames{"f32", "f64", "i64", "bytes"};

double max_or_nan(double a, double b) {
  if (std::isnan(a)) return a;
  return std::isnan(b) || b > a ? b : a;
}

}  // namespace

ShmGroup::ShmGroup(std::shared_ptr<ShmSegment> segment, int rank, ShmGroupOptions options)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(segment_->world_size()),
      meeting_(segment_, rank, options.timeout) {}

// One meeting to have all chunks in place, one to have the result (or to free the slots). The first chunk's first
// meeting also tells whether all ranks make the same call; an empty call is that meeting alone.
void ShmGroup::run(ShmCall call, int64_t element_bytes, const Publish& publish, const Combine& combine,
                   const Finish& finish) {
  const std::string what = fmt::format("{} #{}", kOpNames[call.op], ++sequence_);
  segment_->header().ranks[rank_].calls[sequence_ % 2] = call;
  const int64_t chunk_elements = segment_->header().chunk_bytes / element_bytes;
  int64_t offset = 0;
  do {
    const Chunk chunk{.offset = offset, .count = std::min(chunk_elements, call.count - offset)};
    if (chunk.count > 0) publish(chunk);
    meeting_.wait_for_all(what);
    if (offset == 0) compare_calls();
    if (chunk.count > 0) {
      combine(chunk);
      meeting_.wait_for_all(what);
      finish(chunk);
    }
    offset += chunk.count;
  } while (offset < call.count);
}

void ShmGroup::compare_calls() const {
  const ShmCall& first = segment_->header().ranks[0].calls[sequence_ % 2];
  for (int r = 1; r < size_; ++r) {
    const ShmCall& other = segment_->header().ranks[r].calls[sequence_ % 2];
    const char* field = first.op != other.op         ? "operations"
                        : first.dtype != other.dtype ? "dtypes"
                        : first.count != other.count ? "counts"
                        : first.root != other.root   ? "roots"
                                                     : nullptr;
    TUTTI_CHECK(field == nullptr,
                "collective #{}: the {} differ: rank 0 called {}, rank {} called {}. All ranks must make the same "
                "calls in the same order",
                sequence_, field, describe(first), r, describe(other));
  }
}

std::string ShmGroup::describe(const ShmCall& call) const {
  switch (call.op) {
    case kBarrier:
      return "barrier()";
    case kBroadcast:
      return fmt::format("broadcast({} bytes, root {})", call.count, call.root);
    default:
      return fmt::format("{}({}, count {})", kOpNames[call.op], kDtypeNames[call.dtype], call.count);
  }
}

// `reduce(first, count, out)` combines elements [first, first + count) of all slots.
template <class T, class Reduce>
void ShmGroup::all_reduce(uint32_t op, uint32_t dtype, std::span<T> values, const Reduce& reduce) {
  if (size_ == 1) return;
  T* const slot = reinterpret_cast<T*>(segment_->slot(rank_));
  T* const result = reinterpret_cast<T*>(segment_->result());
  run(
      {.op = op, .dtype = dtype, .count = static_cast<int64_t>(values.size()), .root = 0}, sizeof(T),
      [&](Chunk chunk) { std::copy_n(values.data() + chunk.offset, chunk.count, slot); },
      [&](Chunk chunk) {
        const int64_t begin = chunk.count * rank_ / size_;
        const int64_t end = chunk.count * (rank_ + 1) / size_;
        if (begin < end) reduce(begin, end - begin, result + begin);
      },
      [&](Chunk chunk) { std::copy_n(result, chunk.count, values.data() + chunk.offset); });
}

void ShmGroup::all_reduce_sum_f32(std::span<float> values) {
  all_reduce(kAllReduceSum, kF32, values, [&](int64_t first, int64_t count, float* out) {
    std::array<const float*, kMaxRanks> addends;
    for (int r = 0; r < size_; ++r) addends[r] = reinterpret_cast<const float*>(segment_->slot(r)) + first;
    tree_sum_f32(std::span(addends).first(size_), count, out);
  });
}

void ShmGroup::all_reduce_sum_i64(std::span<int64_t> values) {
  all_reduce(kAllReduceSum, kI64, values, [&](int64_t first, int64_t count, int64_t* out) {
    for (int64_t i = 0; i < count; ++i) {
      uint64_t sum = 0;
      for (int r = 0; r < size_; ++r) sum += reinterpret_cast<const uint64_t*>(segment_->slot(r))[first + i];
      out[i] = static_cast<int64_t>(sum);
    }
  });
}

void ShmGroup::all_reduce_max_f64(std::span<double> values) {
  all_reduce(kAllReduceMax, kF64, values, [&](int64_t first, int64_t count, double* out) {
    for (int64_t i = 0; i < count; ++i) {
      double largest = reinterpret_cast<const double*>(segment_->slot(0))[first + i];
      for (int r = 1; r < size_; ++r) {
        largest = max_or_nan(largest, reinterpret_cast<const double*>(segment_->slot(r))[first + i]);
      }
      out[i] = largest;
    }
  });
}

void ShmGroup::broadcast(std::span<std::byte> bytes, int root) {
  TUTTI_CHECK(root >= 0 && root < size_, "broadcast: root {} in a group of {} ranks", root, size_);
  if (size_ == 1) return;
  run(
      {.op = kBroadcast, .dtype = kBytes, .count = static_cast<int64_t>(bytes.size()), .root = root}, 1,
      [&](Chunk chunk) {
        if (rank_ == root) std::memcpy(segment_->slot(root), bytes.data() + chunk.offset, chunk.count);
      },
      [&](Chunk chunk) {
        if (rank_ != root) std::memcpy(bytes.data() + chunk.offset, segment_->slot(root), chunk.count);
      },
      [](Chunk) {});
}

void ShmGroup::all_gather(std::span<const std::byte> mine, std::span<std::byte> out) {
  TUTTI_CHECK(out.size() == mine.size() * static_cast<size_t>(size_),
              "all_gather: {} output bytes for {} ranks of {} bytes; expected {}", out.size(), size_, mine.size(),
              mine.size() * static_cast<size_t>(size_));
  run(
      {.op = kAllGather, .dtype = kBytes, .count = static_cast<int64_t>(mine.size()), .root = 0}, 1,
      [&](Chunk chunk) { std::memcpy(segment_->slot(rank_), mine.data() + chunk.offset, chunk.count); },
      [&](Chunk chunk) {
        for (int r = 0; r < size_; ++r) {
          std::memcpy(out.data() + r * mine.size() + chunk.offset, segment_->slot(r), chunk.count);
        }
      },
      [](Chunk) {});
}

void ShmGroup::barrier() {
  run(
      {.op = kBarrier, .dtype = kBytes, .count = 0, .root = 0}, 1, [](Chunk) {}, [](Chunk) {}, [](Chunk) {});
}

}  // namespace tutti::comm
