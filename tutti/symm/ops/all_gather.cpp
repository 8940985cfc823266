#include "tutti/symm/ops/all_gather.h"

#include <cstring>

#include "tutti/symm/ops/published.h"

namespace tutti::comm::symm {

Tensor gather(OpCall& call, const Tensor& input) {
  Extents sizes = input.extents();
  if (sizes.empty()) sizes.push_back(1);
  sizes[0] *= call.ranks();
  const Tensor output = Tensor::empty(sizes, input.dtype());
  gather_into(call, output, input);
  return output;
}

void gather_into(OpCall& call, const Tensor& output, const Tensor& input) {
  // 1. Everybody's input is complete.
  const Published inputs(call, input);
  if (output.numel() == 0) return;
  // 2. Each rank begins with another peer, so that no memory is read by all at once.
  for (int i = 0; i < call.ranks(); ++i) {
    const int peer = (call.rank() + i) % call.ranks();
    std::memcpy(static_cast<std::byte*>(output.raw_data()) + peer * input.nbytes(), inputs.data(peer),
                static_cast<size_t>(input.nbytes()));
  }
  // 3. Nobody reads any more: inputs may change.
  call.finish();
}

Tensor all_gather(const Tensor& input, const SymmGroup& group) {
  return make_call(SymmOp::all_gather, group, [&](OpCall& call) {
    call.takes(input);
    return gather(call, input);
  });
}

}  // namespace tutti::comm::symm
