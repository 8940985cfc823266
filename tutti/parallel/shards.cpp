#include "tutti/parallel/shards.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/optim/grad_norm.h"

namespace tutti::parallel {
namespace {

int rank_in(const comm::ProcessGroup* group) { return group == nullptr ? 0 : group->rank(); }

std::vector<int64_t> shards_of(int64_t count, int rank, int ranks, Schedule schedule) {
  const ShardRange range = shards_of_rank(count, rank, ranks);
  std::vector<int64_t> mine;
  if (schedule == Schedule::once_a_step || ranks == 1) {
    for (int64_t s = range.begin; s < range.end; ++s) mine.push_back(s);
  } else {
    for (int64_t s = rank; s < count; s += ranks) mine.push_back(s);
  }
  return mine;
}

}  // namespace

Schedule parse_schedule(std::string_view text) {
  if (text == "once_a_step") return Schedule::once_a_step;
  if (text == "every_round") return Schedule::every_round;
  throw UsageError(fmt::format("'{}' is no schedule of gradient exchange; expected once_a_step or every_round", text));
}

Shards::Shards(int64_t count, comm::ProcessGroup* group, const std::vector<Tensor>& parameters, Schedule schedule)
    : count_(count), group_(group), ranks_(group == nullptr ? 1 : group->size()), schedule_(schedule), mine_(shards_of(count, rank_in(group), ranks_, schedule)),
      parameters_(parameters), tree_(parameters) {
  TUTTI_CHECK(count >= 1 && std::has_single_bit(static_cast<uint64_t>(count)), "{} virtual shards; expected a power of two", count);
  if (schedule == Schedule::every_round && ranks_ > 1) rounds_.emplace(*group_);
  else plan_ = consecutive_shards(count, ranks_);
  tree_.begin(mine_[0]);
}

double Shards::efficiency() const {
  const int64_t most = (count_ + ranks_ - 1) / ranks_;
  return static_cast<double>(count_) / static_cast<double>(ranks_ * most);
}

std::string Shards::advice() const {
  if (count_ % ranks_ == 0) return "";
  std::string text = fmt::format("{} virtual shards on {} ranks: some ranks run {} of them and others {}, so that {:.0f} % of the ranks' time passes in waiting", count_,
                                 ranks_, count_ / ranks_ + 1, count_ / ranks_, 100 * (1 - efficiency()));
  if (efficiency() < 0.8) text += fmt::format("; numerics.virtual_shards of {} or more keeps it below a fifth, and is another run with other bits",
                                               std::bit_ceil(static_cast<uint64_t>(4 * ranks_)));
  return text;
}

int64_t Shards::sum(int64_t mine) const {
  if (ranks_ > 1) group_->all_reduce_values<int64_t>({&mine, 1});
  return mine;
}

void Shards::add(const Tensor& losses) {
  TUTTI_CHECK(losses.dtype() == DType::f32, "Shards::add: the losses are {}; expected f32", describe(losses));
  TUTTI_CHECK(added_ < mine_.size(), "Shards::add: this rank has {} shards, {} to {}, and all were added; call finish()", mine_.size(), mine_.front(), mine_.back());
  const NoGradScope no_grad;
  tree_.end();
  const Tensor dense = to_contiguous(losses);
  loss_.add({dense.data<float>(), static_cast<size_t>(dense.numel())});
  ++added_;
  if (rounds_) {
    if (added_ == 1) check_ranks();
    std::vector<GradientNode> nodes = tree_.take();
    UseGradients none(parameters_.size());
    rounds_->add(nodes.empty() ? &none : &nodes[0].uses, count_);
  }
  if (added_ < mine_.size()) tree_.begin(mine_[added_]);
}

// Every rank says what it brings before anything is added: a buffer of the same size may hold other parameters.
void Shards::check_ranks() {
  std::string text;
  for (const auto& uses : tree_.layout()) {
    for (const Extents& sizes : uses) text += to_string(sizes);
    text += ';';
  }
  std::vector<int64_t> layouts(static_cast<size_t>(ranks_), 0);
  layouts[static_cast<size_t>(group_->rank())] = std::bit_cast<int64_t>(hash64(text));
  group_->all_reduce_values<int64_t>(layouts);
  for (size_t r = 1; r < layouts.size(); ++r)
    TUTTI_CHECK(layouts[r] == layouts[0], "Shards: the uses of parameters on rank {} are not those on rank 0, in number or size; let every shard use each parameter "
                "equally often, with zeros where it counts for nothing", r);
}

ShardSums Shards::finish() {
  TUTTI_CHECK(added_ == mine_.size(), "Shards::finish: {} of this rank's {} shards were added", added_, mine_.size());
  const NoGradScope no_grad;
  if (rounds_ && static_cast<int64_t>(mine_.size()) * ranks_ < count_) rounds_->add(nullptr, count_);  // it has no shard in the last round
  ShardSums sums;
  ExactSum loss = std::exchange(loss_, ExactSum(ExactTerm::value));
  if (ranks_ > 1) {
    if (!rounds_) check_ranks();
    auto words = loss.words();
    group_->all_reduce_values<int64_t>(words);
    loss.set_words(words);
  }
  sums.loss = loss.value();
  if (rounds_) {
    sums.gradients = rounds_->finish();
  } else {
    std::vector<GradientNode> nodes = tree_.take();
    if (nodes.empty()) sums.gradients.resize(parameters_.size());
    else sums.gradients = reduce_gradients(std::move(nodes), plan_, group_);
  }
  added_ = 0;
  tree_.clear();
  tree_.begin(mine_[0]);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (sums.gradients[p].defined()) sums.gradients[p] = autograd::apply_leaf_hooks(parameters_[p], sums.gradients[p]);
  }
  std::vector<Tensor> defined;
  for (const Tensor& g : sums.gradients) {
    if (g.defined()) defined.push_back(g);
  }
  sums.squares = optim::square_sum(defined);
  return sums;
}

}  // namespace tutti::parallel
