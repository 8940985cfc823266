// CallRecord: a rank's description of a call, which must match on all ranks of a collective.
//
// A record is plain bytes: it is stored in shared memory, sent ahead of messages, and kept by the flight
// recorder. Its fingerprint is part of the flag of the first exchange of a call, so that a mismatch is found before any
// data is used; only then is the whole record read, to name the field that differs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tutti/core/dtype.h"
#include "tutti/core/reduce_op.h"
#include "tutti/core/shape.h"
#include "tutti/diagnose/collective_kind.h"

namespace tutti::comm {

// The words of records for a collective, whose definition is in tutti/comm.
inline const CollectiveWords& words_of(CollectiveKind kind) { return kCollectiveWords[static_cast<size_t>(kind)]; }
std::string_view name_of(CollectiveKind kind);

inline constexpr int kMaxRecordDims = 8;

struct CallRecord {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceKind reduce = ReduceKind::sum;
  DType dtype = DType::u8;
  int8_t ndim = -1;      // number of dims of the described tensor; -1: none
  int32_t root = -1;     // group rank of the root, or for send and recv the peer; -1: none
  int32_t tensors = 1;   // number of tensors of a coalesced call
  uint32_t tag = 0;      // for send and recv
  int64_t sequence = 0;  // number of the call in its group, from 1
  int64_t sizes[kMaxRecordDims] = {};
  uint64_t splits = 0;      // hash of the sizes that all ranks must agree on beyond the first tensor's, or
                            // CallOptions::agreement; 0: none
  bool same_sizes = true;   // whether `sizes` must agree; false where ranks may have different extents
  bool is_refused = false;  // this rank found its arguments wrong and takes part only to say so

  void describe_tensor(DType dtype, const Extents& sizes);
  // Equal on two ranks when their calls match.
  uint64_t fingerprint() const;
  int64_t numel() const;
};

// "all_reduce(f32 [4, 3], sum)", "broadcast(i64 [8], root 2)", "barrier()".
std::string describe(const CallRecord& record);

// The first field in which two calls do not match, e.g. "shapes"; nullopt when they match.
std::optional<std::string> differing_field(const CallRecord& a, const CallRecord& b);

// The message for a mismatch: names the group, the first rank that differs from rank 0, both calls and the field.
// `records` holds the record of each rank.
std::string mismatch_message(const std::string& group, std::span<const CallRecord> records);

}  // namespace tutti::comm
