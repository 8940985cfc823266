// The log of one attempt in the launchers' store: one list of news, numbered from 1, which every launcher extends and
// reads.
//
// A writer puts its item into the first number that is free, in one step of the store. So every number up to the last
// one has an item whenever a writer ends, and readers, who go from number to number, never wait for one that nobody
// fills.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tutti/job/launch/news_item.h"
#include "tutti/job/store/store.h"

namespace tutti::comm {

// Used by one thread at a time.
class NodeLog {
 public:
  // `writer` names this writer among all of the attempt.
  NodeLog(std::shared_ptr<Store> store, int restart, std::string writer);

  // EnvironmentError when the store does not confirm it. The item may be there then; a further call with the same item
  // finds it, and does not write it twice.
  void write(const NewsItem& item);
  // The next item; nullopt when there is none within `limit`. UsageError for one that no launcher has written.
  std::optional<NewsItem> read(std::chrono::milliseconds limit);

 private:
  std::string key(int64_t number) const;

  const std::shared_ptr<Store> store_;
  const int restart_;
  const std::string writer_;
  int64_t free_ = 1, next_ = 1;  // where the next write begins to look, and where the next read does
  int64_t written_ = 0;
};

}  // namespace tutti::comm
