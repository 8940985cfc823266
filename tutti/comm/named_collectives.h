// NamedCollectives: a method for each collective, by its present name and those of older releases, which makes a
// CollectiveCall of its arguments and runs it. Groups and backends have them all from here; docs/comm.md says what each
// does.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/comm/collective_call.h"
#include "tutti/comm/work.h"

namespace tutti::comm {

// Self has `Work run(const CollectiveCall&)`.
template <class Self>
class NamedCollectives {
  using Kind = CollectiveKind;
  using Options = CallOptions;

 public:
  Work broadcast(const Tensor& tensor, int root, const Options& options = {}) {
    return make({.kind = Kind::broadcast, .outputs = {&tensor, 1}, .root = root, .options = options});
  }
  Work all_reduce(const Tensor& tensor, const ReduceOp& op = {}, const Options& options = {}) {
    return make({.kind = Kind::all_reduce, .outputs = {&tensor, 1}, .reduce = op, .options = options});
  }
  Work all_reduce_coalesced(Tensors tensors, const ReduceOp& op = {}, const Options& options = {}) {
    return make({.kind = Kind::all_reduce_coalesced, .outputs = tensors, .reduce = op, .options = options});
  }
  Work reduce(const Tensor& tensor, int root, const ReduceOp& op = {}, const Options& options = {}) {
    return make({.kind = Kind::reduce, .outputs = {&tensor, 1}, .root = root, .reduce = op, .options = options});
  }
  Work all_gather(Tensors outputs, const Tensor& input, const Options& options = {}) {
    return make({.kind = Kind::all_gather, .outputs = outputs, .inputs = {&input, 1}, .options = options});
  }
  // The same with inputs of different sizes; outputs[i] has the size of rank i's input.
  Work all_gather_v(Tensors outputs, const Tensor& input, const Options& options = {}) {
    return all_gather(outputs, input, options);
  }
  // outputs[i] is the list of W outputs of inputs[i], as all_gather takes it.
  Work all_gather_coalesced(std::span<const std::vector<Tensor>> outputs, Tensors inputs, const Options& options = {}) {
    return make({.kind = Kind::all_gather_coalesced, .inputs = inputs, .output_lists = outputs, .options = options});
  }
  Work all_gather_single(const Tensor& output, const Tensor& input, const Options& options = {}) {
    return make({.kind = Kind::all_gather_single, .outputs = {&output, 1}, .inputs = {&input, 1}, .options = options});
  }
  Work all_gather_single_coalesced(Tensors outputs, Tensors inputs, const Options& options = {}) {
    return make({.kind = Kind::all_gather_single_coalesced, .outputs = outputs, .inputs = inputs, .options = options});
  }
  Work gather(Tensors outputs, const Tensor& input, int root, const Options& options = {}) {
    return make({.kind = Kind::gather, .outputs = outputs, .inputs = {&input, 1}, .root = root, .options = options});
  }
  Work scatter(const Tensor& output, Tensors inputs, int root, const Options& options = {}) {
    return make({.kind = Kind::scatter, .outputs = {&output, 1}, .inputs = inputs, .root = root, .options = options});
  }
  Work reduce_scatter(const Tensor& output, Tensors inputs, const ReduceOp& op = {}, const Options& options = {}) {
    return make(
        {.kind = Kind::reduce_scatter, .outputs = {&output, 1}, .inputs = inputs, .reduce = op, .options = options});
  }
  Work reduce_scatter_v(const Tensor& output, Tensors inputs, const ReduceOp& op = {}, const Options& options = {}) {
    return reduce_scatter(output, inputs, op, options);
  }
  Work reduce_scatter_single(const Tensor& output, const Tensor& input, const ReduceOp& op = {},
                             const Options& options = {}) {
    return make({.kind = Kind::reduce_scatter_single,
                 .outputs = {&output, 1},
                 .inputs = {&input, 1},
                 .reduce = op,
                 .options = options});
  }
  Work reduce_scatter_single_coalesced(Tensors outputs, Tensors inputs, const ReduceOp& op = {},
                                       const Options& options = {}) {
    return make({.kind = Kind::reduce_scatter_single_coalesced,
                 .outputs = outputs,
                 .inputs = inputs,
                 .reduce = op,
                 .options = options});
  }
  Work all_to_all(Tensors outputs, Tensors inputs, const Options& options = {}) {
    return make({.kind = Kind::all_to_all, .outputs = outputs, .inputs = inputs, .options = options});
  }
  Work all_to_all_single(const Tensor& output, const Tensor& input, const Options& options = {}) {
    return make({.kind = Kind::all_to_all_single, .outputs = {&output, 1}, .inputs = {&input, 1}, .options = options});
  }
  // Splits count rows of dim 0; without any the parts are equal.
  Work all_to_all_single(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                         const Options& options = {}) {
    if (output_splits.empty() && input_splits.empty()) return all_to_all_single(output, input, options);
    return make({.kind = Kind::all_to_all_v_single,
                 .outputs = {&output, 1},
                 .inputs = {&input, 1},
                 .output_splits = output_splits,
                 .input_splits = input_splits,
                 .options = options});
  }
  Work all_to_all_v_single(const Tensor& output, const Tensor& input, Splits output_splits, Splits input_splits,
                           const Options& options = {}) {
    return all_to_all_single(output, input, output_splits, input_splits, options);
  }
  // Only the senders know the splits, i64 [W], which are read when the call is made. Rows come first in `output`, from
  // rank 0, then rank 1, ...; the others become -0.0, or 0 in integers. `output_splits`, i64 [W], gets the number of
  // rows from each rank.
  Work all_to_all_v_padded_single(const Tensor& output, const Tensor& output_splits, const Tensor& input,
                                  const Tensor& input_splits, const Options& options = {}) {
    const Tensor outputs[] = {output, output_splits}, inputs[] = {input, input_splits};
    return make({.kind = Kind::all_to_all_v_padded_single, .outputs = outputs, .inputs = inputs, .options = options});
  }
  Work barrier(const Options& options = {}) { return make({.kind = Kind::barrier, .options = options}); }

  // ---- names of older releases
  [[deprecated("all_reduce")]] Work allreduce(const Tensor& t, const ReduceOp& op = {}, const Options& o = {}) {
    return all_reduce(t, op, o);
  }
  [[deprecated("all_gather")]] Work allgather(Tensors out, const Tensor& in, const Options& o = {}) {
    return all_gather(out, in, o);
  }
  [[deprecated("all_gather_single")]] Work _allgather_base(const Tensor& out, const Tensor& in, const Options& o = {}) {
    return all_gather_single(out, in, o);
  }
  [[deprecated("all_gather_single")]] Work _all_gather_base(const Tensor& out, const Tensor& in,
                                                            const Options& o = {}) {
    return all_gather_single(out, in, o);
  }
  [[deprecated("all_gather_single")]] Work all_gather_into_tensor(const Tensor& out, const Tensor& in,
                                                                  const Options& o = {}) {
    return all_gather_single(out, in, o);
  }
  [[deprecated("all_gather_single_coalesced")]] Work allgather_into_tensor_coalesced(Tensors out, Tensors in,
                                                                                     const Options& o = {}) {
    return all_gather_single_coalesced(out, in, o);
  }
  [[deprecated("reduce_scatter_single")]] Work _reduce_scatter_base(const Tensor& out, const Tensor& in,
                                                                    const ReduceOp& op = {}, const Options& o = {}) {
    return reduce_scatter_single(out, in, op, o);
  }
  [[deprecated("reduce_scatter_single")]] Work reduce_scatter_tensor(const Tensor& out, const Tensor& in,
                                                                     const ReduceOp& op = {}, const Options& o = {}) {
    return reduce_scatter_single(out, in, op, o);
  }
  [[deprecated("reduce_scatter_single_coalesced")]] Work reduce_scatter_tensor_coalesced(Tensors out, Tensors in,
                                                                                         const ReduceOp& op = {},
                                                                                         const Options& o = {}) {
    return reduce_scatter_single_coalesced(out, in, op, o);
  }
  [[deprecated("all_reduce_coalesced")]] Work allreduce_coalesced(Tensors t, const ReduceOp& op = {},
                                                                  const Options& o = {}) {
    return all_reduce_coalesced(t, op, o);
  }
  [[deprecated("all_to_all")]] Work alltoall(Tensors out, Tensors in, const Options& o = {}) {
    return all_to_all(out, in, o);
  }
  [[deprecated("all_to_all_v_single")]] Work alltoall_base(const Tensor& out, const Tensor& in, Splits out_splits,
                                                           Splits in_splits, const Options& o = {}) {
    return all_to_all_v_single(out, in, out_splits, in_splits, o);
  }

 private:
  Work make(const CollectiveCall& call) { return static_cast<Self&>(*this).run(call); }
};

}  // namespace tutti::comm
