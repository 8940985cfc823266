// The ranks along one mesh axis, and the functional collectives that they run.
//
// Results have arrived when a call returns, so that their memory may be read directly. Reductions add in f32 in rank
// order by halving (numerics contract, N4). Gradients are those of the functional collectives.
#pragma once

#include <memory>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::comm {
class ProcessGroup;
}  // namespace tutti::comm

namespace tutti::layouts {

// An axis of one rank sends nothing and returns its input.
class Axis {
 public:
  Axis() = default;
  // Makes a group of `ranks` of the world, which include this one. Every rank of the world must call it.
  Axis(comm::ProcessGroup& world, const std::vector<int>& ranks);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // The sum of f32 tensors of one shape.
  Tensor all_reduce(const Tensor& x) const;
  // This rank's part of the sum, of as many equal parts of dim 0 as there are ranks.
  Tensor reduce_scatter(const Tensor& x) const;
  // The tensors of all ranks one after another along dim 0. The gradient is the reduce_scatter of the cotangents.
  Tensor all_gather(const Tensor& x) const;
  // The tensors of all ranks, without history.
  std::vector<Tensor> gather_each(const Tensor& x) const;
  // sent[r] rows go to rank r; the result holds the received[r] rows of rank 0, 1, ... The gradient is the exchange the
  // other way.
  Tensor all_to_all(const Tensor& x, const std::vector<int64_t>& sent, const std::vector<int64_t>& received) const;
  // The tensor of the next rank in the ring.
  Tensor from_next(const Tensor& x) const;

  // Messages to the neighbour stages of a pipeline. The backward of the token that send_next() returns brings the
  // cotangent of x, which the backward of the received tensor sends.
  Tensor send_next(const Tensor& x) const;
  Tensor receive_previous(const Tensor& like) const;

 private:
  std::shared_ptr<comm::ProcessGroup> group_;
  int rank_ = 0, size_ = 1;
};

}  // namespace tutti::layouts
