#include "tests/layouts/support/axis.h"

#include "tutti/autograd/tape.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/ops/slice.h"

namespace tutti::layouts {

namespace functional = comm::functional;

Axis::Axis(comm::ProcessGroup& world, const std::vector<int>& ranks) : size_(static_cast<int>(ranks.size())) {
  if (size_ == 1) return;
  group_ = world.split(ranks);
  rank_ = group_->rank();
}

Tensor Axis::all_reduce(const Tensor& x) const {
  if (size_ == 1) return x;
  return functional::wait_tensor(functional::all_reduce(x, comm::ReduceKind::sum, group_));
}

Tensor Axis::reduce_scatter(const Tensor& x) const {
  if (size_ == 1) return x;
  return functional::wait_tensor(functional::reduce_scatter_single(x, comm::ReduceKind::sum, 0, group_));
}

Tensor Axis::all_gather(const Tensor& x) const {
  if (size_ == 1) return x;
  return functional::wait_tensor(functional::all_gather_single(x, 0, group_));
}

std::vector<Tensor> Axis::gather_each(const Tensor& x) const {
  const NoGradScope no_grad;
  const Tensor all = all_gather(detach(x));
  std::vector<Tensor> each;
  for (int r = 0; r < size_; ++r) each.push_back(narrow(all, 0, r * x.extent(0), x.extent(0)));
  return each;
}

Tensor Axis::all_to_all(const Tensor& x, const std::vector<int64_t>& sent, const std::vector<int64_t>& received) const {
  if (size_ == 1) return x;
  return functional::wait_tensor(functional::all_to_all_single(x, received, sent, group_));
}

Tensor Axis::from_next(const Tensor& x) const {
  if (size_ == 1) return x;
  std::vector<int64_t> destinations;
  for (int r = 0; r < size_; ++r) destinations.push_back((r + size_ - 1) % size_);
  return functional::wait_tensor(functional::permute_tensor(x, destinations, group_));
}

Tensor Axis::send_next(const Tensor& x) const { return functional::isend(x, rank_ + 1, group_); }

Tensor Axis::receive_previous(const Tensor& like) const {
  return functional::wait_tensor(functional::irecv(like, rank_ - 1, group_));
}

}  // namespace tutti::layouts
