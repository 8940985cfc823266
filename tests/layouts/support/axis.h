// Collectives of the ranks along one mesh axis; ranks are threads of one process.
//
// Everything is built on one primitive: all ranks of a group show each other tensors, meet, look, and meet again. Sums
// are taken in f32 in rank order by halving (tree_sum). Bytes on the wire are counted as a ring or a direct exchange
// would send them per rank.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::layouts {

// Where the ranks of a group meet.
class Meeting {
 public:
  explicit Meeting(int size) : shown_(static_cast<size_t>(size)) {}
  // Calls look(tensors of all ranks) on every rank, between two meetings. EnvironmentError after abort().
  using Look = std::function<void(const std::vector<std::vector<Tensor>>&)>;
  void exchange(int rank, const std::vector<Tensor>& mine, const Look& look);
  void abort();

 private:
  void meet(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::vector<Tensor>> shown_;
  int waiting_ = 0;
  int64_t round_ = 0;
  bool aborted_ = false;
};

// Messages between two ranks in order.
class Mailbox {
 public:
  void send(Tensor t);
  Tensor receive();
  void abort();

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Tensor> queue_;
  bool aborted_ = false;
};

// The meetings and mailboxes of a run, by name.
class World {
 public:
  std::shared_ptr<Meeting> meeting(const std::string& name, int size);
  std::shared_ptr<Mailbox> mailbox(const std::string& name);
  void abort();

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_;
  std::map<std::string, std::shared_ptr<Mailbox>> mailboxes_;
  bool aborted_ = false;
};

// One rank's side of a group. An axis of one rank sends nothing and returns its input.
class Axis {
 public:
  Axis() = default;
  Axis(World& world, const std::string& group, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  double wire_bytes() const { return *wire_bytes_; }

  // The tree sum of f32 tensors of one shape.
  Tensor all_reduce(const Tensor& t) const;
  // The rows [begins[rank], begins[rank + 1]) of the tree sum over dim 0.
  Tensor reduce_scatter(const Tensor& t, const std::vector<int64_t>& begins) const;
  // The tensors of all ranks one after another along dim 0.
  Tensor all_gather(const Tensor& t) const;
  // The tensors of all ranks.
  std::vector<Tensor> gather_each(const Tensor& t) const;
  // parts[r] goes to rank r; the result holds what rank 0, 1, ... sent here.
  std::vector<Tensor> all_to_all(const std::vector<Tensor>& parts) const;

 private:
  void count(double bytes) const { *wire_bytes_ += bytes; }

  std::shared_ptr<Meeting> meeting_;
  int rank_ = 0, size_ = 1;
  std::shared_ptr<double> wire_bytes_ = std::make_shared<double>(0);
};

}  // namespace tutti::layouts
