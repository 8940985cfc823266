#include "tutti/comm/symm/ops/all_gather.h"

#include <cstring>

#include "tutti/comm/symm/ops/published.h"

namespace tutti::comm::symm {

Tensor all_gather(const Tensor& input, const SymmGroup& group) {
  check_host_access("all_gather", group);
  Extents sizes = input.extents();
  if (sizes.empty()) sizes.push_back(1);
  sizes[0] *= group.size();
  Tensor output = Tensor::empty(sizes, input.dtype());
  if (output.numel() == 0) return output;
  const Published inputs("all_gather", input, group);
  inputs.barrier();
  // Each rank begins with another peer, so that no memory is read by all at once.
  for (int i = 0; i < group.size(); ++i) {
    const int peer = (group.rank() + i) % group.size();
    std::memcpy(static_cast<std::byte*>(output.raw_data()) + peer * input.nbytes(), inputs.data(peer),
                static_cast<size_t>(input.nbytes()));
  }
  inputs.barrier();
  return output;
}

}  // namespace tutti::comm::symm
