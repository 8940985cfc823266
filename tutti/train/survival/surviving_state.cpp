#include "tutti/train/survival/surviving_state.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/train/survival/planted_loss.h"
#include "tutti/train/survival/survival_rules.h"

namespace tutti::train {
namespace {

constexpr int64_t kPage = 4096, kLine = 64;
constexpr int64_t rounded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

// [header | extra of two steps | applied step of each block | undo records | masters | states ... | gradients]
SurvivingState::SurvivingState(std::shared_ptr<comm::JobFile> job, const std::vector<nn::NamedParameter>& parameters,
                               size_t states, int64_t extra_bytes)
    : job_(std::move(job)), states_(states), extra_bytes_(rounded(extra_bytes, 8)) {
  uint64_t layout = hash64("surviving state") + states + static_cast<uint64_t>(extra_bytes_) * 131;
  for (const nn::NamedParameter& p : parameters) {
    TUTTI_ASSERT(p.parameter.dtype() == DType::f32, "the master of '{}' is no f32", p.name);
    const int64_t numel = p.parameter.numel();
    layout = hash64(p.name.data(), p.name.size(), layout) + static_cast<uint64_t>(numel);
    for (int64_t begin = 0; begin < numel; begin += kSurvivalBlock)
      blocks_.push_back({places_.size(), begin, std::min(numel, begin + kSurvivalBlock)});
    places_.push_back({p.parameter.identity(), p.parameter.sizes(), array_bytes_});
    array_bytes_ += rounded(numel * 4, kLine);
  }
  array_bytes_ = rounded(std::max<int64_t>(array_bytes_, 1), kPage);
  undo_bytes_ = rounded(comm::UndoRecord::nbytes(static_cast<int64_t>(1 + states) * kSurvivalBlock * 4), kPage);
  const int64_t extra_at = rounded(sizeof(Header), kPage);
  const int64_t applied_at = extra_at + rounded(2 * extra_bytes_, kPage);
  const int64_t undo_at = applied_at + rounded(static_cast<int64_t>(blocks_.size()) * 8, kPage);
  const int64_t arrays_at = undo_at + undo_bytes_ * job_->seats();
  nbytes_ = arrays_at + array_bytes_ * static_cast<int64_t>(2 + states);
  base_ = job_->map_state(nbytes_);
  header_ = reinterpret_cast<Header*>(base_);
  extra_at_ = base_ + extra_at;
  applied_ = reinterpret_cast<std::atomic<int64_t>*>(base_ + applied_at);
  undo_at_ = base_ + undo_at;
  arrays_at_ = base_ + arrays_at;
  uint64_t none = 0;
  const bool is_same = header_->layout.compare_exchange_strong(none, layout) || none == layout;
  TUTTI_CHECK(is_same,
              "the state that the ranks of this job share has other parameters than this rank's model; all ranks of a "
              "job must have one configuration");
}

Tensor SurvivingState::tensor_at(int64_t array, size_t parameter) const {
  const Place& place = places_[parameter];
  return Tensor::from_memory(arrays_at_ + array * array_bytes_ + place.offset, place.sizes, DType::f32,
                             [job = job_] {});
}

Tensor SurvivingState::master(size_t parameter) const { return tensor_at(0, parameter); }
Tensor SurvivingState::state(size_t parameter, size_t which) const {
  return tensor_at(1 + static_cast<int64_t>(which), parameter);
}
Tensor SurvivingState::gradient(size_t parameter) const {
  return tensor_at(1 + static_cast<int64_t>(states_), parameter);
}

int64_t SurvivingState::index_of(const nn::Parameter& parameter) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].identity == parameter.identity()) return static_cast<int64_t>(i);
  }
  return -1;
}

bool SurvivingState::is_applied(size_t block, int64_t step) const {
  return applied_[block].load(std::memory_order_acquire) == step;
}

void SurvivingState::set_applied(int64_t step) {
  for (size_t b = 0; b < blocks_.size(); ++b) applied_[b].store(step, std::memory_order_release);
}

SurvivingState::Piece SurvivingState::piece_of(size_t parameter, int64_t begin, int64_t end) const {
  const auto part = [&](const Tensor& whole) { return whole.view_as({end - begin}, {1}, whole.offset() + begin); };
  Piece piece{
      .parameter = parameter, .master = part(master(parameter)), .gradient = part(gradient(parameter)), .state = {}};
  for (size_t k = 0; k < states_; ++k) piece.state.push_back(part(state(parameter, k)));
  return piece;
}

// What a step changes: the master and the states.
std::vector<std::span<std::byte>> SurvivingState::bytes_of(const Block& block) const {
  std::vector<std::span<std::byte>> pieces;
  for (size_t array = 0; array < 1 + states_; ++array) {
    pieces.emplace_back(
        arrays_at_ + static_cast<int64_t>(array) * array_bytes_ + places_[block.parameter].offset + block.begin * 4,
        static_cast<size_t>(block.end - block.begin) * 4);
  }
  return pieces;
}

comm::UndoRecord SurvivingState::undo(int slot) const {
  return {undo_at_ + slot * undo_bytes_, static_cast<int64_t>(1 + states_) * kSurvivalBlock * 4};
}

void SurvivingState::apply(size_t block, int64_t step, int slot, const Update& update) {
  if (is_applied(block, step)) return;
  const Block& b = blocks_[block];
  undo(slot).save({.block = static_cast<int64_t>(block), .step = step}, bytes_of(b));
  if (is_lost_at("block", step)) {
    update(piece_of(b.parameter, b.begin, b.begin + (b.end - b.begin + 1) / 2));
    lose_this_rank();
  }
  update(piece_of(b.parameter, b.begin, b.end));
  applied_[block].store(step, std::memory_order_release);
}

void SurvivingState::restore(int slot, int64_t step) {
  const auto held = undo(slot).held();
  if (!held || held->step != step || is_applied(static_cast<size_t>(held->block), step)) return;
  undo(slot).restore(bytes_of(blocks_[static_cast<size_t>(held->block)]));
}

}  // namespace tutti::train
