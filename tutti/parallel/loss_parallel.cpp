#include "tutti/parallel/loss_parallel.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>
#include <vector>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/core/tree_cut.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/dtensor.h"
#include "tutti/dist/joint_op.h"
#include "tutti/dist/redistribute.h"
#include "tutti/dist/wrapper.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/chunked_loss/call.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/linear_cross_entropy_shard.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/numerics.h"

namespace tutti::parallel {
namespace {

// Classes that the ranks of some axes divide, and rows that the other axes may.
struct ClassShards {
  dist::Mesh mesh;
  const dist::DTensorSpec* spec;  // of the tensor with the classes
  std::vector<int> axes;          // that cut the classes
  dist::Range here;               // the classes of this rank
  int64_t classes;
  dist::Placements row_placements;  // of rows, whose dim is the first; Replicate on the axes that cut the classes

  // The layout of a tensor of these sizes with one row each, and `on_axes` on the axes that cut the classes.
  const dist::DTensorSpec& of_rows(const Extents& sizes, DType dtype, Placement on_axes = dist::replicate()) const {
    dist::SpecFields fields = spec->fields();
    fields.placements = row_placements;
    for (const int axis : axes) fields.placements[static_cast<size_t>(axis)] = on_axes;
    fields.sizes = sizes;
    fields.dtype = dtype;
    return dist::DTensorSpec::of(std::move(fields), "loss_parallel");
  }
  bool has_all_rows() const {
    return std::all_of(row_placements.begin(), row_placements.end(),
                       [](const Placement& p) { return p.is_replicate(); });
  }
  Tensor rows(const Tensor& t) const { return dist::redistributed_part(t, of_rows(t.extents(), t.dtype())); }
};

// How dim `dim` of `t` is divided; nothing where this cannot be computed with, or would have other bits than one rank.
std::optional<ClassShards> class_shards(const Tensor& t, int dim, int64_t leaf) {
  if (!dist::is_dtensor(t)) return std::nullopt;
  const dist::DTensorSpec& spec = dist::spec_of(t);
  const int64_t classes = spec.sizes()[static_cast<size_t>(dim)];
  ClassShards shards{dist::mesh_of(t), &spec, spec.axes_of(dim), {}, classes, spec.placements()};
  if (shards.axes.empty() || spec.has_partial() || !std::is_sorted(spec.order().begin(), spec.order().end()) ||
      !shards.mesh->has_coordinate())
    return std::nullopt;
  int64_t ranks = 1;
  std::vector<int64_t> last(spec.mesh_shape().size(), 0);
  for (const int axis : shards.axes) {
    if (spec.placements()[static_cast<size_t>(axis)].pieces() != 1) return std::nullopt;
    ranks *= spec.mesh_shape()[static_cast<size_t>(axis)];
    shards.row_placements[static_cast<size_t>(axis)] = dist::replicate();
    last[static_cast<size_t>(axis)] = spec.mesh_shape()[static_cast<size_t>(axis)] - 1;
  }
  const bool is_tree = std::has_single_bit(static_cast<uint64_t>(ranks)) && ranks <= largest_cut(classes, leaf) &&
                       (spec.cut() == dist::Cut::halving || classes % ranks == 0);
  if (numerics_mode() == NumericsMode::strict && !is_tree) return std::nullopt;
  if (spec.indices(dim, last).size() == 0) return std::nullopt;
  const dist::IndexSet held = spec.indices(dim, shards.mesh->coordinate());
  if (held.ranges().size() != 1) return std::nullopt;
  shards.here = held.ranges()[0];
  return shards;
}

ClassStatistics combined(std::span<const ClassStatistics> of_ranks) {
  if (of_ranks.size() == 1) return of_ranks[0];
  const size_t left = (of_ranks.size() + 1) / 2;
  return combine(combined(of_ranks.first(left)), combined(of_ranks.subspan(left)));
}

// The statistics of all classes from those of each rank's.
ClassStatistics over_ranks(const ClassShards& shards, const ClassStatistics& mine) {
  const Tensor packed = stack({mine.maximum, mine.rest, mine.target});
  const auto group = shards.mesh->group_over(shards.axes);
  const Tensor all = comm::functional::all_gather_single(packed, 0, group);
  dist::CommCounter::note({.kind = dist::StepKind::gather,
                           .axes = shards.axes,
                           .from = shards.spec,
                           .to = shards.spec,
                           .bytes = static_cast<double>(packed.nbytes()) * static_cast<double>(group->size() - 1)});
  std::vector<ClassStatistics> of_ranks;
  for (int64_t r = 0; r < group->size(); ++r)
    of_ranks.push_back({select(all, 0, 3 * r), select(all, 0, 3 * r + 1), select(all, 0, 3 * r + 2)});
  return combined(of_ranks);
}

Tensor as_column(const Tensor& t) { return reshape(t, {-1, 1}); }
Tensor as_row(const Tensor& t) { return reshape(t, {-1}); }

// cross_entropy: logits [T, V], labels [T, 1] -> loss, maximum, rest [T, 1].
bool loss_of_logits(const OpCall& call, std::span<Tensor> outputs) {
  const auto shards = class_shards(call[0], 1, class_leaf());
  if (!shards || !dist::is_dtensor(call[1])) return false;
  const Tensor labels = as_row(shards->rows(call[1])), logits = dist::part_of(call[0], "cross_entropy").local;
  const ClassStatistics all =
      over_ranks(*shards, class_statistics(logits, labels, shards->here.begin, shards->classes));
  const Tensor results[] = {cross_entropy_of(all, labels), all.maximum, all.rest};
  for (size_t k = 0; k < 3; ++k)
    outputs[k] =
        dist::wrap(as_column(results[k]), shards->of_rows(call[1].extents(), results[k].dtype()), shards->mesh);
  return true;
}

// cross_entropy_backward: logits [T, V], cotangent, labels, maximum, rest [T, 1] -> gradient [T, V].
bool gradient_of_logits(const OpCall& call, std::span<Tensor> outputs) {
  const auto shards = class_shards(call[0], 1, class_leaf());
  for (size_t i = 1; i < 5; ++i) {
    if (!shards || !dist::is_dtensor(call[i])) return false;
  }
  const Tensor logits = dist::part_of(call[0], "cross_entropy_backward").local;
  std::vector<Tensor> rows;
  for (size_t i = 1; i < 5; ++i) rows.push_back(as_row(shards->rows(call[i])));
  outputs[0] =
      dist::wrap(cross_entropy_shard_backward(logits, rows[0], rows[1], {rows[2], rows[3], {}}, shards->here.begin),
                 *shards->spec, shards->mesh);
  return true;
}

// The classes of a linear cross entropy, whose axes must leave the rest of the weight whole; nothing where its options
// need more than three numbers per row.
std::optional<ClassShards> classes_of_linear(const OpCall& call) {
  if (chunked_loss::attrs_of(call).ignore_index != kIgnoreLabel || call[chunked_loss::kMix].extents()[1] > 0)
    return std::nullopt;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!dist::is_dtensor(call[i])) return std::nullopt;
  }
  auto shards =
      class_shards(call[chunked_loss::kWeight], 0, std::max<int64_t>(class_leaf(), codegen::contraction_leaf()));
  if (shards && !shards->has_all_rows()) return std::nullopt;
  return shards;
}

LinearShardOptions options_of(const OpCall& call, const ClassShards& shards) {
  const chunked_loss::LossAttrs& attrs = chunked_loss::attrs_of(call);
  LinearShardOptions options{.softcap = attrs.softcap,
                             .logits_dtype = attrs.logits,
                             .max_bytes = attrs.max_bytes,
                             .chunk_rows = attrs.chunk_rows,
                             .chunk_classes = attrs.chunk_classes};
  const Tensor& bias = call[chunked_loss::kBias];
  if (bias.numel() == 0) return options;
  dist::SpecFields fields = shards.spec->fields();
  fields.sizes = bias.extents();
  fields.dtype = bias.dtype();
  options.bias = dist::redistributed_part(bias, dist::DTensorSpec::of(std::move(fields), "loss_parallel"));
  return options;
}

// linear_cross_entropy: x [N, F], weight [V, F], labels [N, 1], bias -> loss, logsumexp [N, 1], nothing, maximum and
// rest [N, 2].
bool loss_of_linear(const OpCall& call, std::span<Tensor> outputs) {
  const auto shards = classes_of_linear(call);
  if (!shards) return false;
  const Tensor x = shards->rows(call[chunked_loss::kX]),
               weight = dist::part_of(call[chunked_loss::kWeight], "linear_cross_entropy").local;
  const Tensor labels = as_row(shards->rows(call[chunked_loss::kLabels]));
  const ClassStatistics all =
      over_ranks(*shards, linear_class_statistics(x, weight, labels, shards->here.begin, options_of(call, *shards)));
  const Tensor results[] = {as_column(cross_entropy_of(all, labels)), as_column(add(all.maximum, log1p(all.rest))),
                            full({x.size(0), 0}, 0.0, all.rest.dtype()), stack({all.maximum, all.rest}, 1)};
  for (size_t k = 0; k < 4; ++k)
    outputs[k] = dist::wrap(results[k], shards->of_rows(results[k].extents(), results[k].dtype()), shards->mesh);
  return true;
}

// linear_cross_entropy_backward: the same inputs, statistics [N, 2] and cotangents [N, 1] -> gradients of x, weight and
// bias, where they are needed. That of x is a sum over classes, whose terms the ranks have.
bool gradients_of_linear(const OpCall& call, std::span<Tensor> outputs) {
  using namespace chunked_loss;  // NOLINT: the words of its calls
  const auto shards = classes_of_linear(call);
  if (!shards || call[kGradMass].extents()[0] > 0) return false;
  const Tensor x = shards->rows(call[kX]), weight = dist::part_of(call[kWeight], "linear_cross_entropy_backward").local;
  const Tensor statistics = shards->rows(call[kStatistics]);
  const uint8_t needs = attrs_of(call).needs;
  const LinearShardGradients grads = linear_cross_entropy_shard_backward(
      x, weight, as_row(shards->rows(call[kGradLoss])), as_row(shards->rows(call[kLabels])),
      {contiguous(select(statistics, 1, 0)), contiguous(select(statistics, 1, 1)), {}}, shards->here.begin,
      {.input = (needs & kNeedX) != 0, .weight = (needs & kNeedWeight) != 0, .bias = (needs & kNeedBias) != 0},
      options_of(call, *shards));
  const DType computed = statistics.dtype();
  const auto none = [&](const Extents& sizes, DType dtype) {
    return dist::wrap(Tensor::empty(sizes, dtype), shards->of_rows(sizes, dtype), shards->mesh);
  };
  const auto of_classes = [&](const Tensor& part, const Extents& sizes) {
    dist::SpecFields fields = shards->spec->fields();
    fields.sizes = sizes;
    fields.dtype = computed;
    return dist::wrap(part, dist::DTensorSpec::of(std::move(fields), "loss_parallel"), shards->mesh);
  };
  outputs[0] = grads.input.defined()
                   ? dist::wrap(grads.input, shards->of_rows(call[kX].extents(), call[kX].dtype(), dist::partial()),
                                shards->mesh)
                   : none({0, 0}, call[kX].dtype());
  outputs[1] = grads.weight.defined() ? of_classes(grads.weight, call[kWeight].extents()) : none({0, 0}, computed);
  outputs[2] = grads.bias.defined() ? of_classes(grads.bias, call[kBias].extents()) : none({0}, computed);
  return true;
}

// Runs below autograd and below the stage of distributed tensors, where only parts are seen.
dist::JointFunction on_parts(bool (*function)(const OpCall&, std::span<Tensor>)) {
  return [function](const OpCall& call, std::span<Tensor> outputs) {
    const StageScope below(0, static_cast<StageMask>(mask_of(StagePlace::autograd) | mask_of(StagePlace::sharding)));
    return function(call, outputs);
  };
}

}  // namespace

void enable_loss_parallel() {
  static std::once_flag once;
  std::call_once(once, [] {
    dist::register_joint(find_op("cross_entropy"), on_parts(loss_of_logits));
    dist::register_joint(find_op("cross_entropy_backward"), on_parts(gradient_of_logits));
    dist::register_joint(find_op("linear_cross_entropy"), on_parts(loss_of_linear));
    dist::register_joint(find_op("linear_cross_entropy_backward"), on_parts(gradients_of_linear));
  });
}

}  // namespace tutti::parallel
