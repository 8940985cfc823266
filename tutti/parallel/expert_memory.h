// ExpertMemory: the receive buffers of ranks that divide experts and share memory.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/parallel/expert_rows.h"
#include "tutti/tensor/tensor.h"

namespace tutti::parallel {

// The memory that others write here, or read, from one forward until its backward is over.
struct ForwardBuffers {
  Tensor rows;     // [R, D] the rows that the own experts take, or [max_tokens, D] the own tokens, which others read
  Tensor lists;    // expert_rows::Lists
  Tensor outputs;  // [N, D] of the experts, for the own tokens
};
// The memory that others write here in a backward: the cotangents of the outputs of experts [R, D] and of the rows [N,
// D], whose last reader is gone at the next move.
struct BackwardBuffers {
  Tensor at_experts, at_tokens;
};

class ExpertMemory {
 public:
  struct Sizes {
    int64_t max_tokens = 0, slots_per_token = 0, dim = 0;
    DType dtype = DType::f32;
    auto operator<=>(const Sizes&) const = default;
  };
  struct Options {
    bool reads_tokens = false;  // the ranks read the tokens of others instead of storing rows there
    bool poisons = false;       // see expert_rows.h
    // Gradients go to experts and come back in buffers of their own. 1 has them share one, which is too few: for tests
    // that show what happens then.
    int backward_buffers = 2;
  };
  // All members of `group` make one in the same order; `experts` in all. UsageError, naming the transport, when it does
  // not share memory.
  ExpertMemory(std::shared_ptr<comm::ProcessGroup> group, int64_t experts, const Options& options);
  ~ExpertMemory();
  ExpertMemory(const ExpertMemory&) = delete;
  ExpertMemory& operator=(const ExpertMemory&) = delete;

  // How many layers take turns.
  int add_layer() { return layers_++; }

  // The buffers for a forward of a layer. A forward that is recorded keeps those of its layer until its backward; one
  // that is not, or that runs again in backward, takes common ones, which may have room for more tokens: `exchange`
  // says for how many. Collective when there are none yet.
  struct Buffers {
    expert_rows::Exchange exchange;
    expert_rows::Lists lists;
    ForwardBuffers forward;
    BackwardBuffers backward;
    Tensor mailbox;  // i64 [W, E + 1]: counts, and the grain of tokens
  };
  Buffers buffers(const Sizes& sizes, int layer);

  const std::shared_ptr<comm::ProcessGroup>& group() const { return group_; }
  int64_t experts() const { return experts_; }
  // The rows for which a rank has room: as many as may come.
  int64_t capacity(const Sizes& sizes) const;

 private:
  struct Room {
    std::map<int, ForwardBuffers> of_layers, common;
    BackwardBuffers backward;
    Tensor mailbox;
  };
  Tensor allocate(const Extents& sizes, DType dtype);
  Sizes with_room(Sizes sizes) const;
  ForwardBuffers& forward_buffers(Room& room, const Sizes& sizes, int layer);

  const std::shared_ptr<comm::ProcessGroup> group_;
  const int64_t experts_;
  const Options options_;
  int layers_ = 0;
  int64_t nbytes_ = 0;  // of what dispatch_counts() holds for this rank
  std::map<Sizes, Room> rooms_;
  uint64_t region_ = 0;  // that runs again, and how many forwards of it have taken buffers
  int forwards_here_ = 0;
};

// Whether TUTTI_POISON_EXPERT_ROWS asks for poisoned buffers.
bool poisons_expert_rows();

}  // namespace tutti::parallel
