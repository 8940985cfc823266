#include "tutti/comm/backend.h"

#include <string_view>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// The backend and method that this thread is forwarding to the other name. Coming back to it means that neither name is
// overridden. The backend counts: one may wrap another.
struct Forwarded {
  const Backend* backend = nullptr;
  std::string_view method;
  bool operator==(const Forwarded&) const = default;
};
thread_local Forwarded forwarding;

class Forwarding {
 public:
  explicit Forwarding(const Forwarded& now) : previous_(forwarding) { forwarding = now; }
  ~Forwarding() { forwarding = previous_; }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

 private:
  Forwarded previous_;
};

}  // namespace

void Backend::unsupported(const char* method) const {
  throw UsageError(fmt::format("backend {} does not support {}", name(), method));
}

Work Backend::broadcast(const Tensor&, int, const CallOptions&) { unsupported("broadcast"); }
Work Backend::all_reduce(const Tensor&, const ReduceOp&, const CallOptions&) { unsupported("all_reduce"); }
Work Backend::all_reduce_coalesced(Tensors, const ReduceOp&, const CallOptions&) { unsupported("all_reduce_coalesced"); }
Work Backend::reduce(const Tensor&, int, const ReduceOp&, const CallOptions&) { unsupported("reduce"); }
Work Backend::all_gather(Tensors, const Tensor&, const CallOptions&) { unsupported("all_gather"); }
Work Backend::all_gather_coalesced(std::span<const std::vector<Tensor>> outputs, Tensors inputs, const CallOptions& options) {
  std::vector<Work> works;
  for (size_t i = 0; i < inputs.size(); ++i) works.push_back(all_gather(outputs[i], inputs[i], {.async = true, .timeout = options.timeout}));
  Work all = all_of(std::move(works));
  if (!options.async) all.wait();
  return all;
}
Work Backend::gather(Tensors, const Tensor&, int, const CallOptions&) { unsupported("gather"); }
Work Backend::scatter(const Tensor&, Tensors, int, const CallOptions&) { unsupported("scatter"); }
Work Backend::reduce_scatter(const Tensor&, Tensors, const ReduceOp&, const CallOptions&) { unsupported("reduce_scatter"); }
Work Backend::all_to_all(Tensors, Tensors, const CallOptions&) { unsupported("all_to_all"); }
Work Backend::send(const Tensor&, int, uint32_t, const CallOptions&) { unsupported("send"); }
Work Backend::recv(const Tensor&, int, uint32_t, const CallOptions&) { unsupported("recv"); }
Work Backend::batch_isend_irecv(std::span<const PointToPoint>, const CallOptions&) { unsupported("batch_isend_irecv"); }
Work Backend::barrier(const CallOptions&) { unsupported("barrier"); }

// Both names of a pair: each calls the other, and the second arrival at either is the error.
#define TUTTI_TWO_NAMES(name, old_name, parameters, ...)                \
  Work Backend::name parameters {                                       \
    if (forwarding == Forwarded{this, #name}) unsupported(#name);       \
    const Forwarding guard({this, #name});                              \
    return old_name(__VA_ARGS__);                                       \
  }                                                                     \
  Work Backend::old_name parameters {                                   \
    if (forwarding == Forwarded{this, #name}) unsupported(#name);       \
    const Forwarding guard({this, #name});                              \
    return name(__VA_ARGS__);                                           \
  }

TUTTI_TWO_NAMES(all_gather_single, _allgather_base, (const Tensor& output, const Tensor& input, const CallOptions& options),
                output, input, options)
TUTTI_TWO_NAMES(reduce_scatter_single, _reduce_scatter_base,
                (const Tensor& output, const Tensor& input, const ReduceOp& op, const CallOptions& options), output, input,
                op, options)
TUTTI_TWO_NAMES(all_to_all_single, alltoall_base,
                (const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                 const CallOptions& options),
                output, input, output_splits, input_splits, options)
TUTTI_TWO_NAMES(all_gather_single_coalesced, allgather_into_tensor_coalesced,
                (Tensors outputs, Tensors inputs, const CallOptions& options), outputs, inputs, options)
TUTTI_TWO_NAMES(reduce_scatter_single_coalesced, reduce_scatter_tensor_coalesced,
                (Tensors outputs, Tensors inputs, const ReduceOp& op, const CallOptions& options), outputs, inputs, op,
                options)
#undef TUTTI_TWO_NAMES

}  // namespace tutti::comm
