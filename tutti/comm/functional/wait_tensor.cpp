#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/tensor/host_read.h"

namespace tutti::comm::functional {

// A view whose making waits. In a graph it is the node that says where the wait is.
const OpDef kWaitTensor{
    .name = "wait_tensor",
    .num_inputs = 1,
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          before_host_read(call[0]);
          copy_elements(outputs[0], call[0]);
        },
    .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) { grads[0] = c.grads[0]; }},
    .view =
        [](const OpCall& call) {
          before_host_read(call[0]);
          return call[0].view_as(call[0].extents(), call[0].strides(), call[0].offset());
        },
    .cost = [](const OpCall&) { return Cost{}; },
};

Tensor wait_tensor(const Tensor& x) { return call_op(kWaitTensor, Attrs{}, x); }

std::vector<Tensor> wait_tensors(std::span<const Tensor> tensors) {
  std::vector<Tensor> done;
  done.reserve(tensors.size());
  for (const Tensor& x : tensors) done.push_back(wait_tensor(x));
  return done;
}

}  // namespace tutti::comm::functional
