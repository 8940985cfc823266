// The events on the nodes of a job during one attempt, as a launcher follows and extends them (node_log.h).
//
// Each launcher appends: a rank failed here, a signal came, my ranks have ended. Node 0 appends for a node that no
// longer gives a sign of life. The attempt is over when the list has an end for every node, and since all read the same
// list, all come to the same verdict about it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/job/launch/news_item.h"
#include "tutti/job/launch/node_meeting.h"
#include "tutti/job/store/socket.h"

namespace tutti::comm {

class NodeLog;

// Its thread reads; the launcher's thread calls everything here.
class NodeNews {
 public:
  // `store` is a connection to the store of the launchers that nobody else uses.
  NodeNews(std::shared_ptr<Store> store, const NodeMeeting::Plan& plan, const NodeOptions& options);
  ~NodeNews();
  NodeNews(const NodeNews&) = delete;
  NodeNews& operator=(const NodeNews&) = delete;

  int fd() const { return event_.get(); }  // readable when there are new items
  std::vector<NewsItem> take();
  void append(const NewsItem& item);
  // Node 0 is gone, or does not confirm what this node says: the ranks of this node end, and nothing is written any
  // more, so that node 0, if it is there, counts this node as lost. An item tells it, too.
  bool is_cut_off() const { return is_cut_off_; }

 private:
  void run();
  void cut_off(const std::string& why);
  void watch_the_others();
  void push(NewsItem item);
  std::string beat_key(int node) const;

  const NodeMeeting::Plan& plan_;
  const NodeOptions& options_;
  const std::shared_ptr<Store> reading_store_;
  // The first belongs to the launcher's thread, which writes; the second to the other one, which reads, and on node 0
  // writes for nodes that are lost.
  const std::unique_ptr<NodeLog> log_, reading_log_;
  UniqueFd event_;
  std::mutex mutex_;
  std::vector<NewsItem> items_;
  std::vector<bool> has_ended_;  // by node
  struct Beat {
    std::string value;
    std::chrono::steady_clock::time_point since;
  };
  std::vector<Beat> beats_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> is_cut_off_ = false;
  std::thread thread_;
};

}  // namespace tutti::comm
