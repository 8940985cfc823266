#include "tutti/parallel/expert_shards.h"

#include "tutti/core/error.h"
#include "tutti/dist/wrapper.h"

namespace tutti::parallel {
namespace {

std::vector<bool> experts_among(const std::vector<Tensor>& parameters, const dist::Mesh& experts) {
  std::vector<bool> is_expert;
  for (const Tensor& p : parameters)
    is_expert.push_back(experts != nullptr && dist::is_dtensor(p) &&
                        dist::part_of(p, "ExpertShards").mesh->id() == experts->id());
  return is_expert;
}

std::vector<Tensor> chosen(const std::vector<Tensor>& parameters, const std::vector<bool>& is_expert, bool experts) {
  std::vector<Tensor> some;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (is_expert[p] == experts) some.push_back(parameters[p]);
  }
  return some;
}

}  // namespace

ExpertShards::ExpertShards(int64_t count, const Ranks& ranks, const std::vector<Tensor>& parameters, Schedule schedule,
                           Overlap overlap)
    : is_expert_(experts_among(parameters, ranks.experts)),
      shared_(count, ranks.all, chosen(parameters, is_expert_, false), schedule, overlap),
      mesh_(ranks.experts) {
  if (ranks.experts == nullptr) return;
  const int64_t together = ranks.experts->size(), all = (ranks.all == nullptr ? 1 : ranks.all->size()) * ranks.tensor,
                parts = count * ranks.tensor;
  TUTTI_CHECK(schedule == Schedule::every_round || all == 1,
              "ExpertShards: {} ranks divide the experts, which needs the schedule every_round", together);
  TUTTI_CHECK(parts % together == 0 && all % together == 0,
              "ExpertShards: {} ranks divide the experts; expected a divisor of the {} parts of virtual shards and of "
              "the {} ranks",
              together, parts, all);
  experts_.emplace(parts / together, ranks.replicas, chosen(parameters, is_expert_, true), schedule, overlap);
}

void ExpertShards::set_reduce_scatter_max_input_buffers(int64_t count) {
  shared_.set_reduce_scatter_max_input_buffers(count);
  if (experts_) experts_->set_reduce_scatter_max_input_buffers(count);
}

// When a call of one throws, the step is over for both.
template <class Call>
auto ExpertShards::both(const Call& call) {
  try {
    return call();
  } catch (...) {
    shared_.abandon();
    if (experts_) experts_->abandon();
    throw;
  }
}

void ExpertShards::add(const Tensor& losses) {
  both([&] {
    shared_.add(losses);
    if (experts_) experts_->add(Tensor::empty({0}));
  });
}

// The calls of the two follow each other as in add() of the ranks that have a shard in the last round.
ShardSums ExpertShards::finish() {
  if (!experts_) return shared_.finish();
  auto [sums, of_experts] = both([&] {
    shared_.skip();
    experts_->skip();
    ShardSums first = shared_.finish();
    return std::pair{std::move(first), experts_->finish()};
  });
  std::vector<Tensor> all;
  for (size_t p = 0, shared = 0, expert = 0; p < is_expert_.size(); ++p)
    all.push_back(std::move(is_expert_[p] ? of_experts.gradients[expert++] : sums.gradients[shared++]));
  sums.gradients = std::move(all);
  sums.squares.add(of_experts.squares);
  return sums;
}

int32_t ExpertShards::JoinedSink::index_of(const Tensor& leaf) const {
  const int32_t shared = owner_.shared_.sink()->index_of(leaf);
  if (shared >= 0) return 2 * shared;
  const int32_t expert = owner_.experts_->sink()->index_of(leaf);
  return expert < 0 ? -1 : 2 * expert + 1;
}
void ExpertShards::JoinedSink::use(int32_t leaf, int32_t position, Tensor grad) {
  (leaf % 2 == 0 ? owner_.shared_ : *owner_.experts_).sink()->use(leaf / 2, position, std::move(grad));
}
void ExpertShards::JoinedSink::finished(int32_t leaf) {
  (leaf % 2 == 0 ? owner_.shared_ : *owner_.experts_).sink()->finished(leaf / 2);
}

}  // namespace tutti::parallel
