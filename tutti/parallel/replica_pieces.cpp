#include "tutti/parallel/replica_pieces.h"

#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/parallel/gather_group.h"

namespace tutti::parallel {

ReplicaPieces::ReplicaPieces(const GroupParameters& parameters)
    : parameters_(parameters), replicas_(gather_group(*parameters.mesh()->group(0), parameters.mesh()->size(0))) {}

Gather ReplicaPieces::begin_some(const std::vector<size_t>& which) const { return begin_into(which, {}); }

// The pieces lie one after another in `into`; undefined: in memory of their own.
Gather ReplicaPieces::begin_into(const std::vector<size_t>& which, const Tensor& into) const {
  const MemoryCategoryScope category(MemoryCategory::parameters);
  const GroupParameters& p = parameters_;
  Gather gather{.work = {}, .outputs = {}, .input = p.stored_in_dtype_of_use(which), .versions = p.versions()};
  int64_t at = 0;
  for (int64_t r = 0; r < replicas_->size(); ++r) {
    int64_t bytes = 0;
    for (const size_t i : which) bytes += p.part_bytes(i, p.own_shard(), p.ranks().size(), r);
    gather.outputs.push_back(into.defined() ? into.view_as({bytes}, {1}, at) : Tensor::empty({bytes}, DType::u8));
    at += bytes;
  }
  gather.work = replicas_->all_gather_v(gather.outputs, gather.input, {.async = true});
  return gather;
}

bool ReplicaPieces::is_finished() const {
  const auto* joined = std::get_if<Joined>(&state_);
  return joined != nullptr && joined->versions == parameters_.versions();
}

bool ReplicaPieces::is_begun() const {
  const auto* joining = std::get_if<Joining>(&state_);
  return is_finished() || (joining != nullptr && joining->gather.versions == parameters_.versions());
}

void ReplicaPieces::begin() {
  const NoGradScope no_grad;
  if (auto* joining = std::get_if<Joining>(&state_)) joining->gather.work.wait();  // of older masters
  const MemoryCategoryScope category(MemoryCategory::parameters);
  Tensor bytes;
  if (auto* joining = std::get_if<Joining>(&state_)) bytes = joining->bytes;
  else if (auto* joined = std::get_if<Joined>(&state_)) bytes = joined->bytes;
  else bytes = Tensor::empty({parameters_.bytes_of(parameters_.own_shard(), parameters_.ranks().size())}, DType::u8);
  Gather gather = begin_into(parameters_.all(), bytes);
  state_ = Joining{std::move(bytes), std::move(gather)};
}

void ReplicaPieces::finish() {
  auto* joining = std::get_if<Joining>(&state_);
  if (joining == nullptr) return;
  joining->gather.work.wait();
  Joined joined{std::move(joining->bytes), std::move(joining->gather.versions)};
  state_ = std::move(joined);
}

}  // namespace tutti::parallel
