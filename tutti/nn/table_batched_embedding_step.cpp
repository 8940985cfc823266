// What TableBatchedEmbeddingBags keeps of its lookups, from forward over backward to step().
#include <algorithm>
#include <cstdio>

#include "tutti/autograd/function.h"
#include "tutti/autograd/tape.h"
#include "tutti/nn/table_batched_embedding.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/tensor/host_read.h"

namespace tutti::nn {

// `values` with a node before them that keeps their gradient for step().
Tensor TableBatchedEmbeddingBags::recorded(const Tensor& values, const TableBatch& batch,
                                           std::optional<int64_t> virtual_shard) const {
  // In a trace tensors stand for memory that does not exist.
  TUTTI_CHECK(HostReads::current() == nullptr,
              "TableBatchedEmbeddingBags: a compiled function would look up the batch of its trace in every step; call "
              "the module outside of compile(), or in eval() mode");
  for (size_t t = 0; t < tables_.size(); ++t)
    TUTTI_CHECK(!weight(t).requires_grad(),
                "TableBatchedEmbeddingBags: table {} requires grad, and the module has an optimizer of its own, which "
                "steps it without; call weight({}).requires_grad_(false), or build the module with .optimizer = "
                "std::nullopt",
                tables_[t].name, t);
  const auto use = std::make_shared<Use>(Use{0, {.grad = {}, .batch = batch}, versions_of(batch), 0});
  if (batch.per_sample_weights.defined()) use->use.batch.per_sample_weights = detach(batch.per_sample_weights);
  {
    const std::lock_guard lock(uses_->mutex);
    use->step = uses_->step;
    use->shard = virtual_shard ? *virtual_shard : uses_->next_shard++;
  }
  TUTTI_CHECK(
      use->shard < kMostShards,
      "TableBatchedEmbeddingBags: there were {} lookups since the last step; call step() or abandon_step(), and "
      "look up in eval() mode where no step follows",
      kMostShards);
  const autograd::Function keep(
      "TableBatchedEmbeddingBags",
      [](autograd::FunctionContext&, std::span<const Tensor> in) { return std::vector{in[0]}; },
      [use, uses = uses_](const autograd::FunctionContext&, std::span<const Tensor> grads) {
        std::vector<Tensor> result = {grads[0], {}};
        if (!grads[0].defined()) return result;
        const NoGradScope no_grad;
        const std::lock_guard lock(uses->mutex);
        if (use->step != uses->step) return result;
        Tensor& grad = use->use.grad;
        if (!grad.defined()) uses->reached.push_back(use);
        grad = grad.defined() ? add(grad, grads[0]) : detach(grads[0]);
        return result;
      });
  return keep(values, anchor_);
}

std::vector<uint32_t> TableBatchedEmbeddingBags::versions_of(const TableBatch& batch) const {
  const Tensor& weights = batch.per_sample_weights;
  std::vector<uint32_t> versions = {batch.indices.version(), batch.offsets.version(),
                                    weights.defined() ? weights.version() : 0};
  for (const auto& w : weights_) versions.push_back(w->weight.stored().version());
  return versions;
}

void TableBatchedEmbeddingBags::Uses::drop() {
  reached.clear();
  next_shard = 0;
  ++step;
}

void TableBatchedEmbeddingBags::check_unchanged(const Use& use) const {
  const std::vector<uint32_t> now = versions_of(use.use.batch);
  const char* const of_batch[] = {"indices", "offsets", "per_sample_weights"};
  for (size_t i = 0; i < now.size(); ++i) {
    TUTTI_CHECK(i >= std::size(of_batch) || now[i] == use.versions[i],
                "TableBatchedEmbeddingBags::step: the {} of virtual shard {} were changed in place after the forward "
                "(version {} then, {} now); give the forward tensors that stay as they are until step()",
                of_batch[std::min(i, std::size(of_batch) - 1)], use.shard, use.versions[i], now[i]);
    TUTTI_CHECK(i < std::size(of_batch) || now[i] == use.versions[i],
                "TableBatchedEmbeddingBags::step: table {} was changed after the forward of virtual shard {} (version "
                "{} then, {} now), so its gradient is that of other values; call abandon_step() after loading values",
                tables_[i - std::size(of_batch)].name, use.shard, use.versions[i], now[i]);
  }
}

// The uses at the places of their shards, undefined where no backward() came. Gradients and weights are dense f32.
std::vector<TableUse> TableBatchedEmbeddingBags::uses_by_shard() const {
  std::vector<TableUse> places;
  for (const auto& use : uses_->reached) {
    check_unchanged(*use);
    const size_t shard = static_cast<size_t>(use->shard);
    places.resize(std::max(places.size(), shard + 1));
    TUTTI_CHECK(
        !places[shard].grad.defined(),
        "TableBatchedEmbeddingBags: virtual shard {} has two lookups in one step; make them features of one call",
        shard);
    TableUse& place = places[shard];
    place = use->use;
    place.grad = facets::dense_as(place.grad, DType::f32);
    if (Tensor& weights = place.batch.per_sample_weights; weights.defined())
      weights = facets::dense_as(weights, DType::f32);
  }
  return places;
}

void TableBatchedEmbeddingBags::step() {
  TableStep options = optimizer("TableBatchedEmbeddingBags::step");
  const int ranks = RankContext::current().world_size();
  TUTTI_CHECK(
      ranks == 1,
      "TableBatchedEmbeddingBags::step: {} ranks train together, and a step sums the lookups of one rank, so "
      "their copies of the tables would differ from then on; use parallel::ShardedTables, which takes the same options",
      ranks);
  TUTTI_CHECK(HostReads::current() == nullptr,
              "TableBatchedEmbeddingBags::step: a compiled function cannot step tables; call step() outside of "
              "compile()");
  const NoGradScope no_grad;
  const std::lock_guard lock(uses_->mutex);
  const std::vector<TableUse> uses = uses_by_shard();
  TUTTI_CHECK(!uses.empty(),
              "TableBatchedEmbeddingBags::step: backward() reached no lookup since the last step; lookups count that "
              "training mode records");
  options.step = steps_ + 1;
  std::vector<Tensor> masters;
  std::vector<TableOfBatch> which;
  for (size_t t = 0; t < tables_.size(); ++t) {
    masters.push_back(weight(t).master());
    state_of(t);
    which.push_back({static_cast<int64_t>(t), {}, tables_[t].rows});
  }
  for (TableOfBatch& of : which)
    for (const TableConfig& t : tables_) of.columns.push_back(t.columns);
  facets::check_uses("TableBatchedEmbeddingBags::step", uses, which, options_.batch);
  size_t stepped = 0;
  try {
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (std::find(options_.features.begin(), options_.features.end(), static_cast<int64_t>(t)) ==
          options_.features.end())
        continue;
      options.seed = random_key(tables_[t].name + ".weight", 1).key;
      ++stepped;
      weight(t).will_change();
      table_batched_step_(masters[t], states_[t], uses, which[t], options, options_.batch);
    }
  } catch (...) {
    uses_->drop();
    fmt::print(stderr,
               "tutti: TableBatchedEmbeddingBags::step: it failed at table {} of those that are looked up, and the "
               "ones before are stepped; the step is abandoned, and values of before it are those of a checkpoint\n",
               stepped);
    throw;
  }
  ++steps_;
  uses_->drop();
}

void TableBatchedEmbeddingBags::abandon_step() {
  const std::lock_guard lock(uses_->mutex);
  uses_->drop();
}

}  // namespace tutti::nn
