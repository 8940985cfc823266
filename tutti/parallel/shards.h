// Virtual shards: the unit in which forward and backward of a training loop run (numerics contract, N5).
//
// The rows of a step are V shards of equal size, in order, and R data-parallel ranks share them out, 1 <= R <= V. The
// gradient of each use of a parameter is added by one binary tree over the shards, as soon as backward delivers it;
// ranks add theirs by the same tree, and the uses of a parameter are added last, in forward order. So losses and
// gradients have the same bits for every R:
//
//   Shards shards(8, &group, nn::leaves_of(optimizer->parameters()));
//   for (int64_t step = 1; step <= steps; ++step) {
//     for (Shard& shard : shards.step(step)) {  // those of this rank
//       const Tensor losses = ... forward of the rows of shard.index() ...
//       shard.backward(losses, scale);
//     }
//     const StepResult result = shards.finish_step(*optimizer, {.max_norm = 1.0});  // the same on every rank
//   }
//
// A rank keeps at most as many sets of f32 gradients as its shards so far have maximal nodes, and one: log2(V / R) + 1
// for powers of two. Ranks exchange gradients in buckets (gradient_buckets.h).
//
// Where fully_shard() has divided parameters among ranks that do not share memory, ranks gather them together in every
// round of shards, and step() makes the gathers of a round in which this rank has no shard. Each rank gets the part
// that it stores of the gradient of such a parameter, as a distributed tensor like the master.
//
// Parameters may be of several classes (parameter_class.h): the ranks that add the gradients of experts are not those
// that add the others.
//
// Where parameters are distributed tensors over a mesh of one dim, as parallelize_module() makes them, its ranks make
// the same calls with the same rows, and `group` are the ranks that have the same parts.
//
// Hooks of parameters run in finish(), once a step and in the order of the parameters of a class, on the sum over
// shards, ranks and uses. The grad of the parameters stays as it is, and so their post-accumulate hooks do not run: a
// program that wants them calls autograd::accumulate_grad() with the results.
//
// One object belongs to a rank. Several of its threads may run shards at once, each inside a Shard of its own
// (Shards::open); with them the gradients of shards arrive in any order, which changes no bit. All other calls are of
// one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/core/exact_sum.h"
#include "tutti/parallel/early_buckets.h"
#include "tutti/parallel/parameter_class.h"
#include "tutti/parallel/schedule.h"

namespace tutti {
class DrawScope;
class UseSink;
}  // namespace tutti
namespace tutti::optim {
class Optimizer;
}

namespace tutti::parallel {

class ClassGradients;
class ShardGroup;
class ShardGroups;
class Shards;
class ShardsOfStep;

// The sums of a step, the same on every rank.
struct ShardSums {
  double loss = 0;  // the exact sum of all losses, rounded once
  std::vector<Tensor>
      gradients;  // one f32 tensor per parameter, placed as its master, after its hooks; undefined: it has no use
  ExactSum squares{ExactTerm::square};  // of all elements of the gradients, for the norm of type 2 (N7), else empty
  float norm = 0;                       // of all gradients together
};

// How Shards::finish_step() goes on with the gradients.
struct FinishOptions {
  std::optional<double> lr = {};  // of the optimizer's first group; unset: the optimizer's own
  double max_norm = 0;            // the gradients are scaled so that their norm is at most this; 0: they are not
  double norm_type = 2.0;         // above 0; infinity: the largest magnitude
};
struct StepResult {
  double loss = 0;  // the sum of all losses
  float norm = 0;   // of the gradients before they were scaled
};

// A virtual shard while it runs on this thread, from open() or step() on: uses that arrive at Shards::sink() from this
// thread are its own, and random numbers drawn from anonymous keys are those of step and shard.
class Shard {
 public:
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  int64_t index() const;  // 0 to V - 1
  // Computes the gradients of `scale` times the sum of `losses` and adds the losses, which are f32 of any shape. A loss
  // that is a distributed tensor is added whole.
  void backward(const Tensor& losses, double scale = 1.0);
  // The same with a cotangent for each loss, of their shape.
  void backward(const Tensor& losses, const Tensor& cotangent);
  // For a backward of the caller's own, with BackwardOptions::sink: gets the uses of this shard from any thread.
  UseSink* sink() const;
  // Call after such a backward, with its losses. UsageError when the shard was added before.
  void add(const Tensor& losses);

 private:
  friend class Shards;
  friend class ShardsOfStep;
  Shard(Shards& shards, size_t local, std::optional<int64_t> step);
  Shards& shards_;
  const size_t local_;
  const std::thread::id thread_;
  std::unique_ptr<DrawScope> draws_;
};

class Shards {
 public:
  // `count` shards over the ranks of `group`, which must outlive this; null: one rank. `parameters` are the leaves
  // whose gradients are added, each once; Parameter::leaf() gives another tensor after Module::to(dtype) and
  // fully_shard(), so make this afterwards. Those that `classes` name are of these classes, and the others' gradients
  // are added by all ranks of the group. UsageError unless `count` is a power of two and at least the number of ranks,
  // when a parameter is undefined or given twice, for every_round with an overlap, for once_a_step with a class whose
  // nodes are not the shards, for a parameter that is stored on other ranks than those that add its gradients, and for
  // a class with a parameter that is not one of `parameters`, or with another number of shards on this rank.
  Shards(int64_t count, comm::ProcessGroup* group, const std::vector<Tensor>& parameters,
         Schedule schedule = Schedule::once_a_step, Overlap overlap = Overlap::none,
         std::vector<ParameterClass> classes = {});
  ~Shards();
  Shards(const Shards&) = delete;  // backward tells this object, through its sinks, what has finished
  Shards& operator=(const Shards&) = delete;

  // How many buckets of gradients may be on their way at once with Overlap::backward; at first 2. They are a queue:
  // before one more starts, the oldest ends. Backward does not wait for that: a bucket that finds no room starts with a
  // later one, or in finish(), which waits, and a trace shows it as FSDP::post_backward_rs_wait. Each takes the memory
  // of a bucket and of what comes in. Over a network they travel in as many lanes (ProcessGroup::lanes()), which this
  // makes: collective, with the same number on all ranks, between steps. UsageError below 1.
  void set_reduce_scatter_max_input_buffers(int64_t count);

  int64_t count() const { return count_; }
  int ranks() const { return ranks_; }
  // The shards of this rank, in the order in which step() runs them.
  const std::vector<int64_t>& local_shards() const { return local_; }
  // The largest number of shards of a rank.
  int64_t rounds() const { return (count_ + ranks_ - 1) / ranks_; }
  // Returns the part of the ranks' time in which they run shards when all shards take equally long: V / (R ceil(V /
  // R)).
  double efficiency() const;
  // Returns a sentence for the user when the efficiency is below 1, else "".
  std::string advice() const;
  // Returns the sum of `value` over ranks, such as the number of labels that count in a step. Collective.
  int64_t sum(int64_t value) const;

  // The shards of this rank in step number `step`, 0 to 2^32 - 1, for a range-based loop whose body adds each: with
  // Shard::backward() or Shard::add(). With every_round, and where ranks gather parameters, every round is collective.
  // The end of the loop takes part in a round in which only others have a shard. A loop that is left by an exception
  // abandons the step, and so does one that is left before its last shard was added. UsageError when a shard of another
  // step was begun and the step not finished, and naming a parameter that fully_shard() has sharded since this was
  // made; from the loop, when its body has not added its shard.
  ShardsOfStep step(int64_t step);
  // One shard of this rank, 0 to V - 1, for programs that run several at once or in an order of their own: opened on
  // the thread that runs it, once or several times before it is added. Random numbers are those of `step`, if given,
  // which only the first opening may do, since they would come again. Parameters that fully_shard() has divided need
  // one thread, and the order of step(). UsageError for a shard of another rank, for one that was added, and for one
  // that breaks these rules.
  Shard open(int64_t shard, std::optional<int64_t> step = {});
  // The sink for functions that run for many shards, such as compiled ones: it gets the uses of the shard that is open
  // on the calling thread, or else of the first that was not added. It is the same object in every step.
  UseSink* sink();
  // Adds the shard that is open on this thread, or else the first that was not added; see Shard::add(). With
  // every_round this call is collective. UsageError when all shards of the step were added; naming parameter and shard
  // when the uses of a parameter are not those of another shard, in number or size; on all ranks when the uses of a
  // rank differ from those of rank 0; and without an open shard where fully_shard() has divided the parameters.
  void add(const Tensor& losses);

  // Call on every rank after all of its shards were added; collective. The only call that waits for all shards of all
  // ranks. UsageError when some were not added, and on all ranks when the uses of a rank differ from those of rank 0.
  ShardSums finish(double norm_type = 2.0);
  // finish(), and a step of the optimizer with the gradients, clipped if asked. UsageError when the optimizer's
  // parameters are not those of this, in their order, and, after the exchange, when a trained parameter had no use in
  // the step. Collective.
  StepResult finish_step(optim::Optimizer& optimizer, const FinishOptions& options = {});
  EarlyBuckets early_buckets() const;
  // Drops what the shards of this step have brought, also uses of a backward that has thrown in the middle: the next
  // shard is the first of the step again. Not collective, but all ranks must begin the same step again. An add() or
  // finish() that fails in the middle does this; what they refuse at once changes nothing. With Overlap::backward other
  // ranks may have begun to send by then: their backward or finish() throws a UsageError that says which rank has
  // abandoned the step, and they must abandon it, too. So they do until the last call of finish(), also when a hook of
  // a parameter throws there.
  void abandon();

 private:
  friend class Shard;
  friend class ShardsOfStep;
  class Sink;       // of one shard
  class BoundSink;  // of the shard that is open on the calling thread

  Sink* bound();
  size_t added() const;  // shards of the step
  size_t begun() const;  // those of which something has come, or that were opened
  std::vector<std::shared_ptr<ShardGroups>> models() const;
  void add(Sink& shard, const Tensor& losses);
  void refuse(const std::string& why);
  void check_parameters() const;
  void reset();
  template <class Call>
  auto or_abandon(const Call& call);
  size_t place_of(int64_t shard) const;
  void begin_round() const;
  void replay_round() const;

  comm::ProcessGroup* const group_;
  const int ranks_;
  const int64_t count_;
  const std::vector<int64_t> local_;
  const std::vector<Tensor> parameters_;
  std::unordered_map<const TensorImpl*, int32_t> index_;
  struct Place {
    size_t of_class;
    int32_t index;
  };
  std::vector<Place> places_;                             // of each parameter
  std::vector<std::unique_ptr<ClassGradients>> classes_;  // the first has the loss
  std::vector<std::weak_ptr<ShardGroup>> groups_;         // into which fully_shard() has divided the parameters

  std::mutex mutex_;  // guards what shards on several threads share: all that follows, and the classes
  std::vector<std::unique_ptr<Sink>> sinks_;              // of each shard of this rank
  size_t next_round_ = 0;                                 // that no class has exchanged
  std::vector<std::pair<std::thread::id, size_t>> open_;  // which shard each thread has open
  std::unique_ptr<BoundSink> sink_;
  ExactSum loss_{ExactTerm::value};
};

// The range that Shards::step() returns.
class ShardsOfStep {
 public:
  ~ShardsOfStep();
  ShardsOfStep(const ShardsOfStep&) = delete;
  ShardsOfStep& operator=(const ShardsOfStep&) = delete;

  struct End {};
  class Iterator {
   public:
    explicit Iterator(ShardsOfStep& range) : range_(range) {}
    Shard& operator*() const { return *range_.current_; }
    Shard* operator->() const { return &*range_.current_; }
    Iterator& operator++();
    bool operator==(End) const { return !range_.current_; }

   private:
    ShardsOfStep& range_;
  };
  Iterator begin();
  End end() const { return {}; }

 private:
  friend class Shards;
  ShardsOfStep(Shards& shards, int64_t step);
  void open_next();
  Shards& shards_;
  const int64_t step_;
  const int exceptions_;
  size_t next_ = 0;
  std::unique_ptr<Shard> current_;
};

}  // namespace tutti::parallel
