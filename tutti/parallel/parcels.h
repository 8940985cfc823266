// Parcels: bytes that each rank of a group sends to each other one, written value by value and read in the same order.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"

namespace tutti::parallel {

// A parcel is u8 [bytes], in memory that the allocator keeps from step to step.
class ParcelWriter {
 public:
  template <class T>
  void put(const T* values, int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const int64_t nbytes = count * static_cast<int64_t>(sizeof(T));
    if (nbytes > 0) std::memcpy(room(nbytes), values, static_cast<size_t>(nbytes));
  }
  template <class T>
  void put(T value) {
    put(&value, 1);
  }
  // Appends so many bytes, for the caller to write. Valid until the next call.
  char* room(int64_t nbytes);
  // Makes room for so many bytes behind those that are there.
  void reserve(int64_t nbytes);
  Tensor take();

 private:
  Tensor bytes_;  // with room behind the first size_
  int64_t size_ = 0;
};
inline std::string_view bytes_of(const Tensor& parcel) {
  return {static_cast<const char*>(parcel.raw_data()), static_cast<size_t>(parcel.numel())};
}

// Reads what must outlive it. EnvironmentError, naming `what`, where the bytes end too early.
class ParcelReader {
 public:
  ParcelReader(const char* what, std::string_view bytes) : what_(what), sent_(bytes.size()), bytes_(bytes) {}

  template <class T>
  void get(T* values, int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::string_view from = take(count, static_cast<int64_t>(sizeof(T)));
    if (!from.empty()) std::memcpy(values, from.data(), from.size());
  }
  template <class T>
  T get() {
    T value;
    get(&value, 1);
    return value;
  }
  // A count of things that take at least so many of the bytes that follow, each.
  int64_t count(int64_t nbytes_each);
  // The next `count` values of `size` bytes, not copied: at any address.
  std::string_view take(int64_t count, int64_t size);
  bool is_empty() const { return bytes_.empty(); }

 private:
  const char* what_;
  size_t sent_;
  std::string_view bytes_;  // those that are left
};

// Something that all ranks must say alike in an exchange.
struct ParcelFact {
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::min();  // of a rank that has nothing to say
  const char* what;
  int64_t value;
  bool is_double = false;  // whether `value` has its bits
};

// What a rank sends: a parcel for each rank, and at most kMostFacts facts, the same ones on all ranks.
struct Parcels {
  static constexpr size_t kMostFacts = 4;
  std::vector<Tensor> list;
  std::vector<ParcelFact> facts = {};
};

// An exchange on its way. Every rank makes the same ones in the same order.
class ParcelExchange {
 public:
  // Sends what `make` returns among the ranks of `group` (null: one rank, which gets its own parcel). The ranks learn
  // here how many bytes follow, and the bytes travel until wait(). Throws on all ranks, which can go on, when one of
  // them throws in `make`: there what it threw, and elsewhere a UsageError, or StoppedByPeer where the error was none,
  // that names `what` and the rank; and a UsageError when ranks have other facts.
  ParcelExchange(const char* what, comm::ProcessGroup* group, const std::function<Parcels()>& make);

  // The parcels of all ranks, in their order; the memory lives as long as this.
  std::vector<std::string_view> wait();

 private:
  comm::Work work_;
  std::vector<Tensor> received_;   // from each rank
  std::pair<size_t, Tensor> own_;  // this rank's number and parcel, until wait()
};

}  // namespace tutti::parallel
