// Virtual shards: the unit in which forward and backward of a training loop run (numerics contract, N5).
//
// The rows of a step are V shards of equal size, in order, and R data-parallel ranks share them out, 1 <= R <= V. The
// gradient of each use of a parameter is added by one binary tree over the shards, as soon as backward delivers it;
// ranks add theirs by the same tree, and the uses of a parameter are added last, in forward order. So losses and
// gradients have the same bits for every R:
//
//   Shards shards(8, &group, parameters);
//   for each step:
//     for (const int64_t s : shards.mine()) {
//       DrawScope draws(step, s);  // masks of dropout, for example
//       ... forward of shard s gives losses
//       backward(losses, scale, {.sink = shards.sink()});
//       shards.add(losses);
//     }
//     ShardSums sums = shards.finish();  // the same on every rank
//
// A rank keeps at most as many sets of f32 gradients as its shards so far have maximal nodes, and one: log2(V / R) + 1
// for powers of two. Ranks exchange gradients in buckets (gradient_buckets.h). One object belongs to one thread of a
// rank.
//
// Each rank gets the part that it stores of the gradient of a parameter that fully_shard() has taken, as a distributed
// tensor like the master.
//
// Where parameters are distributed tensors over a mesh of one dim, as parallelize_module() makes them, its ranks make
// the same calls with the same rows, and `group` are the ranks that have the same parts.
//
// Hooks of parameters run in finish(), once a step and in the order of the parameters, on the sum over shards, ranks
// and uses. The grad of the parameters stays as it is, and so their post-accumulate hooks do not run: a program that
// wants them calls autograd::accumulate_grad() with the results.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/core/exact_sum.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/parallel/gradient_tree.h"

namespace tutti::parallel {

// When ranks exchange gradients. Both give the same bits.
enum class Schedule : uint8_t {
  once_a_step,  // rank r runs consecutive shards and keeps their maximal nodes until the end of the step: the fewest
                // bytes
  every_round,  // rank r runs the shards r, R + r, ...; after each, the owners of slices take their part: the least
                // memory when parameters are sharded too
};
// Parses "once_a_step" or "every_round". UsageError for another text.
Schedule parse_schedule(std::string_view text);

// What a rank does while gradients travel. All give the same bits.
enum class Overlap : uint8_t {
  none,
  // With once_a_step, buckets begin to move under the backward of a rank's last shard, as soon as their parameters are
  // finished. Needs two shards a rank, V >= 2 R, because only after the first one the ranks know what comes; with fewer
  // it changes nothing.
  backward,
};
// Parses "none" or "backward". UsageError for another text.
Overlap parse_overlap(std::string_view text);

// The result of a step, the same on every rank.
struct ShardSums {
  double loss = 0;  // the exact sum of all losses, rounded once
  std::vector<Tensor>
      gradients;  // one f32 tensor per parameter, placed as its master, after its hooks; undefined: it has no use
  ExactSum squares{ExactTerm::square};  // of all elements of the gradients, for the norm (numerics contract, N7)
};

class Shards {
 public:
  // `count` shards over the ranks of `group`, which must outlive this; null: one rank. `parameters` are the leaves
  // whose gradients are added, each once; Parameter::leaf() gives another tensor after Module::to(dtype), so make this
  // afterwards. UsageError unless `count` is a power of two and at least the number of ranks, when a parameter is
  // undefined or given twice, for every_round with an overlap, and for a parameter that is stored on other ranks than
  // those of `group`.
  Shards(int64_t count, comm::ProcessGroup* group, const std::vector<Tensor>& parameters,
         Schedule schedule = Schedule::once_a_step, Overlap overlap = Overlap::none);
  Shards(const Shards&) = delete;  // backward tells this object, through its sink, what has finished
  Shards& operator=(const Shards&) = delete;

  // How many buckets of gradients may be on their way at once with Overlap::backward; at first 2. They are a queue:
  // before one more starts, the oldest ends. Backward does not wait for that: a bucket that finds no room starts with a
  // later one, or in finish(), which waits, and a trace shows it as FSDP::post_backward_rs_wait. Each takes the memory
  // of a bucket and of what comes in. All ranks give the same number, between steps. UsageError below 1.
  void set_reduce_scatter_max_input_buffers(int64_t count);

  int64_t count() const { return count_; }
  int ranks() const { return ranks_; }
  // Returns the shards of this rank, in the order in which it must run them.
  const std::vector<int64_t>& mine() const { return mine_; }
  // The largest number of shards of a rank.
  int64_t rounds() const { return (count_ + ranks_ - 1) / ranks_; }
  // Returns the sink for the backward of this rank's next shard, see BackwardOptions::sink. It is the same object in
  // every step.
  UseSink* sink() { return &tree_; }
  // Returns the part of the ranks' time in which they run shards when all shards take equally long: V / (R ceil(V /
  // R)).
  double efficiency() const;
  // Returns a sentence for the user when the efficiency is below 1, else "".
  std::string advice() const;

  // Returns the sum of `mine` over ranks, such as the number of labels that count in a step. Collective.
  int64_t sum(int64_t mine) const;
  // Call after the backward of this rank's next shard, with its losses (f32, any shape). With every_round this call is
  // collective. UsageError when all shards of the step were added; naming parameter and shard when the uses of a
  // parameter are not those of the shard before, in number or size; and on all ranks when the uses of a rank differ
  // from those of rank 0.
  void add(const Tensor& losses);
  // Takes part in the last round of every_round on a rank that has no shard in it, with nothing; elsewhere it does
  // nothing. finish() does what it does; call it before that where calls of other groups follow in the ranks that have
  // a shard. Collective.
  void skip();
  // Call on every rank after all of its shards were added; collective. UsageError when some were not, and on all ranks
  // when the uses of a rank differ from those of rank 0.
  ShardSums finish();
  // How many buckets of the last step began to move under backward, of how many.
  struct EarlyBuckets {
    size_t early = 0, all = 0;
    InputBufferUse use = {};
  };
  EarlyBuckets early_buckets() const { return early_; }
  // Drops what the shards of this step have brought, also uses of a backward that has thrown in the middle: the next
  // shard is the first of the step again. Not collective, but all ranks must begin the same step again. An add() or
  // finish() in which ranks communicate does this when it throws. With Overlap::backward other ranks may have begun to
  // send by then: their backward or finish() throws a UsageError that says which rank has abandoned the step, and they
  // must abandon it, too. So they do until the last call of finish(), also when a hook of a parameter throws there.
  void abandon();

 private:
  template <class Meeting>
  void meet(uint64_t layout, const Meeting& meeting);
  void compare_layouts(uint64_t layout) const;
  void check_layouts(std::span<const int64_t> layouts) const;
  void abandon(std::string_view why);
  std::vector<comm::ProcessGroup*> calls_left();
  void reset();
  bool overlaps() const;
  bool lacks_a_round() const;  // with every_round
  void begin_exchange();
  void start_ready();
  void pass_gate();
  void take_parameters(const GradientBucket& bucket);

  comm::ProcessGroup* const group_;
  const int ranks_;
  const int64_t count_;
  const Schedule schedule_;
  const std::vector<int64_t> mine_;
  const std::vector<Tensor> parameters_;
  const Keepers keepers_;
  const dist::Mesh
      mesh_;  // of the ranks that divide parameters which are distributed tensors (tensor_parallel.h); null: none
  size_t max_input_buffers_ = kInputBuffers;
  comm::NodePlan plan_;                  // of once_a_step
  std::optional<RoundExchange> rounds_;  // of every_round, when there are several ranks
  // The exchange under backward: it begins when `gate_`, in which the ranks tell each other their layouts, has ended.
  const Overlap overlap_;
  std::optional<StepExchange> exchange_;
  std::vector<GradientNode> nodes_;
  Tensor layouts_;
  comm::Work gate_;
  bool is_through_ = false, has_parted_ = false;  // the gate has ended, well or in an error of all ranks
  bool is_closing_ = false;                       // the gradients are added; the call that ends the step is not made
  std::vector<bool> is_taken_;                    // by parameter, whether its sums have moved from the tree to nodes_
  GradientTree tree_;
  size_t added_ = 0;
  bool has_skipped_ = false;
  EarlyBuckets early_;
  ExactSum loss_{ExactTerm::value};
};

}  // namespace tutti::parallel
