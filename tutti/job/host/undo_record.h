// UndoRecord: what a block of memory held before a step wrote it, kept in memory that outlives the writer
// (docs/surviving.md).
//
// Whoever steps a block saves it here first. A record is valid from the moment in which it is complete, so who finds
// the block half written restores it and begins again, as often as it takes. One process at a time uses a record; the
// area is zeros at first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tutti::comm {

class UndoRecord {
 public:
  struct Held {
    int64_t block = 0, step = 0;
    bool operator==(const Held&) const = default;
  };

  // The size of a record that holds up to `capacity` bytes.
  static int64_t nbytes(int64_t capacity) { return kHeaderBytes + capacity; }
  // `at` is aligned to 64 bytes, and holds nbytes(capacity).
  UndoRecord(std::byte* at, int64_t capacity)
      : header_(reinterpret_cast<Header*>(at)), bytes_(at + kHeaderBytes), capacity_(capacity) {}

  // The block that is saved here; nullopt: none, or one that was not yet complete.
  std::optional<Held> held() const;
  // Saves the bytes of a block, which lie in several pieces; what was held before is forgotten first.
  void save(const Held& what, std::span<const std::span<std::byte>> pieces);
  // Writes them back, to pieces of the same sizes, and goes on holding them.
  void restore(std::span<const std::span<std::byte>> pieces) const;
  void forget();

 private:
  static constexpr int64_t kHeaderBytes = 64;
  struct Header {
    std::atomic<uint32_t> is_valid;
    Held held;
  };
  Header* header_;
  std::byte* bytes_;
  int64_t capacity_;
};

}  // namespace tutti::comm
