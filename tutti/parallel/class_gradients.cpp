#include "tutti/parallel/class_gradients.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/dist/wrapper.h"

namespace tutti::parallel {
namespace {

// Each has threads and buffers of its own on every rank; more buckets take turns.
constexpr size_t kMostLanes = 8;

int rank_in(const comm::ProcessGroup* group) { return group == nullptr ? 0 : group->rank(); }
int ranks_of(const comm::ProcessGroup* group) { return group == nullptr ? 1 : group->size(); }

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

// Each rank has a slice of each gradient in its part of the norm (numerics contract, N7).
void add_slices(optim::GradNorm& norm, const std::vector<Tensor>& leaves, const std::vector<Tensor>& gradients,
                const GradientPlacements& placements, int rank, int ranks) {
  std::vector<Tensor> slices;
  for (size_t p = 0; p < gradients.size(); ++p) {
    if (!gradients[p].defined() || !counts_here(leaves[p])) continue;
    const bool is_cut = placements.of(p).is_cut();
    const Tensor dense =
        to_contiguous(dist::is_dtensor(gradients[p]) ? dist::part_of(gradients[p], "Shards").local : gradients[p]);
    const comm::NodeSlice own = is_cut ? comm::slice_of(dense.numel(), placements.replica(), placements.replicas())
                                       : comm::slice_of(dense.numel(), rank, ranks);
    slices.push_back(dense.view_as({own.end - own.begin}, {1}, dense.offset() + own.begin));
  }
  norm.add(slices);
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

// The loss and the sum of the norm in one call.
void add_over_ranks(comm::ProcessGroup& group, ExactSum& loss, optim::GradNorm& norm) {
  constexpr size_t n = ExactSum::kWords;
  std::array<int64_t, 2 * n> words;
  std::ranges::copy(loss.words(), words.begin());
  std::ranges::copy(norm.sum().words(), words.begin() + n);
  group.all_reduce_values<int64_t>(words);
  loss.set_words(std::span(words).first<n>());
  norm.sum().set_words(std::span(words).last<n>());
  if (norm.is_largest()) group.all_reduce_values<int64_t>({&norm.largest(), 1}, comm::ReduceKind::max);
}

}  // namespace

ClassGradients::ClassGradients(const ParameterClass& parameters, std::vector<size_t> numbers, Schedule schedule,
                               Overlap overlap)
    : group_(parameters.holders),
      ranks_(ranks_of(group_)),
      count_(parameters.nodes),
      mine_(shards_of(count_, rank_in(group_), ranks_, schedule)),
      parameters_(parameters.parameters),
      numbers_(std::move(numbers)),
      placements_(parameters_, group_),
      mesh_(mesh_of_leaves(parameters_)),
      overlap_(overlap),
      tree_(parameters_, numbers_),
      arrivals_(mine_.size()) {
  if (schedule == Schedule::every_round && ranks_ > 1) rounds_.emplace(*group_, placements_);
  else plan_ = consecutive_shards(count_, ranks_);
  set_max_input_buffers(kInputBuffers);
}

void ClassGradients::set_max_input_buffers(size_t count) {
  max_input_buffers_ = count;
  if (overlaps()) lanes_ = group_->lanes(std::min(count, kMostLanes));
}

bool ClassGradients::lacks_a_round() const { return rounds_ && static_cast<int64_t>(mine_.size()) * ranks_ < count_; }

bool ClassGradients::overlaps() const { return overlap_ == Overlap::backward && ranks_ > 1 && count_ >= 2 * ranks_; }

void ClassGradients::add(size_t local, const ShardArrivals& arrivals) {
  const NoGradScope no_grad;
  if (!rounds_) tree_.end(arrivals);
  arrivals_[local] = arrivals;
  ++added_;
  if (overlaps() && added_ + 1 == mine_.size()) begin_exchange();
}

void ClassGradients::meet_round() {
  if (!rounds_) return;
  const NoGradScope no_grad;
  meet(hash_of(tree_.layout()), [&] {
    tree_.end(*arrivals_[next_round_]);  // an error of one shard is told to all ranks
    UseGradients gradients = tree_.take_shard(mine_[next_round_]);
    rounds_->add(&gradients, count_);
  });
  ++next_round_;
}

void ClassGradients::refuse(const std::string& why) {
  const auto fail = [&] { throw UsageError(why); };
  if (rounds_) meet(hash_of(tree_.layout()), fail);
  else fail();
}

void ClassGradients::begin_exchange() {
  const UseLayout layout = tree_.layout();
  layouts_ = Tensor::empty({ranks_}, DType::i64);
  std::fill_n(layouts_.data<int64_t>(), ranks_, 0);
  layouts_.data<int64_t>()[group_->rank()] = std::bit_cast<int64_t>(hash_of(layout));
  exchange_.emplace(*group_, plan_, layout, placements_, true, max_input_buffers_, lanes_);
  early_ = {};
  is_taken_.assign(parameters_.size(), false);
  gate_ = group_->all_reduce(layouts_, {}, {.async = true});
}

void ClassGradients::start_ready() {
  if (!exchange_) return;
  const NoGradScope no_grad;
  if (!is_through_) {
    if (!gate_.is_done()) return;
    pass_gate();
  }
  while (const GradientBucket* bucket = exchange_->next()) {
    const auto is_complete = [&](const GradientBucket::Part& part) {
      return tree_.is_complete(part.parameter, mine_.size());
    };
    if (!std::all_of(bucket->parts.begin(), bucket->parts.end(), is_complete) || !exchange_->has_room()) return;
    take_parameters(*bucket);
    exchange_->start(nodes_);
    ++early_.early;
  }
}

void ClassGradients::take_parameters(const GradientBucket& bucket) {
  for (const GradientBucket::Part& part : bucket.parts) {
    if (!is_taken_[part.parameter]) tree_.take(part.parameter, nodes_);
    is_taken_[part.parameter] = true;
  }
}

void ClassGradients::pass_gate() {
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
void ClassGradients::meet(uint64_t layout, const Meeting& meeting) {
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

void ClassGradients::compare_layouts(uint64_t layout) const {
  std::vector<int64_t> layouts(static_cast<size_t>(ranks_), 0);
  layouts[static_cast<size_t>(group_->rank())] = std::bit_cast<int64_t>(layout);
  group_->all_reduce_values<int64_t>(layouts);
  check_layouts(layouts);
}

void ClassGradients::check_layouts(std::span<const int64_t> layouts) const {
  for (size_t r = 1; r < layouts.size(); ++r)
    TUTTI_CHECK(layouts[r] == layouts[0],
                "Shards: the uses of parameters on rank {} are not those on rank 0, in number or size; let every shard "
                "use each parameter "
                "equally often, with zeros where it counts for nothing",
                r);
}

void ClassGradients::reset() {
  if (rounds_) rounds_->clear();
  exchange_.reset();
  nodes_.clear();
  gate_ = {};
  is_through_ = has_parted_ = is_closing_ = false;
  tree_.clear();
  arrivals_.assign(mine_.size(), std::nullopt);
  added_ = next_round_ = 0;
  has_skipped_ = false;
}

// Ranks that move gradients under backward make the same calls in every step, carried out or refused, to the one that
// ends it, so that they are together again at the beginning of the next one. Before its last shard a rank has called
// nothing, and others wait for it in the gate.
void ClassGradients::abandon(std::string_view why) {
  for (comm::ProcessGroup* group : calls_left()) {
    try {
      group->checked(comm::CollectiveKind::all_reduce, [&] {
        throw UsageError(
            fmt::format("Shards: rank {} has abandoned the step{}{}", group_->rank(), why.empty() ? "" : ": ", why));
      });
    } catch (const UsageError&) {
      // The others have heard it.
    } catch (const Error&) {
      // The group is over, and its lanes may not be.
    }
  }
  reset();
}

std::vector<comm::ProcessGroup*> ClassGradients::calls_left() {
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

void ClassGradients::skip() {
  if (!lacks_a_round() || has_skipped_ || added_ < mine_.size()) return;
  const NoGradScope no_grad;
  has_skipped_ = true;
  meet(hash_of(tree_.layout()), [&] { rounds_->add(nullptr, count_); });
}

std::vector<Tensor> ClassGradients::exchange() {
  if (exchange_) {
    if (!is_through_) pass_gate();
    early_.all = early_.early + exchange_->left().size();
    for (const GradientBucket& bucket : exchange_->left()) take_parameters(bucket);
    std::vector<Tensor> gradients = exchange_->finish(nodes_);
    early_.use = exchange_->input_buffers();
    return gradients;
  }
  if (rounds_) {
    if (lacks_a_round() && !has_skipped_) rounds_->add(nullptr, count_);
    return rounds_->finish();
  }
  std::vector<GradientNode> nodes = tree_.take();
  if (nodes.empty()) return std::vector<Tensor>(parameters_.size());
  return reduce_gradients(std::move(nodes), plan_, group_, placements_, max_input_buffers_);
}

// As the parameter is placed, after its hooks.
Tensor ClassGradients::finished(size_t p, Tensor gradient) const {
  if (!gradient.defined()) return gradient;
  if (const StoragePlacement* placement = storage_placement_of(parameters_[p]))
    gradient = placed_like(placement->master, gradient);
  else if (dist::is_dtensor(parameters_[p])) gradient = placed_like(parameters_[p], gradient);
  return autograd::apply_leaf_hooks(parameters_[p], gradient);
}

std::vector<Tensor> ClassGradients::finish(ExactSum& loss, optim::GradNorm& norm) {
  const auto check = [&] {
    TUTTI_CHECK(added_ == mine_.size(), "Shards::finish: {} of this rank's {} shards were added", added_, mine_.size());
  };
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
  std::vector<Tensor> gradients;
  meet(layout, [&] {
    check();
    gradients = exchange();
  });
  reset();
  is_closing_ = overlaps();
  meet(layout, [&] {
    for (size_t p = 0; p < parameters_.size(); ++p) gradients[p] = finished(p, std::move(gradients[p]));
    add_slices(norm, parameters_, gradients, placements_, rank_in(group_), ranks_);
    is_closing_ = false;
    if (ranks_ > 1) add_over_ranks(*group_, loss, norm);
  });
  if (mesh_ != nullptr && mesh_->size() > 1) {  // whose ranks have the same loss
    auto words = norm.sum().words();
    mesh_->group()->all_reduce_values<int64_t>(words);
    norm.sum().set_words(words);
    if (norm.is_largest()) mesh_->group()->all_reduce_values<int64_t>({&norm.largest(), 1}, comm::ReduceKind::max);
  }
  return gradients;
}

}  // namespace tutti::parallel
