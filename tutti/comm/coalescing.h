// Coalescing: several calls of one group are started as one.
#pragma once

#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// Collects calls of one group until end(), which starts them together: adjacent calls of one kind as one coalesced
// call, messages as one batch, anything else one after another. UsageError when calls of the group are already being
// collected.
class Coalescing {
 public:
  explicit Coalescing(ProcessGroup& group);
  ~Coalescing();  // discards the collected calls if end() was not called
  Coalescing(const Coalescing&) = delete;
  Coalescing& operator=(const Coalescing&) = delete;

  void all_reduce(const Tensor& tensor, const ReduceOp& op = {});
  void all_gather_single(const Tensor& output, const Tensor& input);
  void reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op = {});
  void send(const Tensor& tensor, int peer, uint32_t tag = 0);
  void recv(const Tensor& tensor, int peer, uint32_t tag = 0);
  // Starts all collected calls; the Work is done when all of them are. UsageError when called twice.
  Work end();

 private:
  struct Item {
    CollectiveKind kind;  // of messages: send
    Tensor output, input = {};
    ReduceOp op = {};
    PointToPoint message = {};
  };
  Work start(size_t begin, size_t end);
  ProcessGroup& group_;
  std::vector<Item> items_;
  bool ended_ = false;
};

}  // namespace tutti::comm
