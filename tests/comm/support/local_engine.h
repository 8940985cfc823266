// A network inside one process, for tests of what stands on a MessageEngine: queues between threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/comm/message/message_engine.h"

namespace tutti::comm {

class LocalNetwork : public std::enable_shared_from_this<LocalNetwork> {
 public:
  explicit LocalNetwork(int size) : boxes_(static_cast<size_t>(size)), lost_(static_cast<size_t>(size)) {}

  // The engine of one rank.
  std::unique_ptr<MessageEngine> engine(int rank);
  // From now on nothing comes from `rank`, and nobody can reach it.
  void lose(int rank, std::string why);
  // Puts any bytes into the queue of `to`, as if `from` had sent them.
  void forge(int from, int to, std::vector<std::byte> bytes);

  int64_t packets() const;     // sent so far
  int64_t most_bytes() const;  // that waited at one rank at one time

 private:
  class Engine;
  struct Box {
    std::vector<std::deque<Packet>> from;  // per sender, so that senders may overtake each other
    int64_t bytes = 0;
    uint64_t turn = 0;
  };
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::vector<Box> boxes_;
  std::vector<std::string> lost_;
  int64_t packets_ = 0;
  int64_t most_bytes_ = 0;
};

}  // namespace tutti::comm
