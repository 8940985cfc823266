// DTensor: tensors whose elements are spread over the ranks of a mesh, used like any other.
//
//   const Mesh mesh = init_device_mesh("cpu", {4}, {.names = {"tp"}});
//   const Tensor w = distribute_tensor(weight, mesh, {Placement::shard(0)});
//   const Tensor y = matmul(x, w);         // x is a distributed tensor, too; so is y
//   const Tensor all = full_tensor(y);     // every rank has all elements
//
// A distributed tensor has the sizes and dtype of the whole. Ops on it run on the parts; where their sharding rules
// want another layout, inputs are redistributed first. Autograd records ops on the whole. All ranks of the mesh make
// the same calls in the same order. In strict mode (numerics contract, N9) results have the bits of one rank in any
// layout; dims are cut at the borders of the reduction tree, which are those of torch.chunk where the ranks divide the
// size evenly.
//
// A rank outside of the mesh holds nothing, and its calls do nothing.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/dist/wrapper.h"
#include "tutti/ops/random_key.h"

namespace tutti::dist {

inline Placement shard(int dim) { return Placement::shard(dim); }
inline Placement replicate() { return Placement::replicate(); }
inline Placement partial(PartialOp op = PartialOp::sum) { return Placement::partial(op); }

struct LayoutOptions {
  // The dims of the mesh in the order in which they cut, outermost first; empty: ascending.
  std::vector<int> order = {};
  Cut cut = Cut::halving;
};

// ---- queries

const DTensorSpec& spec_of(const Tensor& t);  // UsageError for a plain tensor, as below
const Mesh& mesh_of(const Tensor& t);
const Placements& placements_of(const Tensor& t);

// ---- in and out

struct DistributeOptions {
  LayoutOptions layout = {};
  // The rank, within the mesh, whose elements are taken; -1: every rank has them, and cuts its own without
  // communication.
  int src_data_rank = 0;
  // The part of a rank may lie in the memory of `t`, which nobody writes as long as it is used.
  bool shares_memory = false;
};
// Every rank's part of `t`, which has the same sizes and dtype on all ranks; the elements are those of one of them.
// Placements may be Shard and Replicate; empty: Replicate everywhere. A leaf that requires grad gives one. A
// distributed tensor of these placements is returned as it is. UsageError for Partial, for a result of a recorded op,
// and for a distributed tensor of other placements.
Tensor distribute_tensor(const Tensor& t, const Mesh& mesh, Placements placements = {},
                         const DistributeOptions& options = {});

struct FromLocalOptions {
  LayoutOptions layout = {};
  // The sizes of the whole. Without them all ranks must hold equally much. UsageError when the part does not have the
  // sizes that the layout gives this rank.
  std::optional<Extents> sizes = {};
  // Asks all ranks for sizes and dtypes, compares the parts where they should be replicas, and reports differences as
  // UsageError.
  bool run_check = false;
  // Where the cotangent of the result goes before it becomes that of `local`; by default as the result, Replicate where
  // that is Partial.
  std::optional<Placements> grad_placements = {};
};
// The distributed tensor of which this rank holds `local`, whose memory it shares. Terms of sums of narrow floats are
// widened to f32.
Tensor from_local(const Tensor& local, const Mesh& mesh, Placements placements = {},
                  const FromLocalOptions& options = {});

// While it lives, calls of to_local() on this thread remember to compare, in their backward, cotangents that are said
// to be replicas: bytes of all of them travel, and a difference is a UsageError on all ranks. For finding code on parts
// whose gradients are terms of a sum.
class CheckGradientsScope {
 public:
  CheckGradientsScope();
  ~CheckGradientsScope();
  CheckGradientsScope(const CheckGradientsScope&) = delete;
  CheckGradientsScope& operator=(const CheckGradientsScope&) = delete;

 private:
  const bool before_;
};

// This rank's part, in the same memory. `grad_placements` says what the ranks' cotangents of their parts are of the
// whole: by default what the parts are, and replicas where the tensor is Partial; where it is replicated, Partial says
// that each rank has a term of it. UsageError for others, which no gradient can have.
Tensor to_local(const Tensor& t, std::optional<Placements> grad_placements = {});
// The whole, on every rank; in the memory of the part where that is the whole.
Tensor full_tensor(const Tensor& t, std::optional<Placements> grad_placements = {});

struct RedistributeOptions {
  std::optional<LayoutOptions> layout = {};  // by default that of the tensor; on another mesh the one without options
  // The call returns once its last collective has started; whatever reads elements of the result waits for it, and
  // throws its error. The gradient goes back in the same way. The input may be changed or freed at once, and a result
  // that nobody reads costs nothing more.
  bool async_op = false;
};
// The same tensor in another layout, in memory of its own; a tensor that has the layout is returned as it is.
// Placements may be Partial: the first rank then holds the value, the others the identity (sum), or all hold it (avg,
// min, max). Bits are kept by everything but sums over ranks, which are those of one rank.
Tensor redistribute(const Tensor& t, Placements placements, const RedistributeOptions& options = {});

// The same tensor on another mesh, whose ranks may be others; every rank of either takes part, and of both gets what it
// lacks from one that has it. Below autograd: no gradient flows back. UsageError for Partial placements on either side.
Tensor redistribute(const Tensor& t, const Mesh& mesh, Placements placements, const RedistributeOptions& options = {});

// ---- new tensors, of which each rank makes its part only

Tensor zeros(const Shape& sizes, const Mesh& mesh, Placements placements = {}, DType dtype = DType::f32);
Tensor ones(const Shape& sizes, const Mesh& mesh, Placements placements = {}, DType dtype = DType::f32);
Tensor full(const Shape& sizes, double value, const Mesh& mesh, Placements placements = {}, DType dtype = DType::f32);
Tensor empty(const Shape& sizes, const Mesh& mesh, Placements placements = {}, DType dtype = DType::f32);
// The numbers that uniform(sizes, key) and normal(sizes, key) draw, in any layout.
Tensor rand(const Shape& sizes, const RandomKey& key, const Mesh& mesh, Placements placements = {},
            DType dtype = DType::f32);
Tensor randn(const Shape& sizes, const RandomKey& key, const Mesh& mesh, Placements placements = {},
             DType dtype = DType::f32);

// This rank's part of the numbers that draw(sizes, key) would give in the sizes of `like`, a distributed tensor: draw()
// is called for parts, with keys that begin at their first element. For library code that fills such tensors.
Tensor drawn_part(const Tensor& like, const RandomKey& key,
                  const std::function<Tensor(const Shape& sizes, const RandomKey& key)>& draw);

// ---- reading

// Whether two distributed tensors of one mesh have equal sizes, dtypes and elements; the same answer on all ranks.
bool equal(const Tensor& a, const Tensor& b);

// ---- local code

struct LocalMapOptions {
  std::vector<Placements> out_placements;           // one per result
  std::vector<Placements> in_placements = {};       // one per input; empty: as they are
  std::vector<Placements> in_grad_placements = {};  // of cotangents of the inputs; empty: as the inputs
  bool redistribute_inputs = false;                 // else other placements are a UsageError
};
// Calls fn with the parts of `inputs` and makes its results distributed tensors. Sizes of the results follow from their
// parts, which may be uneven: ranks tell each other.
std::vector<Tensor> local_map(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& fn,
                              std::span<const Tensor> inputs, const LocalMapOptions& options);

}  // namespace tutti::dist
