// Shard groups: what fully_shard() makes of the parameters of a module. For parallel/; docs/fsdp.md tells the idea.
//
// A group decides when its copies are made whole and given back; its CopySource says how.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/parallel/copy_source.h"
#include "tutti/parallel/group_parameters.h"
#include "tutti/parallel/shard_groups.h"
#include "tutti/tensor/lent_memory.h"

namespace tutti::parallel {

class ShardGroup final : public std::enable_shared_from_this<ShardGroup>, public MemoryLender {
 public:
  // Collective. From then on the parameters are stored apart (nn::Parameter::set_stored_apart), with the values they
  // have, if any. `reshard_degree`: among how many ranks copies are kept after forward, which divides that of the
  // ranks; 1: each keeps the whole.
  static std::shared_ptr<ShardGroup> make(std::string name, const std::vector<StoredParameter>& parameters,
                                          const dist::Mesh& mesh, int64_t reshard_degree);

  ~ShardGroup();

  // For compiled functions that read copies which are not shared.
  void lend() override;
  void take_back(bool again) override;
  bool takes_back() const override { return reshards_after_forward(); }

  const std::string& name() const { return name_; }
  GroupParameters& parameters() { return parameters_; }
  const GroupParameters& parameters() const { return parameters_; }
  CopySource& source() { return *source_; }
  comm::ProcessGroup& ranks() const { return parameters_.ranks(); }  // that store different parts
  bool is_shared() const { return parameters_.copies().is_shared(); }
  bool is_whole() const { return source_->is_whole(); }
  int64_t copy_bytes() const { return parameters_.copies().nbytes(); }
  bool reshards_after_forward() const { return reshard_degree_ > 1; }
  void set_reshard_after_forward(bool on);

  // Makes the copies whole and up to date. Collective when they are not.
  void unshard();
  // Gives back copies that are not shared.
  void reshard();
  // The same but for the part of them that this rank keeps until backward, if some ranks keep them.
  void reshard_after_forward();
  // Begins to gather them, if they are not shared, whole, or on their way. Collective.
  void start_gather();

  // Around the forward of the group's module: makes the copies whole if a list follows, and gives them back until
  // backward needs them.
  void before_forward();
  void after_forward(const Tensor& output);
  void before_backward();

  std::shared_ptr<ShardGroups> all;              // the model's groups
  std::vector<const nn::Module*> modules;        // that were sharded
  std::vector<const nn::Module*> modules_below;  // these and all modules inside them
  // The groups that are gathered ahead from the forward of this one on, and from its backward on; empty: those that
  // came next in the round before.
  ShardGroups::List forward_prefetch, backward_prefetch;

 private:
  ShardGroup(std::string name, const std::vector<StoredParameter>& parameters, const dist::Mesh& mesh,
             int64_t reshard_degree);
  void store_apart(const StoredParameter& parameter, size_t i);
  void read(size_t i);
  void will_change();
  void finished(const Tensor& leaf);
  void gather();

  const std::string name_;
  GroupParameters parameters_;
  int64_t reshard_degree_;
  std::unique_ptr<CopySource> source_;
  bool is_lent_ = false;  // whether a compiled function asked for the copies last: it gives them back by itself
  std::vector<bool> is_finished_;  // per parameter, whether the backward that runs has its gradient
};

}  // namespace tutti::parallel
