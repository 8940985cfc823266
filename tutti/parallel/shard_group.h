// Groups of sharded parameters: what fully_shard() makes of a module's parameters. For parallel/; docs/fsdp.md tells
// the idea.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/dist/dtensor.h"
#include "tutti/nn/module.h"
#include "tutti/parallel/parameter_copies.h"
#include "tutti/tensor/lent_memory.h"

namespace tutti::parallel {

class ShardGroup;

// The groups of one model: those of the modules inside come before their own. A rank's copies are made whole by
// collectives, so what makes one necessary must happen on all ranks in the same order: reads of parameters in forward
// and backward, and changes of masters.
class ShardGroups {
 public:
  void add(const std::shared_ptr<ShardGroup>& group);
  void take_all(ShardGroups& inner);
  std::vector<std::shared_ptr<ShardGroup>> groups() const;

  // Every rank writes its part of what has changed in all groups with shared copies: when all have read the values of
  // before, and returns when all have written.
  void publish();
  // Returns when all ranks have read what they read of the values of before; for groups whose masters lie in the
  // copies.
  void settle();

  // A rank without a virtual shard in a round makes the collectives of the others, which are those of its own round
  // before. What has become of a group's copies; kept: in parts, among some ranks; ahead: they are on their way,
  // because a list said so.
  enum class Copies : uint8_t { whole, kept, given_back, ahead };
  void note(const ShardGroup* group, Copies copies);
  void begin_round();
  void replay_round();
  // Where copies are read: by ops in forward or backward, or by a compiled function, which asks for them in its own
  // order. In a replay, where they were.
  enum class Reader : uint8_t { forward, backward, compiled };
  Reader reader() const;
  // While one lives, the reader is a compiled function.
  class CompiledReads {
   public:
    explicit CompiledReads(ShardGroups& groups)
        : groups_(groups), before_(std::exchange(groups.reader_, Reader::compiled)) {}
    ~CompiledReads() { groups_.reader_ = before_; }
    CompiledReads(const CompiledReads&) = delete;
    CompiledReads& operator=(const CompiledReads&) = delete;

   private:
    ShardGroups& groups_;
    const std::optional<Reader> before_;
  };

  // Starts to gather the parts of copies that replicas store in pieces, of all groups.
  void start_joining();

  // Starts the gathers of the groups that came next in the round before.
  void prefetch();
  // Starts those of a list, in its order.
  using List = std::vector<std::weak_ptr<ShardGroup>>;
  void start(const List& list);

  int holds = 0;       // while positive, no copy is given back
  int prefetched = 1;  // how many groups are gathered ahead

 private:
  struct Event {
    const ShardGroup* group;
    Copies copies;
    Reader reader;
    bool operator==(const Event&) const = default;
  };
  using Changed = std::vector<std::pair<std::shared_ptr<ShardGroup>, std::vector<size_t>>>;  // parameters by group
  void poison(const Changed& changed) const;
  comm::ProcessGroup& widest() const;

  std::vector<std::weak_ptr<ShardGroup>> groups_;
  bool may_be_read_ = false;  // since the last settle()
  std::vector<Event> round_, round_before_;
  std::optional<Reader> reader_;  // of a replay, or a compiled function
};

class ShardGroup final : public std::enable_shared_from_this<ShardGroup>, public MemoryLender {
 public:
  // A parameter as it will be stored.
  struct Stored {
    nn::NamedParameter named;
    const dist::DTensorSpec*
        spec;  // how the data ranks divide what forward reads on this rank: the parameter, or this rank's part of it
    const dist::DTensorSpec* storage;  // the same for what they store: replicas may divide it further
    const dist::DTensorSpec* master;   // how all ranks divide the parameter
    dist::Mesh mesh;                   // of the master
    // Where ranks divide the parameter itself (tensor_parallel.h), how forward reads it.
    const dist::DTensorSpec* read = nullptr;
    dist::Mesh readers = {};
    Tensor memory = {};  // of the whole master, which all ranks map; undefined: none
  };
  // Collective. From then on the parameters are stored apart (nn::Parameter::set_stored_apart), with the values they
  // have, if any. `keepers`: among how many ranks copies are kept after forward, which divides that of the ranks; 1:
  // each keeps the whole.
  static std::shared_ptr<ShardGroup> make(std::string name, const std::vector<Stored>& parameters,
                                          const dist::Mesh& mesh, int64_t keepers);

  ~ShardGroup();

  // For compiled functions that read copies which are not shared.
  void lend() override;
  void take_back(bool again) override;
  bool takes_back() const override { return reshards_after_forward(); }

  const std::string& name() const { return name_; }
  const dist::Mesh& mesh() const { return mesh_; }
  comm::ProcessGroup& ranks() const;  // that store different parts
  const std::vector<std::string>& parameters() const { return names_; }
  bool is_shared() const { return copies_->is_shared(); }
  bool is_whole() const { return is_whole_; }
  int64_t stored_bytes() const;
  int64_t copy_bytes() const { return copies_->nbytes(); }
  bool reshards_after_forward() const { return keepers_ > 1; }
  void set_reshard_after_forward(bool on);

  // Makes the copies whole and up to date. Collective when they are not.
  void unshard();
  // Gives back copies that are not shared.
  void reshard();
  // The same but for the part of them that this rank keeps until backward, if some ranks keep them.
  void reshard_after_forward();
  // Begins to gather them, if they are not shared, whole, or on their way. Collective.
  void start_gather();
  // Waits for a gather on its way, if there is one, and drops it.
  void drop_gather();
  // Around the forward of the group's module: makes the copies whole if a list follows, and gives them back until
  // backward needs them.
  void before_forward();
  void after_forward(const Tensor& output);
  void before_backward();
  // Backward has the gradients of a parameter.
  void finished(const Tensor& leaf);

  // Before the masters change.
  void will_change();
  // Which parameters have changed since their copies were written.
  std::vector<size_t> stale() const;
  // Writes this rank's parts of those to the copies. What replicas on other hosts store of them is on its way then; the
  // result waits for it and writes it.
  std::function<void()> write(const std::vector<size_t>& parameters);
  // Begins to gather this rank's part of the copies from the replicas that store pieces of it, if that is how it is
  // stored and the part is not up to date. Collective.
  void start_joining();
  // Fills this rank's rows of those in the copies with NaN; returns a function that gives them their values again
  // (publish_protocol.h).
  std::function<void()> poison(const std::vector<size_t>& parameters) const;

  std::shared_ptr<ShardGroups> all;              // the model's groups
  std::vector<const nn::Module*> modules;        // that were sharded
  std::vector<const nn::Module*> modules_below;  // these and all modules inside them
  // The groups that are gathered ahead from the forward of this one on, and from its backward on; empty: those that
  // came next in the round before.
  ShardGroups::List forward_prefetch, backward_prefetch;

 private:
  // A gather on its way: the parts of all ranks as bytes, and the versions of this rank's parts when it began.
  struct Gather {
    comm::Work work;
    std::vector<Tensor> outputs;
    Tensor input;
    std::vector<int64_t> versions;
  };
  ShardGroup(std::string name, const dist::Mesh& mesh, int64_t keepers);
  Gather start_exchange(const std::vector<size_t>& parameters, const Tensor& into = {}) const;
  void take_piece(const Tensor& bytes, const std::vector<size_t>& parameters, int64_t piece);
  void read(size_t parameter);
  void gather();
  void wait_for_gather();
  void take(const std::vector<Tensor>& parts_of_ranks);
  bool is_stale(size_t parameter) const;
  std::vector<int64_t> versions() const;
  bool has_kept() const;
  int64_t nbytes(size_t parameter, int64_t shard, int64_t shards, int64_t piece) const;
  Tensor rows(const Tensor& whole, size_t parameter, int64_t shard) const;
  Tensor part(const Tensor& whole, size_t parameter, int64_t shard, int64_t shards, int64_t piece) const;
  int64_t pieces(int64_t shards) const;
  int64_t bytes_of(int64_t shard, int64_t shards) const;
  std::vector<size_t> every_parameter() const;
  Tensor stored_bytes_of(const std::vector<size_t>& parameters) const;
  void join();

  const std::string name_;
  const char* const start_label_;  // in traces
  const dist::Mesh mesh_;
  comm::ProcessGroup* group_ = nullptr;
  std::shared_ptr<comm::ProcessGroup> gathers_;  // the same ranks; null where nothing is gathered
  std::shared_ptr<comm::ProcessGroup> near_;     // those among which this rank keeps copies, if not all and not one
  // Those that have the same part of the copies, of which each stores a piece; null: this rank stores all of its part.
  std::shared_ptr<comm::ProcessGroup> replicas_;
  int64_t keepers_;
  std::vector<std::string> names_;
  std::vector<const dist::DTensorSpec*> specs_, storage_;  // how copies are divided, and what is stored
  std::vector<Tensor> parts_;                              // what this rank stores
  std::vector<bool> is_in_copy_;  // whether those are rows of the shared copy: no cast lies between
  std::vector<int64_t> written_;  // the version of each part when it was last written to the copies
  std::unique_ptr<ParameterCopies> copies_;
  std::vector<Tensor>
      leaves_;  // what forward reads: the copies, or distributed tensors of which they are this rank's parts
  bool is_whole_ = false;
  bool is_lent_ = false;  // whether a compiled function asked for the copies last: it gives them back by itself
  std::vector<bool> is_finished_;  // per parameter, whether the backward that runs has its gradient
  std::optional<Gather> under_way_;
  // This rank's part of the copies between forward and backward, with the versions that were gathered.
  struct Kept {
    Tensor bytes;
    std::vector<int64_t> versions;
  };
  std::optional<Kept> kept_;
  // This rank's part of the copies, the pieces of the replicas one after another, and the gather that brings them.
  std::optional<Kept> joined_;
  std::optional<Gather> joining_;
};

}  // namespace tutti::parallel
