// PagePool: the pages of a cache, counted by their holders.
//
// A page is held by the sequences that read or write it. A page that holds the last keys of a prefix (prefix_index.h)
// may be published under the number of that prefix; it keeps its content after its last holder has given it back, until
// the pool runs out of others: the one that was given back first is taken first. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <vector>

namespace tutti::generate {

class PagePool {
 public:
  // `forgotten(prefix)` is called when a published page is taken for something else.
  PagePool(int64_t pages, std::function<void(uint64_t prefix)> forgotten);

  // A page that nobody holds, with one holder, the caller; nothing if all are held.
  std::optional<int32_t> take();
  void hold(int32_t page);
  // The caller must be a holder.
  void release(int32_t page);

  // Publishes a page that the caller holds. Does nothing if another page has been published for this prefix.
  void publish(int32_t page, uint64_t prefix);
  std::optional<int32_t> published(uint64_t prefix) const;

  int64_t pages() const { return std::ssize(states_); }
  int64_t available() const { return std::ssize(given_back_); }  // pages that nobody holds
  bool is_held(int32_t page) const { return states_[static_cast<size_t>(page)].holders > 0; }
  bool is_published(int32_t page) const { return states_[static_cast<size_t>(page)].prefix != 0; }

 private:
  struct State {
    int64_t holders = 0;
    uint64_t prefix = 0;                   // 0: not published
    std::list<int32_t>::iterator place{};  // in held_ or given_back_
  };
  std::vector<State> states_;
  std::list<int32_t> held_, given_back_;  // of given_back_, the next one to take is first
  std::map<uint64_t, int32_t> published_;
  std::function<void(uint64_t)> forgotten_;
};

}  // namespace tutti::generate
