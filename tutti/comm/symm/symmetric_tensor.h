// SymmetricTensor: a local tensor in symmetric memory and, once set up, the same tensor on every rank.
//
//   SymmetricTensor t(SymmetricTensor::allocate({4, 8}, DType::f32, kCpu), group);   // local
//   t.setup_remote_handles();                                                        // collective
//   t.remote_tensor(1);
//
// It holds the tensor and the handle and nothing that the handle has.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/symm/allocation.h"
#include "tutti/comm/symm/handle.h"

namespace tutti::comm::symm {

class SymmetricTensor {
 public:
  // Not collective; like empty_symm().
  static Tensor allocate(const Extents& sizes, DType dtype, Device device = kCpu, const AllocationOptions& options = {});
  // "" when `local` can become a SymmetricTensor on every backend, else why not.
  static std::string validate(const Tensor& local);

  // UsageError with the reason of validate().
  SymmetricTensor(Tensor local, SymmGroup group);

  const Tensor& local_tensor() const { return local_; }
  const SymmGroup& group() const { return group_; }
  // UsageError before setup_remote_handles().
  const SymmHandle& handle() const;

  // Collective, once per tensor: the ranks give each other access. Calling it again does nothing. `tag` opens the message
  // of an error, to tell several tensors apart.
  void setup_remote_handles(const std::string& tag = "");
  // Rank r's tensor with the sizes and strides of the local one. The own rank's is the local tensor, also before the
  // setup. UsageError: no such rank; another rank's before the setup.
  Tensor remote_tensor(int rank) const;
  // i64 [W]: where the tensor of each rank begins, as addresses of this process. Needs the setup.
  Tensor remote_pointers_tensor() const;

  // One address under which a write reaches all ranks. UsageError on backends that have none, naming this one, whether or
  // not a handle exists: nothing is left out silently.
  void setup_multicast(int exporter_rank = 0, const std::string& tag = "");
  void* multicast_ptr() const;

  // [W, sizes...], all ranks in one range of addresses; the stride of dim 0 is whole pages. Local after the setup.
  void setup_contiguous_view(const std::string& tag = "");
  Tensor contiguous_view() const;

 private:
  std::string title(const std::string& tag) const;
  Tensor local_;
  SymmGroup group_;
  std::shared_ptr<SymmHandle> handle_;
  Tensor view_;
};

}  // namespace tutti::comm::symm
