// CollectiveDef: the complete definition of a collective, as data.
//
// Groups, backends, checks, fingerprints, the flight recorder, traces, benchmarks and tests iterate over the table of
// definitions; none of them treats a collective by name. Each file in collectives/ holds the rows of one collective,
// and the build makes CollectiveKind and the table from that folder. W is the number of ranks, n the number of elements
// of one rank's share.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "tutti/comm/collective_call.h"
#include "tutti/comm/collective_rows.h"
#include "tutti/ops/engine/named_ops.h"

namespace tutti::comm {

class Collective;
class Move;
class Reduction;
struct HostLayout;
struct TransportTraits;

// The tensors that a call takes on one side.
enum class Given : uint8_t {
  none,
  share,         // one tensor of n elements
  whole,         // one tensor of W n elements, or as many as the splits say
  padded,        // a tensor with room for at least the rows of all ranks, and their splits, i64 [W]
  list,          // one tensor for each rank
  list_on_root,  // the same on the root, none on other ranks
};
// Whether the outputs are inputs, too: then a call has no others.
enum class InPlace : uint8_t {
  no,
  all_ranks,  // each rank reads and writes its tensor
  from_root,  // the root reads it, the others write theirs
  to_root,    // all read theirs, the root writes it
};
// Which sizes may differ between ranks.
enum class Evenness : uint8_t {
  equal,     // none
  listed,    // those in the list, which is the same on all ranks; such a call has the kind `uneven`
  pairwise,  // all, as long as what a rank sends is what the other takes
};
// How the tensor that describes a call in records relates to the elements that move.
enum class Flow : uint8_t {
  keeps,     // as many go in as come out
  gathers,   // W times as many come out
  scatters,  // W times as many go in
  sends,
  receives,
};
enum class TensorSide : uint8_t { input, output };

// Where element i of the results of a rank comes from: element `index` of the inputs of the ranks [first, last), which
// are more than one in reductions only. Lists count as one tensor.
struct Source {
  int first;
  int last;
  int64_t index;
};

// One call as a row sees it; coalesced calls are seen tensor by tensor.
struct CallPart {
  const CollectiveCall& call;
  const Seat& seat;
  const Tensor& input(size_t i = 0) const { return call.inputs[i]; }
  const Tensor& output(size_t i = 0) const { return call.outputs[i]; }
  size_t rank() const { return static_cast<size_t>(seat.rank); }
  bool is_root() const { return seat.rank == call.root; }
};

struct CollectiveDef {
  const char* name;
  // The names that c10d and older releases have for it.
  std::array<const char*, 4> former_names = {};

  // ---- arguments
  Given outputs = Given::none;
  Given inputs = Given::none;
  InPlace in_place = InPlace::no;
  bool is_rooted = false;
  bool has_splits = false;  // on the host: CollectiveCall::output_splits and input_splits
  bool reduces = false;
  bool is_message = false;
  Evenness evenness = Evenness::equal;
  // A `listed` collective names here the row of its uneven calls, which names it in turn.
  const CollectiveDef* uneven = nullptr;
  const CollectiveDef* uneven_of = nullptr;
  // The collective that a coalesced one does with each tensor, or pair of tensors.
  const CollectiveDef* each = nullptr;
  // Throws UsageError, beginning with `op`, where the sizes do not fit. The other checks have been made.
  void (*sizes)(const char* op, const CallPart& part) = nullptr;

  // ---- records
  TensorSide described = TensorSide::input;  // whose first tensor (of a list: this rank's) describes the call
  Flow flow = Flow::keeps;

  // ---- exchanges: one of these, unless the collective is made of others
  void (*move)(Move& move, const CallPart& part) = nullptr;
  void (*reduction)(Reduction& reduction, const CallRecord& record, const CallPart& part,
                    const TransportTraits& traits) = nullptr;
  std::unique_ptr<Collective> (*make)(const CallRecord& record, const CallPart& part) = nullptr;
  std::array<const char*, 2> made_of = {};
  // The same result with fewer bytes between hosts, for large tensors over transports that know their hosts; null where
  // this call is none of them. All ranks must come to the same answer.
  std::unique_ptr<Collective> (*over_hosts)(const CallRecord& record, const CallPart& part,
                                            const HostLayout& hosts) = nullptr;
  // The ops of its functional form (functional/functional.h), which hold gradient and kernel.
  NamedOps<2> functional = {};

  // ---- meaning and cost
  Source (*source)(int64_t i, int64_t n, const Seat& seat, int root) = nullptr;
  // The bytes that a rank sends, divided by those of its larger side: the bus factor of nccl-tests.
  double (*wire)(double ranks) = nullptr;

  // False for messages and for what is made of other collectives.
  bool has_exchanges() const {
    return move != nullptr || reduction != nullptr || make != nullptr || each != nullptr || uneven_of != nullptr;
  }
};

// In the order of CollectiveKind; generated by the build.
extern const CollectiveDef* const kCollectiveTable[kNumCollectiveKinds];
inline std::span<const CollectiveDef* const> collective_table() { return kCollectiveTable; }
inline const CollectiveDef& definition(CollectiveKind kind) { return *kCollectiveTable[static_cast<size_t>(kind)]; }
CollectiveKind kind_of(const CollectiveDef& def);
// Takes former names, too. UsageError lists the present ones.
CollectiveKind collective_from_name(std::string_view name);

// The row that carries out `call`, which is that of all_gather for an all_gather_v.
const CollectiveDef& definition_of(const CollectiveCall& call);
// The number of tensors, or pairs of tensors, of a coalesced call.
size_t parts_of(const CollectiveDef& def, const CollectiveCall& call);
// Part `i` of a coalesced call, as a call of `def.each`.
CollectiveCall part_of(const CollectiveDef& def, const CollectiveCall& call, size_t i);
// The tensor that describes a call in records; null when it has none.
const Tensor* described_tensor(const CollectiveDef& def, const CollectiveCall& call, const Seat& seat);
// The part of a call that all ranks must agree on.
CallRecord record_of(const CollectiveDef& def, const CollectiveCall& call, const Seat& seat);
// All tensors that the call writes.
std::vector<Tensor> results_of(const CollectiveCall& call);
// Whether a rank reads, or writes, the outputs of a call in place.
inline bool reads_outputs(const CollectiveDef& def, const CollectiveCall& call, int rank) {
  return def.in_place != InPlace::no && (def.in_place != InPlace::from_root || rank == call.root);
}
inline bool writes_outputs(const CollectiveDef& def, const CollectiveCall& call, int rank) {
  switch (def.in_place) {
    case InPlace::from_root:
      return rank != call.root;
    case InPlace::to_root:
      return rank == call.root;
    default:
      return true;
  }
}

// Defines a row. At the beginning of a line, where the build looks for it.
#define TUTTI_COLLECTIVE(row) constinit const ::tutti::comm::CollectiveDef tutti::comm::collective_rows::row

}  // namespace tutti::comm
