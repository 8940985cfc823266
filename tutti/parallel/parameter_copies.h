// The whole values of a group of sharded parameters, which forward reads: one copy per host where the ranks share
// memory, else one per rank.
#pragma once

#include <memory>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

// Whether the ranks of a group read the same pages.
bool shares_memory(const comm::ProcessGroup& group);

class ParameterCopies {
 public:
  struct Sizes {
    Extents sizes;
    DType dtype;
    Tensor memory = {};  // where the values lie already, for ranks that share memory; undefined: in pages of the copies
  };
  // Room for these parameters. Collective over the ranks of `group`, which must outlive this: in a group of one host
  // whose transport shares memory they make one copy together, each giving an equal part of the pages.
  ParameterCopies(comm::ProcessGroup& group, const std::vector<Sizes>& parameters);

  // Whether the ranks read the same pages. Then there is memory all the time.
  bool is_shared() const { return is_shared_; }
  // The tensors that forward reads. Ops refuse to write them.
  const std::vector<Tensor>& leaves() const { return leaves_; }
  // The same memory for those who fill it.
  Tensor writable(size_t i) const;
  int64_t nbytes() const { return nbytes_; }

  // Gives the memory of copies that are not shared back, and gets it again, uninitialized. They do nothing when it is
  // so already.
  void release();
  void restore();

 private:
  void share(comm::ProcessGroup& group, const std::vector<Sizes>& parameters);

  bool is_shared_ = false;
  int64_t nbytes_ = 0;
  std::vector<Tensor> leaves_;
};

}  // namespace tutti::parallel
