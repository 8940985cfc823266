// The events on the nodes of a job during one attempt: one list in one order, which every launcher reads.
//
// Each launcher appends: a rank failed here, a signal came, my ranks have ended. Node 0 appends for a node that no longer
// gives a sign of life. The attempt is over when the list has an end for every node, and since all read the same list, all
// come to the same verdict about it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/job/launch/failure.h"
#include "tutti/job/launch/node_meeting.h"
#include "tutti/job/store/socket.h"

namespace tutti::comm {

struct NewsItem {
  enum class Kind { failure, signal, ended, notice };
  Kind kind = Kind::ended;
  int node = 0;             // index in the plan
  int number = 0;           // of the signal
  bool interrupted = false;  // ended: because of a signal
  LaunchFailure failure;
  std::string notice = "";  // what users are to know on all nodes
};

// Its thread reads; the launcher's thread calls everything here.
class NodeNews {
 public:
  NodeNews(NodeMeeting& meeting, const NodeMeeting::Plan& plan, const NodeOptions& options);
  ~NodeNews();
  NodeNews(const NodeNews&) = delete;
  NodeNews& operator=(const NodeNews&) = delete;

  int fd() const { return event_.get(); }  // readable when there are new items
  std::vector<NewsItem> take();
  void append(const NewsItem& item);
  // Node 0 is gone: the ranks of this node end, and nothing is written any more.
  bool is_cut_off() const { return is_cut_off_; }

 private:
  void run();
  void watch_the_others();
  void push(NewsItem item);
  void write(Store& store, const NewsItem& item);
  std::string key(const char* name, int64_t number) const;

  const NodeMeeting::Plan& plan_;
  const NodeOptions& options_;
  std::shared_ptr<Store> writer_, reader_;
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
