// Messages that their receivers have refused, until their sender hears of it.
#pragma once

#include <map>
#include <string>

namespace tutti::comm {

// One rank's. Whoever has the turn of the transport.
class Refusals {
 public:
  // `peer` has refused a message, and nothing is under way with it that could end with the text.
  void keep(int peer, std::string text) { by_peer_.try_emplace(peer, std::move(text)); }
  // Takes out what a message with `peer` (-1: with anybody) that is posted now ends with; "" when there is nothing.
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
