#include "tutti/parallel/shards.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random_key.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/class_gradients.h"
#include "tutti/parallel/shard_group.h"

namespace tutti::parallel {
namespace {

int rank_in(const comm::ProcessGroup* group) { return group == nullptr ? 0 : group->rank(); }

int64_t checked_count(int64_t count) {
  TUTTI_CHECK(count >= 1 && std::has_single_bit(static_cast<uint64_t>(count)),
              "{} virtual shards; expected a power of two", count);
  return count;
}

std::unordered_map<const TensorImpl*, int32_t> index_of_each(const std::vector<Tensor>& parameters) {
  std::unordered_map<const TensorImpl*, int32_t> places;
  for (size_t i = 0; i < parameters.size(); ++i) {
    TUTTI_CHECK(parameters[i].defined(),
                "Shards: parameter {} of {} is undefined; give leaves, such as Parameter::leaf()", i,
                parameters.size());
    check_is_current(parameters[i]);
    const auto [before, is_new] = places.emplace(parameters[i].impl(), static_cast<int32_t>(i));
    TUTTI_CHECK(is_new, "Shards: parameters {} and {} are one leaf, {}; give each leaf once", before->second, i,
                describe(parameters[i]));
  }
  return places;
}

std::vector<std::weak_ptr<ShardGroup>> groups_of(const std::vector<Tensor>& parameters) {
  std::vector<std::weak_ptr<ShardGroup>> groups;
  const ShardGroup* last = nullptr;  // a group's parameters stand together
  for (const Tensor& p : parameters) {
    const StoragePlacement* placement = storage_placement_of(p);
    const auto group = placement == nullptr ? nullptr : placement->group.lock();
    if (group != nullptr && group.get() != last) groups.push_back(group);
    last = group.get();
  }
  return groups;
}

}  // namespace

// The uses of one shard, handed to the tree of the class that each parameter belongs to.
class Shards::Sink final : public UseSink {
 public:
  Sink(Shards& owner, size_t local) : owner_(owner), local_(local) { begin(); }
  void begin() {
    is_added_ = is_opened_ = is_begun_ = false;
    arrivals_.clear();
    for (const auto& c : owner_.classes_) arrivals_.push_back(c->tree().begin_shard(c->nodes()[local_]));
  }
  bool is_added() const { return is_added_; }
  void set_added() { is_added_ = true; }
  // Whether it is opened for the first time in this step.
  bool open() {
    is_begun_ = true;
    return !std::exchange(is_opened_, true);
  }
  bool is_opened() const { return is_opened_; }
  bool is_begun() const { return is_begun_; }
  size_t local() const { return local_; }
  const ShardArrivals& arrivals(size_t of_class) const { return arrivals_[of_class]; }

  int32_t index_of(const Tensor& leaf) const override {
    const auto it = owner_.index_.find(leaf.impl());
    return it == owner_.index_.end() ? -1 : it->second;
  }
  void use(int32_t leaf, int32_t position, Tensor grad) override {
    const std::lock_guard lock(owner_.mutex_);
    check_is_opened();
    take(leaf, position, std::move(grad));
  }
  void finished(int32_t leaf) override {
    const std::lock_guard lock(owner_.mutex_);
    finish(leaf);
  }
  void take(int32_t leaf, int32_t position, Tensor grad) {
    TUTTI_CHECK(!is_added_, "Shards: a gradient of parameter {} arrives from shard {}, which was added before", leaf,
                owner_.local_[local_]);
    is_begun_ = true;
    const Place place = owner_.places_[static_cast<size_t>(leaf)];
    owner_.classes_[place.of_class]->tree().use(arrivals_[place.of_class], place.index, position, std::move(grad));
  }
  // Another thread may have abandoned the step while this shard ran.
  void check_is_opened() const {
    TUTTI_CHECK(is_opened_, "Shards: the step of shard {} was abandoned; open the shard again", owner_.local_[local_]);
  }
  void finish(int32_t leaf) {
    const Place place = owner_.places_[static_cast<size_t>(leaf)];
    ClassGradients& c = *owner_.classes_[place.of_class];
    c.tree().finished(arrivals_[place.of_class], place.index);
    c.start_ready();
  }

 private:
  Shards& owner_;
  const size_t local_;
  std::vector<ShardArrivals> arrivals_;  // by class
  // is_begun_: something of it has come, or it was opened.
  bool is_added_ = false, is_opened_ = false, is_begun_ = false;
};

class Shards::BoundSink final : public UseSink {
 public:
  explicit BoundSink(Shards& owner) : owner_(owner) {}
  int32_t index_of(const Tensor& leaf) const override { return owner_.sinks_.front()->index_of(leaf); }
  void use(int32_t leaf, int32_t position, Tensor grad) override {
    const std::lock_guard lock(owner_.mutex_);
    Sink* const shard = owner_.bound();
    TUTTI_CHECK(shard != nullptr,
                "Shards: a gradient of parameter {} arrives, and all shards of the step were added; call finish()",
                leaf);
    shard->take(leaf, position, std::move(grad));
  }
  void finished(int32_t leaf) override {
    const std::lock_guard lock(owner_.mutex_);
    if (Sink* const shard = owner_.bound()) shard->finish(leaf);
  }

 private:
  Shards& owner_;
};

Shards::Shards(int64_t count, comm::ProcessGroup* group, const std::vector<Tensor>& parameters, Schedule schedule,
               Overlap overlap, std::vector<ParameterClass> classes)
    : group_(group),
      ranks_(group == nullptr ? 1 : group->size()),
      count_(checked_count(count)),
      local_(shards_of(count, rank_in(group), ranks_, schedule)),
      parameters_(parameters),
      index_(index_of_each(parameters_)),
      places_(parameters_.size(), {0, -1}),
      groups_(groups_of(parameters_)),
      sink_(std::make_unique<BoundSink>(*this)) {
  TUTTI_CHECK(overlap == Overlap::none || schedule == Schedule::once_a_step,
              "Shards: gradients that are exchanged every round cannot move under backward; expected the overlap none, "
              "or the schedule once_a_step");
  TUTTI_CHECK(
      overlap == Overlap::none || classes.empty(),
      "Shards: gradients of {} classes cannot move under backward, since ranks would not begin to exchange them "
      "in one order; expected the overlap none",
      classes.size() + 1);
  for (size_t c = 0; c < classes.size(); ++c) {
    const ParameterClass& some = classes[c];
    TUTTI_CHECK(schedule == Schedule::every_round || ranks_ == 1 || some.nodes == count_,
                "Shards: the gradients of the class '{}' have {} nodes for {} shards on {} ranks, which needs the "
                "schedule every_round",
                some.name, some.nodes, count_, ranks_);
    for (size_t i = 0; i < some.parameters.size(); ++i) {
      const auto it = index_.find(some.parameters[i].impl());
      TUTTI_CHECK(it != index_.end(), "Shards: parameter {} of the class '{}', {}, is not among the {} parameters", i,
                  some.name, describe(some.parameters[i]), parameters_.size());
      Place& place = places_[static_cast<size_t>(it->second)];
      TUTTI_CHECK(place.index < 0, "Shards: parameter {} is in two classes, one of them '{}'", it->second, some.name);
      place = {c + 1, static_cast<int32_t>(i)};
    }
  }
  ParameterClass shared{.name = "shared", .holders = group, .nodes = count};
  std::vector<std::vector<size_t>> numbers(classes.size() + 1);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (places_[p].index < 0) {
      places_[p] = {0, static_cast<int32_t>(shared.parameters.size())};
      shared.parameters.push_back(parameters_[p]);
      numbers[0].push_back(p);
    }
  }
  for (size_t c = 0; c < classes.size(); ++c) {
    for (const Tensor& leaf : classes[c].parameters)
      numbers[c + 1].push_back(static_cast<size_t>(index_.at(leaf.impl())));
  }
  classes.insert(classes.begin(), std::move(shared));
  for (size_t c = 0; c < classes.size(); ++c) {
    classes_.push_back(std::make_unique<ClassGradients>(classes[c], std::move(numbers[c]), schedule, overlap));
    TUTTI_CHECK(classes_.back()->nodes().size() == local_.size(),
                "Shards: this rank has {} shards and {} nodes of the class '{}'; expected as many", local_.size(),
                classes_.back()->nodes().size(), classes[c].name);
  }
  for (size_t i = 0; i < local_.size(); ++i) sinks_.push_back(std::make_unique<Sink>(*this, i));
}

Shards::~Shards() = default;

EarlyBuckets Shards::early_buckets() const { return classes_.front()->early_buckets(); }

double Shards::efficiency() const {
  const int64_t most = (count_ + ranks_ - 1) / ranks_;
  return static_cast<double>(count_) / static_cast<double>(ranks_ * most);
}

std::string Shards::advice() const {
  if (count_ % ranks_ == 0) return "";
  std::string text = fmt::format(
      "{} virtual shards on {} ranks: the efficiency V / (R ceil(V / R)) is {:.0f} %, because some ranks run {} shards "
      "and others {}",
      count_, ranks_, 100 * efficiency(), count_ / ranks_ + 1, count_ / ranks_);
  const auto enough = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(4 * ranks_)));
  if (count_ < 4 * ranks_)
    text += fmt::format(
        "; numerics.virtual_shards of {} or more (4 for each rank) makes it 80 % or more, and is another run with "
        "other bits",
        enough);
  return text;
}

void Shards::set_reduce_scatter_max_input_buffers(int64_t count) {
  TUTTI_CHECK(count >= 1, "set_reduce_scatter_max_input_buffers: {}; expected at least 1", count);
  TUTTI_CHECK(added() == 0,
              "set_reduce_scatter_max_input_buffers: {} shards of the step were added; call it between steps", added());
  for (const auto& c : classes_) c->set_max_input_buffers(static_cast<size_t>(count));
}

int64_t Shards::sum(int64_t value) const {
  if (ranks_ > 1) group_->all_reduce_values<int64_t>({&value, 1});
  return value;
}

UseSink* Shards::sink() { return sink_.get(); }

// The shard of this thread; null when all were added.
Shards::Sink* Shards::bound() {
  const auto mine = std::ranges::find(open_, std::this_thread::get_id(), &std::pair<std::thread::id, size_t>::first);
  if (mine != open_.end()) {
    sinks_[mine->second]->check_is_opened();
    return sinks_[mine->second].get();
  }
  const auto next = std::ranges::find_if(sinks_, [](const auto& shard) { return !shard->is_added(); });
  return next == sinks_.end() ? nullptr : next->get();
}

size_t Shards::added() const {
  return static_cast<size_t>(std::ranges::count_if(sinks_, [](const auto& shard) { return shard->is_added(); }));
}

size_t Shards::begun() const {
  return static_cast<size_t>(std::ranges::count_if(sinks_, [](const auto& shard) { return shard->is_begun(); }));
}

// What throws in one class ends the step of all.
template <class Call>
auto Shards::or_abandon(const Call& call) {
  try {
    return call();
  } catch (const UsageError& error) {
    for (const auto& c : classes_) c->abandon(error.what());
    reset();
    throw;
  } catch (...) {
    for (const auto& c : classes_) c->abandon();
    reset();
    throw;
  }
}

void Shards::reset() {
  for (const auto& shard : sinks_) shard->begin();
  next_round_ = 0;
  loss_ = ExactSum(ExactTerm::value);
}

void Shards::add(const Tensor& losses) {
  const std::lock_guard lock(mutex_);
  Sink* const shard = bound();
  TUTTI_CHECK(shard != nullptr && !shard->is_added(),
              "Shards::add: this rank has {} shards, {} to {}, and all were added; call finish()", local_.size(),
              local_.front(), local_.back());
  TUTTI_CHECK(groups_.empty() || !open_.empty(),
              "Shards::add: fully_shard() has divided the parameters, so that ranks must run the same rounds; run each "
              "shard in the body of `for (Shard& shard : shards.step(number))`");
  add(*shard, losses);
}

void Shards::add(Sink& shard, const Tensor& losses) {
  const NoGradScope no_grad;
  Tensor dense;
  or_abandon([&] {
    TUTTI_CHECK(losses.dtype() == DType::f32, "Shards::add: the losses are {}; expected f32", describe(losses));
    dense = to_contiguous(dist::is_dtensor(losses) ? dist::full_tensor(losses) : losses);
    for (size_t c = 0; c < classes_.size(); ++c) classes_[c]->add(shard.local(), shard.arrivals(c));
    loss_.add({dense.data<float>(), static_cast<size_t>(dense.numel())});
    shard.set_added();
    // All ranks exchange the classes of a round before the next round, in whatever order their shards come.
    for (; next_round_ < sinks_.size() && sinks_[next_round_]->is_added(); ++next_round_) {
      for (const auto& c : classes_) c->meet_round();
    }
  });
}

void Shards::refuse(const std::string& why) {
  const std::lock_guard lock(mutex_);
  or_abandon([&] {
    for (const auto& c : classes_) {
      try {
        c->refuse(why);
      } catch (const UsageError&) {
        // The ranks of this class have it; those of the others get it, too.
      }
    }
    throw UsageError(why);
  });
}

void Shards::abandon() {
  const std::lock_guard lock(mutex_);
  for (const auto& c : classes_) c->abandon();
  reset();
}

// The calls of the classes follow each other as in add() of the ranks that have a shard in the last round.
ShardSums Shards::finish(double norm_type) {
  check_parameters();
  ShardSums sums;
  sums.gradients.resize(parameters_.size());
  optim::GradNorm norm(norm_type);
  // One rank may go on with the step; ranks that wait for each other find it out together.
  TUTTI_CHECK(ranks_ > 1 || added() == local_.size(), "Shards::finish: {} of this rank's {} shards were added", added(),
              local_.size());
  or_abandon([&] {
    for (const auto& c : classes_) c->skip();
    for (size_t c = 0; c < classes_.size(); ++c) {
      ExactSum none(ExactTerm::value);
      optim::GradNorm of_class(norm_type);
      std::vector<Tensor> gradients = classes_[c]->finish(c == 0 ? loss_ : none, of_class);
      norm.add(of_class);
      for (size_t i = 0; i < gradients.size(); ++i) sums.gradients[classes_[c]->numbers()[i]] = std::move(gradients[i]);
    }
  });
  sums.loss = loss_.value();
  sums.norm = norm.value();
  if (norm_type == 2.0) sums.squares = norm.sum();
  reset();
  return sums;
}

StepResult Shards::finish_step(optim::Optimizer& optimizer, const FinishOptions& options) {
  const std::vector<Tensor> leaves = nn::leaves_of(optimizer.parameters());
  const auto same = [](const Tensor& a, const Tensor& b) { return a.impl() == b.impl(); };
  TUTTI_CHECK(std::ranges::equal(leaves, parameters_, same),
              "Shards::finish_step: the {} parameters of the optimizer are not the {} of these shards, in their order; "
              "make the Shards with nn::leaves_of(optimizer->parameters()), after fully_shard() and Module::to()",
              leaves.size(), parameters_.size());
  const ShardSums sums = finish(options.norm_type);
  optimizer.step(sums.gradients, options.lr.value_or(optimizer.lr()), optim::clip_scale(sums.norm, options.max_norm));
  return {.loss = sums.loss, .norm = sums.norm};
}

size_t Shards::place_of(int64_t shard) const {
  const auto it = std::ranges::find(local_, shard);
  TUTTI_CHECK(it != local_.end(), "Shards::open: shard {} is not one of the {} of this rank, {} to {}", shard,
              local_.size(), local_.front(), local_.back());
  return static_cast<size_t>(it - local_.begin());
}

Shard Shards::open(int64_t shard, std::optional<int64_t> step) { return Shard(*this, place_of(shard), step); }

// The models whose groups of parameters ranks gather together. A group may have come into another model since.
std::vector<std::shared_ptr<ShardGroups>> Shards::models() const {
  std::vector<std::shared_ptr<ShardGroups>> models;
  for (const auto& weak : groups_) {
    const auto group = weak.lock();
    if (group != nullptr && std::ranges::find(models, group->all) == models.end()) models.push_back(group->all);
  }
  return models;
}

void Shards::begin_round() const {
  for (const auto& model : models()) model->begin_round();
}

void Shards::replay_round() const {
  for (const auto& model : models()) model->replay_round();
}

// fully_shard() may have given the model other leaves since this was made.
void Shards::check_parameters() const {
  for (const Tensor& leaf : parameters_) check_is_current(leaf);
}

ShardsOfStep Shards::step(int64_t step) { return ShardsOfStep(*this, step); }

Shard::Shard(Shards& shards, size_t local, std::optional<int64_t> step)
    : shards_(shards), local_(local), thread_(std::this_thread::get_id()) {
  const std::lock_guard lock(shards_.mutex_);
  TUTTI_CHECK(!shards_.sinks_[local]->is_added(), "Shards::open: shard {} was added before", shards_.local_[local]);
  for (const auto& [thread, other] : shards_.open_) {
    TUTTI_CHECK(thread != thread_, "Shards::open: shard {} is open on this thread; end it before shard {} begins",
                shards_.local_[other], shards_.local_[local]);
    TUTTI_CHECK(shards_.groups_.empty(),
                "Shards::open: shard {} is open on another thread, and fully_shard() has divided the parameters, which "
                "one thread of a rank uses; end it before shard {} begins",
                shards_.local_[other], shards_.local_[local]);
  }
  TUTTI_CHECK(!step || !shards_.sinks_[local]->is_opened(),
              "Shards::open: shard {} was opened before in this step, and its random numbers would come again; draw in "
              "the first opening, and give no step to the others",
              shards_.local_[local]);
  if (step) draws_ = std::make_unique<DrawScope>(*step, shards_.local_[local]);
  if (shards_.sinks_[local]->open()) shards_.begin_round();
  shards_.open_.emplace_back(thread_, local);
}

Shard::~Shard() {
  const std::lock_guard lock(shards_.mutex_);
  std::erase(shards_.open_, std::pair(thread_, local_));
}

int64_t Shard::index() const { return shards_.local_[local_]; }

UseSink* Shard::sink() const { return shards_.sinks_[local_].get(); }

void Shard::backward(const Tensor& losses, double scale) { backward(losses, full_like(losses, scale)); }

void Shard::backward(const Tensor& losses, const Tensor& cotangent) {
  tutti::backward(losses, cotangent, {.sink = sink()});
  add(detach(losses));
}

void Shard::add(const Tensor& losses) {
  const std::lock_guard lock(shards_.mutex_);
  Shards::Sink& shard = *shards_.sinks_[local_];
  TUTTI_CHECK(!shard.is_added(), "Shard::add: shard {} was added before", index());
  shard.check_is_opened();
  shards_.add(shard, losses);
}

ShardsOfStep::ShardsOfStep(Shards& shards, int64_t step)
    : shards_(shards), step_(step), exceptions_(std::uncaught_exceptions()) {
  shards.check_parameters();
  TUTTI_CHECK(step >= 0 && step < (int64_t{1} << 32), "Shards::step: step {}; expected 0 to 2^32 - 1", step);
  TUTTI_CHECK(shards.begun() == 0,
              "Shards::step: {} of this rank's {} shards were begun in a step that has not ended; call finish(), or "
              "abandon()",
              shards.begun(), shards.local_.size());
}

ShardsOfStep::~ShardsOfStep() {
  const bool is_left = current_ != nullptr && shards_.added() < shards_.local_.size();  // by break or return
  current_.reset();
  if (is_left || std::uncaught_exceptions() > exceptions_) {
    try {
      shards_.abandon();
    } catch (const Error&) {
      // What leaves the loop says what happened.
    }
  }
}

void ShardsOfStep::open_next() {
  const size_t count = shards_.local_.size();
  if (next_ < count) {
    current_.reset(new Shard(shards_, next_++, step_));
    return;
  }
  for (auto round = static_cast<int64_t>(count); round < shards_.rounds(); ++round) {
    shards_.begin_round();
    shards_.replay_round();
  }
}

ShardsOfStep::Iterator ShardsOfStep::begin() {
  if (!current_ && next_ == 0) open_next();
  return Iterator(*this);
}

ShardsOfStep::Iterator& ShardsOfStep::Iterator::operator++() {
  const Shards::Sink& shard = *range_.shards_.sinks_[range_.current_->local_];
  const int64_t index = range_.current_->index();
  range_.current_.reset();
  if (!shard.is_added())
    range_.shards_.refuse(
        fmt::format("Shards::step: the loop has ended shard {} without its losses; call shard.backward(losses), or "
                    "shard.add(losses) after a backward of your own",
                    index));
  range_.open_next();
  return *this;
}

}  // namespace tutti::parallel
