// Parcels: bytes that each rank of a group sends to each other one, written value by value and read in the same order.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"

namespace tutti::parallel {

class ParcelWriter {
 public:
  template <class T>
  void put(const T* values, int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > 0) bytes_.append(reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(T));
  }
  template <class T>
  void put(T value) {
    put(&value, 1);
  }
  // Appends so many bytes, for the caller to write. Valid until the next call.
  char* room(int64_t nbytes);
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what must outlive it. EnvironmentError, naming `what`, where the bytes end too early.
class ParcelReader {
 public:
  ParcelReader(const char* what, std::string_view bytes) : what_(what), bytes_(bytes) {}

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
  std::string_view bytes_;
};

// An exchange on its way. Every rank makes the same ones in the same order.
class ParcelExchange {
 public:
  // Sends what `make` returns, a parcel for each rank of `group` (null: one rank, which gets its own). The ranks learn
  // here how many bytes follow, and the bytes travel until wait(). When `make` throws, all ranks do: the others a
  // UsageError that names `what` and the rank. `agreement`: see comm::CallOptions.
  ParcelExchange(const char* what, comm::ProcessGroup* group, const std::function<std::vector<std::string>()>& make,
                 uint64_t agreement = 0);
  ~ParcelExchange();
  ParcelExchange(ParcelExchange&&) noexcept = default;

  // The parcels of all ranks, in their order; the memory lives as long as this.
  std::vector<std::string_view> wait();

 private:
  comm::Work work_;
  Tensor sent_, received_;  // u8
  std::string own_;
  std::vector<int64_t> sizes_;  // of what each rank sends here
};

}  // namespace tutti::parallel
