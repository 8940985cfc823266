#include "tests/layouts/support/parallel_run.h"

#include <algorithm>

#include "tests/layouts/support/function.h"
#include "tests/layouts/support/meter.h"
#include "tests/layouts/support/parallel_model.h"
#include "tests/layouts/support/plan.h"
#include "tutti/autograd/backward.h"
#include "tutti/comm/process_group.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/parallel/gradient_tree.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::layouts {
namespace {

// What a rank keeps of a parameter between steps.
struct Held {
  ParameterSpec spec;
  RankRecord::Piece piece;
  Extents local_sizes;  // of the part of this tp rank, whole over fsdp
  Tensor master, m, v;
  Tensor leaf;          // the master as autograd knows it
  const Axis* storage;  // the ranks that share the storage; null: every rank has its own
};

class RankRun {
 public:
  RankRun(const ModelConfig& config, const RunConfig& run, const Layout& layout, comm::ProcessGroup& world)
      : c_(config), run_(run), world_(world), place_(world, layout, run), model_(config, run, place_) {
    for (const ParameterSpec& spec : model_.specs()) hold(spec);
    model_.parameter = [this](const std::string& name) {
      return use_of(*std::ranges::find(held_, name, [](const Held& h) { return h.spec.name; }));
    };
  }

  RankRecord train() {
    Meter meter;
    RankContext::current().allocator().reset_peak();
    for (int64_t step = 0; step < run_.steps; ++step) record_.steps.push_back(train_step(step));
    for (const Held& h : held_) {
      record_.weights[h.spec.name] = h.master;
      record_.pieces[h.spec.name] = h.piece;
    }
    Usage& usage = record_.usage;
    usage.flops = meter.flops();
    usage.wire_bytes = meter.wire_bytes();
    usage.memory = RankContext::current().allocator().statistics();
    const auto at_rest = [&](MemoryCategory category) {
      return usage.memory.current_by_category[static_cast<size_t>(category)];
    };
    usage.parameter_bytes = at_rest(MemoryCategory::parameters);
    usage.optimizer_bytes = at_rest(MemoryCategory::optimizer);
    for (const Held& h : held_) usage.planned_parameter_bytes += h.master.nbytes();
    usage.planned_flops = planned_flops(c_, run_, place_, model_.specs());
    usage.planned_wire_bytes = planned_wire_bytes(c_, run_, place_, model_.specs());
    return std::move(record_);
  }

 private:
  void hold(const ParameterSpec& spec) {
    Held h{.spec = spec,
           .piece = {},
           .local_sizes = spec.sizes,
           .master = {},
           .m = {},
           .v = {},
           .storage = place_.storage_axis(spec.expert >= 0)};
    Tensor local = initial_value(spec);
    if (spec.tp_dim >= 0) {
      h.piece.tp_dim = spec.tp_dim;
      h.piece.tp = tp_part(spec, place_.tp.rank(), place_.tp.size());
      local = part_of(local, spec.tp_dim, h.piece.tp);
      h.local_sizes = local.extents();
    }
    h.piece.flat_end = local.numel();
    if (h.storage) {
      const TreeCut part = storage_part(local.numel(), h.storage->rank(), h.storage->size());
      h.piece.flat_begin = part.begin;
      h.piece.flat_end = part.end;
    }
    {
      const MemoryCategoryScope category(MemoryCategory::parameters);
      h.master = part_of(reshape(local, {-1}), 0, {h.piece.flat_begin, h.piece.flat_end});
    }
    const MemoryCategoryScope category(MemoryCategory::optimizer);
    h.m = zeros_like(h.master);
    h.v = zeros_like(h.master);
    h.leaf = requires_grad_(detach(h.master));
    held_.push_back(h);
  }

  // The parameter for one use. Its gradient is reduced at once, from the lowest level of the tree up, which is the end
  // of this function first: within the microbatch, over the ranks that share the storage, over replicas.
  Tensor use_of(const Held& h) const {
    const MemoryCategoryScope category(MemoryCategory::parameters);
    Tensor p = with_cotangent(h.leaf, [this, &h](const Tensor& g) { return over_replicas(h, g); });
    if (h.storage) p = gathered(p, numel_of(h.local_sizes), *h.storage);
    p = reshape(p, to_shape(h.local_sizes));
    return with_cotangent(p, [this, &h](const Tensor& g) { return within_microbatch(h, g); });
  }

  // The whole of a flat parameter. Short parts are sent with padding, whose cotangents are dropped.
  static Tensor gathered(const Tensor& part, int64_t numel, const Axis& storage) {
    const int64_t padding = largest_storage_part(numel, storage.size()) - part.numel();
    return narrow(storage.all_gather(padding == 0 ? part : cat({part, zeros({padding})}, 0)), 0, 0, numel);
  }

  Tensor within_microbatch(const Held& h, Tensor g) const {
    const bool tokens_over_tp = place_.layout.sequence && h.spec.sums_tokens_of_sequence;
    if (h.spec.partial_over_heads || tokens_over_tp) g = place_.tp.all_reduce(g);
    if (!h.spec.partial_over_heads) g = place_.cp.all_reduce(g);
    return h.spec.expert >= 0 && place_.ep.size() > 1 ? sum(g, {.dims = {0}, .leaf = 1}) : g;
  }

  Tensor over_replicas(const Held& h, const Tensor& g) const {
    if (place_.layout.rank_major) return g;
    if (h.spec.expert >= 0) return h.storage ? g : place_.expert_data.all_reduce(g);
    return (h.storage ? place_.dp : place_.data).all_reduce(g);
  }

  struct Microbatch {
    Tensor output;  // losses, or on all but the last stage the token of the activations sent
    int64_t shard = 0;
  };

  int64_t shard_of(int64_t microbatch) const {
    const int64_t ranks = place_.data.size();
    return place_.layout.rank_major
               ? parallel::shards_of_rank(run_.shards, place_.data.rank(), static_cast<int>(ranks)).begin + microbatch
               : microbatch * ranks + place_.data.rank();
  }

  Microbatch forward(int64_t microbatch, const Batch& batch, ExactSum& loss) {
    const size_t shard = static_cast<size_t>(shard_of(microbatch));
    Microbatch mb;
    mb.shard = place_.layout.rank_major ? shard_of(microbatch) : microbatch;
    Tensor input;
    if (!place_.first_stage()) {
      const Tensor like = Tensor::empty({place_.local_tokens(), c_.dim}, c_.compute);
      input = place_.pp.receive_previous(requires_grad_(like));
    }
    mb.output = model_.forward(input, batch.tokens[shard], batch.labels[shard]);
    if (!place_.last_stage()) {
      mb.output = place_.pp.send_next(with_rounded_cotangent(mb.output));
    } else if (place_.tp.rank() == 0) {
      loss.add({mb.output.data<float>(), static_cast<size_t>(mb.output.numel())});
    }
    return mb;
  }

  // The backward of a token waits for the cotangent of the activations, which the backward of the next stage sends.
  void backward_of(Microbatch& mb, const Batch& batch, parallel::GradientTree& tree) {
    tree.begin(mb.shard);
    backward(mb.output, full_like(detach(mb.output), 1.0 / static_cast<double>(batch.valid)), {.sink = &tree});
    tree.end();
    mb = {};
  }

  StepRecord train_step(int64_t step) {
    const Batch batch = batch_of_step(c_, run_, step);
    const int64_t microbatches = run_.shards / place_.data.size();
    ExactSum loss(ExactTerm::value);
    std::vector<Tensor> leaves;
    for (const Held& h : held_) leaves.push_back(h.leaf);
    parallel::GradientTree tree(leaves);
    if (place_.last_stage()) {
      for (int64_t i = 0; i < microbatches; ++i) {
        Microbatch mb = forward(i, batch, loss);
        backward_of(mb, batch, tree);
      }
    } else {
      std::vector<Microbatch> running;
      for (int64_t i = 0; i < microbatches; ++i) running.push_back(forward(i, batch, loss));
      for (Microbatch& mb : running) backward_of(mb, batch, tree);
    }
    return update(step, batch, loss, finish(tree));
  }

  std::vector<Tensor> finish(parallel::GradientTree& tree) {
    const int64_t ranks = place_.data.size();
    const bool is_over_ranks = place_.layout.rank_major;
    const comm::NodePlan plan = is_over_ranks ? parallel::consecutive_shards(run_.shards, static_cast<int>(ranks))
                                              : parallel::consecutive_shards(run_.shards / ranks, 1);
    std::vector<Tensor> grads = parallel::reduce_gradients(
        tree.take(), plan, is_over_ranks ? &world_ : nullptr,
        is_over_ranks ? parallel::GradientPlacements(held_.size(), world_.rank(), world_.size())
                      : parallel::GradientPlacements(held_.size(), 0, 1));
    // The two uses of a tied table lie on the first and the last stage; they are added last, in forward order.
    for (size_t p = 0; p < held_.size(); ++p) {
      if (held_[p].spec.layer >= 0 || place_.pp.size() == 1 || !c_.tied) continue;
      const std::vector<Tensor> uses = place_.pp.gather_each(grads[p]);
      grads[p] = add(uses.front(), uses.back());
    }
    return grads;
  }

  // Whether this rank counts for the gradient norm what several ranks hold.
  bool counts(const Held& h) const {
    if (h.spec.layer < 0 && !place_.first_stage()) return false;
    if (h.spec.tp_dim < 0 && place_.tp.rank() != 0) return false;
    if (place_.cp.rank() != 0) return false;
    if (h.spec.expert >= 0) return h.storage != nullptr || place_.expert_data.rank() == 0;
    return h.storage != nullptr ? place_.dp.rank() == 0 : place_.data.rank() == 0;
  }

  // The sum over all ranks.
  double total(ExactSum sum) const {
    auto words = sum.words();
    world_.all_reduce_values<int64_t>(words);
    sum.set_words(words);
    return sum.value();
  }
  float norm_of(const std::vector<Tensor>& grads) const {
    std::vector<Tensor> mine;
    for (size_t p = 0; p < held_.size(); ++p) {
      if (counts(held_[p])) mine.push_back(grads[p]);
    }
    ExactSum squares = optim::square_sum(mine);
    auto words = squares.words();
    world_.all_reduce_values<int64_t>(words);
    squares.set_words(words);
    return optim::norm_of(squares);
  }

  StepRecord update(int64_t step, const Batch& batch, const ExactSum& loss, const std::vector<Tensor>& grads) {
    StepRecord result;
    result.loss = static_cast<float>(total(loss) / static_cast<double>(batch.valid));
    result.norm = norm_of(grads);
    const double scale = optim::clip_scale(result.norm, run_.max_norm);
    const NoGradScope no_grad;
    for (size_t p = 0; p < held_.size(); ++p) {
      const Held& h = held_[p];
      result.grads[h.spec.name] = to_contiguous(grads[p]);
      adamw_step_(h.master, reshape(result.grads[h.spec.name], {-1}), h.m, h.v,
                  {.lr = run_.lr, .step = step + 1, .grad_scale = scale});
    }
    return result;
  }

  ModelConfig c_;
  RunConfig run_;
  comm::ProcessGroup& world_;
  Place place_;
  ParallelModel model_;
  std::vector<Held> held_;
  RankRecord record_;
};

}  // namespace

RankRecord train_rank(const ModelConfig& config, const RunConfig& run, const Layout& layout,
                      comm::ProcessGroup& world) {
  RankContext::current().set_threads(1);
  return RankRun(config, run, layout, world).train();
}

}  // namespace tutti::layouts
