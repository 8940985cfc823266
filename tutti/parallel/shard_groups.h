// All shard groups of a model: what its ranks publish together, what is gathered ahead, and rounds that are replayed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::comm {
class ProcessGroup;
}

namespace tutti::parallel {

class ShardGroup;

// The groups of one model: those of the modules inside come before their own. A rank's copies are made whole by
// collectives, so what makes one necessary must happen on all ranks in the same order: reads of parameters in forward
// and backward, and changes of masters.
class ShardGroups {
 public:
  void add(const std::shared_ptr<ShardGroup>& group);
  void take_all(ShardGroups& inner);
  std::vector<std::shared_ptr<ShardGroup>> groups() const;

  // Every rank writes its part of what has changed in all groups with shared copies: when all have read the values of
  // before, and returns when all have written.
  void publish();
  // Returns when all ranks have read what they read of the values of before; for groups whose masters lie in the
  // copies.
  void wait_for_readers();

  // Changes of a group's copies.
  enum class Copies : uint8_t {
    whole,       // they are made whole
    kept,        // they are given back but for parts that neighbours keep
    given_back,  // all of them
    ahead,       // their gather begins because a list says so
  };
  // A rank without a virtual shard in a round makes the collectives of the others, which are those of its own round
  // before.
  void note(const ShardGroup* group, Copies copies);
  void begin_round();
  void replay_round();
  // Where copies are read: by ops in forward or backward, or by a compiled function, which asks for them in its own
  // order. In a replay, where they were.
  enum class Reader : uint8_t { forward, backward, compiled };
  Reader reader() const;
  // While one lives, the reader is a compiled function.
  class CompiledReads {
   public:
    explicit CompiledReads(ShardGroups& groups)
        : groups_(groups), before_(std::exchange(groups.reader_, Reader::compiled)) {}
    ~CompiledReads() { groups_.reader_ = before_; }
    CompiledReads(const CompiledReads&) = delete;
    CompiledReads& operator=(const CompiledReads&) = delete;

   private:
    ShardGroups& groups_;
    const std::optional<Reader> before_;
  };

  // Starts to gather the parts of copies that replicas store in pieces, of all groups.
  void begin_pieces();

  // Starts the gathers of the groups that came next in the round before.
  void prefetch();
  // Starts those of a list, in its order.
  using List = std::vector<std::weak_ptr<ShardGroup>>;
  void start(const List& list);

  int holds = 0;       // while positive, no copy is given back
  int prefetched = 1;  // how many groups are gathered ahead

 private:
  struct Event {
    const ShardGroup* group;
    Copies copies;
    Reader reader;
    bool operator==(const Event&) const = default;
  };
  using Changed = std::vector<std::pair<std::shared_ptr<ShardGroup>, std::vector<size_t>>>;  // parameters by group
  void poison(const Changed& changed) const;
  comm::ProcessGroup& widest() const;

  std::vector<std::weak_ptr<ShardGroup>> groups_;
  bool may_be_read_ = false;  // since the last wait_for_readers()
  std::vector<Event> round_, round_before_;
  std::optional<Reader> reader_;  // of a replay, or a compiled function
};

}  // namespace tutti::parallel
