// The groups of ranks that the collectives of a package run on.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/ops/engine/op_def.h"

namespace tutti::deploy {

struct PackageGroup;

// This rank's part in a live group. comm::rank_group() makes it of a process group, and the C interface of a function
// of the program (tutti_collectives.h). All ranks of the group make the same calls in the same order.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  // By which functions of this rank know the group; "": they do not.
  virtual std::string name() const { return ""; }
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Starts the call, whose group this is. Its outputs may be pending: before_host_read() then waits for them, and both
  // throw what goes wrong.
  virtual void start(const OpCall& call, std::span<const Tensor> outputs) = 0;
  // The texts of all ranks in their order. All have one length.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
  // Starts all_gather(); what it returns waits for the texts, and both throw what goes wrong. Groups whose calls do not
  // return before they end make it at once.
  virtual std::function<std::vector<std::string>()> start_all_gather(const std::string& text) {
    return [texts = all_gather(text)] { return texts; };
  }
};

// The groups of one package, by the names that its plans have for them.
struct BoundGroup {
  std::string name;
  std::shared_ptr<RankGroup> ranks;
};
using BoundGroups = std::vector<BoundGroup>;

// While it lives, plans that this thread runs communicate in these groups, which must outlive it.
class BoundGroupsScope {
 public:
  explicit BoundGroupsScope(const BoundGroups& groups);
  ~BoundGroupsScope();
  BoundGroupsScope(const BoundGroupsScope&) = delete;
  BoundGroupsScope& operator=(const BoundGroupsScope&) = delete;
  // UsageError, naming the op, when the thread has no group of that name.
  static RankGroup& find(const std::string& name, const char* op);

 private:
  const BoundGroups* const before_;
};

// Binds live groups to those of a package, in the order of its manifest. All ranks of all groups call it: they compare
// what they have opened. UsageError, on all ranks, when files do not belong together, or one is that of another rank.
BoundGroups bind_groups(const std::string& function, std::span<const PackageGroup> wanted,
                        std::span<const std::shared_ptr<RankGroup>> groups);

}  // namespace tutti::deploy
