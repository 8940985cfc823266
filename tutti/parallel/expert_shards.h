// Virtual shards of a model whose experts ranks divide (expert_parallel.h): Shards (shards.h) for the parameters that
// every rank has, and for the experts, whose gradients are nodes of the shards of all ranks that divide them.
//
// In each round the ranks of a line of the mesh run neighbouring shards, with the schedule every_round, so what one of
// them has of an expert's gradient is the node of those. The tree goes on from there over the ranks that have the same
// experts.
//
// Where tensor-parallel ranks divide the tokens of a shard, each is a shard of its own for the experts: neighbouring
// parts of its tokens are nodes of the tree over them.
#pragma once

#include <optional>

#include "tutti/parallel/shards.h"

namespace tutti::parallel {

class ExpertShards {
 public:
  struct Ranks {
    comm::ProcessGroup* all = nullptr;       // that share the batch; null: one rank
    dist::Mesh experts = {};                 // that divide the experts; null: none do
    int64_t tensor = 1;                      // that divide the tokens of each shard; with `experts` only
    comm::ProcessGroup* replicas = nullptr;  // that have the same experts, in the order of their lines
  };
  // `parameters` are leaves as for Shards; the schedule is every_round where ranks divide experts. UsageError as for
  // Shards, and naming the numbers when the ranks of `experts` do not divide the shards and ranks, those of `tensor`
  // counted.
  ExpertShards(int64_t count, const Ranks& ranks, const std::vector<Tensor>& parameters, Schedule schedule,
               Overlap overlap);

  // As those of Shards.
  const std::vector<int64_t>& mine() const { return shared_.mine(); }
  int64_t rounds() const { return shared_.rounds(); }
  UseSink* sink() { return experts_ ? static_cast<UseSink*>(&sink_) : shared_.sink(); }
  std::string advice() const { return shared_.advice(); }
  int64_t sum(int64_t mine) const { return shared_.sum(mine); }
  void set_reduce_scatter_max_input_buffers(int64_t count);
  void add(const Tensor& losses);
  ShardSums finish();

 private:
  template <class Call>
  auto both(const Call& call);
  // Hands uses on to the tree that their leaf belongs to.
  class JoinedSink final : public UseSink {
   public:
    explicit JoinedSink(ExpertShards& owner) : owner_(owner) {}
    int32_t index_of(const Tensor& leaf) const override;
    void use(int32_t leaf, int32_t position, Tensor grad) override;
    void finished(int32_t leaf) override;

   private:
    ExpertShards& owner_;
  };

  std::vector<bool> is_expert_;  // by parameter
  Shards shared_;
  std::optional<Shards> experts_;
  const dist::Mesh mesh_;
  JoinedSink sink_{*this};
};

}  // namespace tutti::parallel
