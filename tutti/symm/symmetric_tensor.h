// SymmetricTensor: a local tensor in symmetric memory and, after setup, the same tensor on every rank.
//
//   SymmetricTensor t(SymmetricTensor::allocate({4, 8}, DType::f32, kCpu), group);   // local
//   t.setup_remote_handles();                                                        // collective
//   t.remote_tensor(1);
//
// It holds only the tensor and its handle; all other state belongs to the handle.
#pragma once

#include <memory>
#include <string>

#include "tutti/symm/allocation.h"
#include "tutti/symm/handle.h"

namespace tutti::comm::symm {

class SymmetricTensor {
 public:
  // Not collective; like empty_symm().
  static Tensor allocate(const Extents& sizes, DType dtype, Device device = kCpu,
                         const AllocationOptions& options = {});
  // "" when `local` can become a SymmetricTensor on every backend, else the reason why not.
  static std::string validate(const Tensor& local);

  // UsageError, with the reason from validate(), when `local` cannot become a SymmetricTensor.
  SymmetricTensor(Tensor local, SymmGroup group);

  const Tensor& local_tensor() const { return local_; }
  const SymmGroup& group() const { return group_; }
  // UsageError before setup_remote_handles().
  const SymmHandle& handle() const;

  // The ranks give each other access. Collective, once per tensor; calling it again does nothing. Error messages begin
  // with `tag`, to tell several tensors apart.
  void setup_remote_handles(const std::string& tag = "");
  // Rank r's tensor, with the sizes and strides of the local one. For this rank it is the local tensor, even before the
  // setup. UsageError for a rank that does not exist, or for another rank before the setup.
  Tensor remote_tensor(int rank) const;
  // i64 [W]: the address of each rank's tensor in this process. Requires the setup.
  Tensor remote_pointers_tensor() const;

  // Sets up an address at which one write reaches all ranks. UsageError, naming the backend, if it does not support
  // this, whether or not a handle exists.
  void setup_multicast(int exporter_rank = 0, const std::string& tag = "");
  void* multicast_ptr() const;

  // [W, sizes...]: the tensors of all ranks in one address range; the stride of dim 0 is a whole number of pages. Local
  // after the setup.
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
