// Where the copies of a shard group come from: pages that ranks share (shared_page_copies.h), or gathers
// (gathered_copies.h).
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/comm/work.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

class CopySource {
 public:
  virtual ~CopySource() = default;

  // Whether there are whole copies, if only those of older masters.
  virtual bool is_whole() const = 0;
  // Starts what brings the copies of the present masters. Collective.
  virtual void begin() = 0;
  // Waits for it, having begun it if nobody has, and writes the copies. Collective.
  virtual void finish() = 0;

  // ---- For copies that a rank may do without

  // Forgets what begin() has started.
  virtual void drop() {}
  // Gives the memory of the copies back.
  virtual void release() {}
  // The same, but keeps this rank's part of what some neighbours keep together until backward.
  virtual void release_but_own_part() {}
  // Whether some neighbours keep copies together, and whether this rank has its part of them now.
  virtual bool has_neighbours() const { return false; }
  virtual bool has_own_part() const { return false; }
  // From now on none do.
  virtual void forget_neighbours() {}
  // Starts to gather the pieces of this rank's part that replicas store. Collective.
  virtual void begin_pieces() {}
};

// A gather on its way: parts as bytes, and the versions of this rank's masters when it began.
struct Gather {
  comm::Work work;
  std::vector<Tensor> outputs;
  Tensor input;
  std::vector<int64_t> versions;
};

}  // namespace tutti::parallel
