// CollectiveCall: the arguments of one call of a collective on one rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tutti/core/device.h"
#include "tutti/diagnose/call_record.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {

struct CollectiveDef;  // collective_def.h

struct CallOptions {
  bool async = false;                                     // return immediately; the Work tells when the call has ended
  std::optional<std::chrono::milliseconds> timeout = {};  // timeout of this call; not set: that of the group
  // A hash of what else the ranks must agree on, such as a plan by which they interpret the bytes; 0: nothing. Calls
  // with other keys do not match. Coalesced calls, messages and NCCL do not compare it.
  uint64_t agreement = 0;
};

using Tensors = std::span<const Tensor>;
using Splits = std::span<const int64_t>;

// Refers to the caller's arguments. The definition of the collective (collective_def.h) says which of them it takes.
struct CollectiveCall {
  CollectiveKind kind;
  Tensors outputs = {};  // a call in place has outputs only
  Tensors inputs = {};
  int root = -1;
  ReduceOp reduce = {};
  Splits output_splits = {};
  Splits input_splits = {};
  // Instead of outputs, for a coalesced call with one output per rank: the outputs of each input.
  std::span<const std::vector<Tensor>> output_lists = {};
  CallOptions options = {};
};

// This rank's place in a group, and the device of the tensors there.
struct Seat {
  int rank = 0;
  int ranks = 1;
  Device device = kCpu;
};

}  // namespace tutti::comm
