// Refusals of messages by their receivers, kept until the sender has been told.
#pragma once

#include <map>
#include <string>

namespace tutti::comm {

// The refusals for one rank. Protected by the lock of its group.
class Refusals {
 public:
  // Call when `peer` has refused a message and no outstanding message with that peer can fail with the text.
  void keep(int peer, std::string text) { by_peer_.try_emplace(peer, std::move(text)); }
  // Removes and returns the error for a message with `peer` (-1: any) that is being posted; "" when there is none.
  std::string take(int peer) {
    const auto found = peer < 0 ? by_peer_.begin() : by_peer_.find(peer);
    if (found == by_peer_.end()) return "";
    std::string text = std::move(found->second);
    by_peer_.erase(found);
    return text;
  }

 private:
  std::map<int, std::string> by_peer_;
};

}  // namespace tutti::comm
