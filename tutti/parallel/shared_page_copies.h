// Copies in pages that the ranks of a host share: each rank writes its parts, and all read all. Nothing is gathered but
// what replicas on other hosts store of the parts.
#pragma once

#include <optional>
#include <vector>

#include "tutti/parallel/copy_source.h"
#include "tutti/parallel/group_parameters.h"
#include "tutti/parallel/replica_pieces.h"

namespace tutti::parallel {

// ShardGroups::publish() has the ranks meet before begin() and after finish().
class SharedPageCopies final : public CopySource {
 public:
  // `parameters` must outlive this.
  explicit SharedPageCopies(GroupParameters& parameters);

  bool is_whole() const override { return parameters_.were_written(); }
  // Writes this rank's parts of what is stale, and starts to gather the pieces of them that replicas store.
  void begin() override;
  // Writes those pieces.
  void finish() override;

 private:
  struct Publishing {
    std::vector<size_t> parameters;
    Gather pieces;
  };
  GroupParameters& parameters_;
  std::optional<ReplicaPieces> pieces_;
  std::optional<Publishing> publishing_;  // where there are pieces
};

}  // namespace tutti::parallel
