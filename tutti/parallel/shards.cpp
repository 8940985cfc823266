#include "tutti/parallel/shards.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/dist/wrapper.h"
#include "tutti/optim/grad_norm.h"

namespace tutti::parallel {
namespace {

int rank_in(const comm::ProcessGroup* group) { return group == nullptr ? 0 : group->rank(); }

int64_t checked_count(int64_t count) {
  TUTTI_CHECK(count >= 1 && std::has_single_bit(static_cast<uint64_t>(count)),
              "{} virtual shards; expected a power of two", count);
  return count;
}

std::vector<Tensor> checked_leaves(const std::vector<Tensor>& parameters) {
  std::unordered_map<const void*, size_t> places;
  for (size_t i = 0; i < parameters.size(); ++i) {
    TUTTI_CHECK(parameters[i].defined(),
                "Shards: parameter {} of {} is undefined; give leaves, such as Parameter::leaf()", i,
                parameters.size());
    const auto [before, is_new] = places.emplace(parameters[i].impl(), i);
    TUTTI_CHECK(is_new, "Shards: parameters {} and {} are one leaf, {}; give each leaf once", before->second, i,
                describe(parameters[i]));
  }
  return parameters;
}

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

// The first of the ranks that read the same part of a distributed parameter counts it.
bool counts_here(const Tensor& leaf) {
  if (!dist::is_dtensor(leaf)) return true;
  const dist::Part& part = dist::part_of(leaf, "Shards");
  for (int m = 0; m < part.mesh->ndim(); ++m) {
    if (part.spec->placements()[static_cast<size_t>(m)].is_replicate() &&
        part.mesh->coordinate()[static_cast<size_t>(m)] != 0)
      return false;
  }
  return true;
}

// Each rank squares a slice of what it has of each gradient, and the bins are added as integers (numerics contract,
// N7).
ExactSum squares_of_slices(const std::vector<Tensor>& leaves, const std::vector<Tensor>& gradients,
                           const Keepers& keepers, int rank, int ranks) {
  std::vector<Tensor> slices;
  for (size_t p = 0; p < gradients.size(); ++p) {
    if (!gradients[p].defined() || !counts_here(leaves[p])) continue;
    const bool is_cut = keepers.of(p).is_cut();
    const Tensor dense =
        to_contiguous(dist::is_dtensor(gradients[p]) ? dist::part_of(gradients[p], "Shards").local : gradients[p]);
    const comm::NodeSlice own = is_cut ? comm::slice_of(dense.numel(), keepers.replica(), keepers.replicas())
                                       : comm::slice_of(dense.numel(), rank, ranks);
    slices.push_back(dense.view_as({own.end - own.begin}, {1}, dense.offset() + own.begin));
  }
  return optim::square_sum(slices);
}

// The distributed tensor of which this rank has `part`, in f32.
Tensor placed_like(const Tensor& like, const Tensor& part) {
  const dist::Part& placed = dist::part_of(like, "Shards");
  dist::SpecFields fields = placed.spec->fields();
  fields.dtype = DType::f32;
  return dist::wrap(part, dist::DTensorSpec::of(std::move(fields)), placed.mesh);
}

// The mesh over which leaves are distributed tensors; null: none is.
dist::Mesh mesh_of_leaves(const std::vector<Tensor>& leaves) {
  dist::Mesh mesh;
  for (const Tensor& leaf : leaves) {
    if (!dist::is_dtensor(leaf)) continue;
    const dist::Part& part = dist::part_of(leaf, "Shards");
    TUTTI_CHECK(part.mesh->ndim() == 1 && (mesh == nullptr || mesh->id() == part.mesh->id()),
                "Shards: a parameter is {} on {}; expected one mesh of one dim for all", describe(leaf),
                part.mesh->to_string());
    mesh = part.mesh;
  }
  return mesh;
}

// Two order-free sums in one call.
void add_over_ranks(comm::ProcessGroup& group, ExactSum& a, ExactSum& b) {
  constexpr size_t n = ExactSum::kWords;
  std::array<int64_t, 2 * n> words;
  std::ranges::copy(a.words(), words.begin());
  std::ranges::copy(b.words(), words.begin() + n);
  group.all_reduce_values<int64_t>(words);
  a.set_words(std::span(words).first<n>());
  b.set_words(std::span(words).last<n>());
}

}  // namespace

Schedule parse_schedule(std::string_view text) {
  if (text == "once_a_step") return Schedule::once_a_step;
  if (text == "every_round") return Schedule::every_round;
  throw UsageError(fmt::format("'{}' is no schedule of gradient exchange; expected once_a_step or every_round", text));
}

Overlap parse_overlap(std::string_view text) {
  if (text == "none") return Overlap::none;
  if (text == "backward") return Overlap::backward;
  throw UsageError(fmt::format("'{}' is no overlap of the gradient exchange; expected none or backward", text));
}

Shards::Shards(int64_t count, comm::ProcessGroup* group, const std::vector<Tensor>& parameters, Schedule schedule,
               Overlap overlap)
    : group_(group),
      ranks_(group == nullptr ? 1 : group->size()),
      count_(checked_count(count)),
      schedule_(schedule),
      mine_(shards_of(count, rank_in(group), ranks_, schedule)),
      parameters_(checked_leaves(parameters)),
      keepers_(parameters_, group),
      mesh_(mesh_of_leaves(parameters_)),
      overlap_(overlap),
      tree_(parameters) {
  TUTTI_CHECK(overlap == Overlap::none || schedule == Schedule::once_a_step,
              "Shards: gradients that are exchanged every round cannot move under backward; expected the overlap none, "
              "or the schedule once_a_step");
  if (schedule == Schedule::every_round && ranks_ > 1) rounds_.emplace(*group_, keepers_);
  else plan_ = consecutive_shards(count, ranks_);
  if (overlaps()) tree_.set_listener([this] { start_ready(); });
  tree_.begin(mine_[0]);
}

bool Shards::lacks_a_round() const { return rounds_ && static_cast<int64_t>(mine_.size()) * ranks_ < count_; }

bool Shards::overlaps() const { return overlap_ == Overlap::backward && ranks_ > 1 && count_ >= 2 * ranks_; }

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
  TUTTI_CHECK(added_ == 0 && !exchange_,
              "set_reduce_scatter_max_input_buffers: {} shards of the step were added; call it between steps", added_);
  max_input_buffers_ = static_cast<size_t>(count);
}

int64_t Shards::sum(int64_t mine) const {
  if (ranks_ > 1) group_->all_reduce_values<int64_t>({&mine, 1});
  return mine;
}

void Shards::add(const Tensor& losses) {
  TUTTI_CHECK(losses.dtype() == DType::f32, "Shards::add: the losses are {}; expected f32", describe(losses));
  TUTTI_CHECK(added_ < mine_.size(),
              "Shards::add: this rank has {} shards, {} to {}, and all were added; call finish()", mine_.size(),
              mine_.front(), mine_.back());
  const NoGradScope no_grad;
  if (!rounds_) tree_.end();
  const Tensor dense = to_contiguous(losses);
  loss_.add({dense.data<float>(), static_cast<size_t>(dense.numel())});
  ++added_;
  if (rounds_) {
    meet(hash_of(tree_.layout()), [&] {
      tree_.end();
      std::vector<GradientNode> nodes = tree_.take();
      UseGradients none(parameters_.size());
      rounds_->add(nodes.empty() ? &none : &nodes[0].uses, count_);
    });
  }
  if (added_ < mine_.size()) tree_.begin(mine_[added_]);
  if (overlaps() && added_ + 1 == mine_.size()) begin_exchange();
}

void Shards::begin_exchange() {
  const UseLayout layout = tree_.layout();
  layouts_ = Tensor::empty({ranks_}, DType::i64);
  std::fill_n(layouts_.data<int64_t>(), ranks_, 0);
  layouts_.data<int64_t>()[group_->rank()] = std::bit_cast<int64_t>(hash_of(layout));
  exchange_.emplace(*group_, plan_, layout, keepers_, true, max_input_buffers_);
  early_ = {};
  is_taken_.assign(parameters_.size(), false);
  gate_ = group_->all_reduce(layouts_, {}, {.async = true});
}

// Starts the buckets whose parameters are finished, without waiting for anybody.
void Shards::start_ready() {
  if (!exchange_) return;
  const NoGradScope no_grad;
  if (!is_through_) {
    if (!gate_.is_done()) return;
    pass_gate();
  }
  while (const GradientBucket* bucket = exchange_->next()) {
    const auto is_complete = [&](const GradientBucket::Part& part) { return tree_.is_complete(part.parameter); };
    if (!std::all_of(bucket->parts.begin(), bucket->parts.end(), is_complete) || !exchange_->has_room()) return;
    take_parameters(*bucket);
    exchange_->start(nodes_);
    ++early_.early;
  }
}

void Shards::take_parameters(const GradientBucket& bucket) {
  for (const GradientBucket::Part& part : bucket.parts) {
    if (!is_taken_[part.parameter]) tree_.take(part.parameter, nodes_);
    is_taken_[part.parameter] = true;
  }
}

void Shards::pass_gate() {
  try {
    gate_.wait();
    const int64_t* const layouts = layouts_.data<int64_t>();
    check_layouts({layouts, layouts + ranks_});
    is_through_ = true;
  } catch (...) {
    has_parted_ = true;
    throw;
  }
}

// Ranks agree on their layout in the exchange itself: it costs nothing, and where the layouts differ it is an error on
// all ranks before anything is added. So is an error that one rank finds by itself. Then all ask whose layout it was,
// in one more call.
template <class Meeting>
void Shards::meet(uint64_t layout, const Meeting& meeting) {
  try {
    if (ranks_ > 1 && !overlaps()) group_->checked(comm::CollectiveKind::all_to_all, meeting);
    else meeting();
  } catch (const UsageError& error) {
    abandon(error.what());
    if (ranks_ > 1 && !overlaps()) compare_layouts(layout);
    throw;
  } catch (...) {
    abandon();
    throw;
  }
}

void Shards::compare_layouts(uint64_t layout) const {
  std::vector<int64_t> layouts(static_cast<size_t>(ranks_), 0);
  layouts[static_cast<size_t>(group_->rank())] = std::bit_cast<int64_t>(layout);
  group_->all_reduce_values<int64_t>(layouts);
  check_layouts(layouts);
}

void Shards::check_layouts(std::span<const int64_t> layouts) const {
  for (size_t r = 1; r < layouts.size(); ++r)
    TUTTI_CHECK(layouts[r] == layouts[0],
                "Shards: the uses of parameters on rank {} are not those on rank 0, in number or size; let every shard "
                "use each parameter "
                "equally often, with zeros where it counts for nothing",
                r);
}

void Shards::reset() {
  if (rounds_) rounds_->clear();
  exchange_.reset();
  nodes_.clear();
  gate_ = {};
  is_through_ = has_parted_ = is_closing_ = false;
  tree_.clear();
  tree_.begin(mine_[0]);
  added_ = 0;
  has_skipped_ = false;
  loss_ = ExactSum(ExactTerm::value);
}

// Ranks that move gradients under backward make the same calls in every step, carried out or refused, to the one that
// ends it, so that they are together again at the beginning of the next one. Before its last shard a rank has called
// nothing, and others wait for it in the gate.
void Shards::abandon() { abandon(""); }

void Shards::abandon(std::string_view why) {
  for (comm::ProcessGroup* group : calls_left()) {
    try {
      group->checked(comm::CollectiveKind::all_reduce, [&] {
        throw UsageError(
            fmt::format("Shards: rank {} has abandoned the step{}{}", group_->rank(), why.empty() ? "" : ": ", why));
      });
    } catch (const UsageError&) {
      // The others have heard it.
    } catch (const Error&) {
      break;  // the group is over
    }
  }
  reset();
}

std::vector<comm::ProcessGroup*> Shards::calls_left() {
  if (is_closing_) return {group_};
  if (!overlaps() || (!exchange_ && tree_.is_empty())) return {};
  if (!exchange_) return {group_};
  if (!is_through_ && !has_parted_) {
    try {
      pass_gate();
    } catch (const Error&) {
      // Another rank abandons the step, or all do.
    }
  }
  if (has_parted_) return {};
  std::vector<comm::ProcessGroup*> left = exchange_->calls_left();
  left.push_back(group_);
  return left;
}

void Shards::skip() {
  if (!lacks_a_round() || has_skipped_ || added_ < mine_.size()) return;
  const NoGradScope no_grad;
  has_skipped_ = true;
  meet(hash_of(tree_.layout()), [&] { rounds_->add(nullptr, count_); });
}

ShardSums Shards::finish() {
  const auto check = [&] {
    TUTTI_CHECK(added_ == mine_.size(), "Shards::finish: {} of this rank's {} shards were added", added_, mine_.size());
  };
  if (ranks_ == 1) check();
  if (overlaps() && !exchange_) {
    try {
      group_->checked(comm::CollectiveKind::all_reduce, check);  // refuses the gate, for which the others wait
    } catch (...) {
      reset();
      throw;
    }
  }
  const NoGradScope no_grad;
  const uint64_t layout = hash_of(tree_.layout());
  ShardSums sums;
  meet(layout, [&] {
    check();
    if (exchange_) {
      if (!is_through_) pass_gate();
      early_.all = early_.early + exchange_->left().size();
      for (const GradientBucket& bucket : exchange_->left()) take_parameters(bucket);
      sums.gradients = exchange_->finish(nodes_);
      early_.use = exchange_->input_buffers();
    } else if (rounds_) {
      if (lacks_a_round() && !has_skipped_) rounds_->add(nullptr, count_);
      sums.gradients = rounds_->finish();
    } else {
      std::vector<GradientNode> nodes = tree_.take();
      if (nodes.empty()) sums.gradients.resize(parameters_.size());
      else sums.gradients = reduce_gradients(std::move(nodes), plan_, group_, keepers_, max_input_buffers_);
    }
  });
  ExactSum loss = loss_;
  reset();
  is_closing_ = overlaps();
  meet(layout, [&] {
    for (size_t p = 0; p < parameters_.size(); ++p) {
      Tensor& gradient = sums.gradients[p];
      if (!gradient.defined()) continue;
      if (const StoragePlacement* placement = storage_placement_of(parameters_[p]))
        gradient = placed_like(placement->master, gradient);
      else if (dist::is_dtensor(parameters_[p])) gradient = placed_like(parameters_[p], gradient);
      gradient = autograd::apply_leaf_hooks(parameters_[p], gradient);
    }
    sums.squares = squares_of_slices(parameters_, sums.gradients, keepers_, rank_in(group_), ranks_);
    is_closing_ = false;
    if (ranks_ > 1) add_over_ranks(*group_, loss, sums.squares);
  });
  if (mesh_ != nullptr && mesh_->size() > 1) {  // whose ranks have the same loss
    auto words = sums.squares.words();
    mesh_->group()->all_reduce_values<int64_t>(words);
    sums.squares.set_words(words);
  }
  sums.loss = loss.value();
  return sums;
}

}  // namespace tutti::parallel
