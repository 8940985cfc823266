// Checks of the arguments of a call, made before any data is transferred. All throw UsageError naming the op, the
// argument and the values.
#pragma once

#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/core/device.h"
#include "tutti/core/reduce_op.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {
struct CollectiveCall;
struct CollectiveDef;
struct Seat;
}  // namespace tutti::comm

namespace tutti::comm::checks {

// All that `def` asks of the arguments: root, numbers of tensors, each tensor, dtypes, sizes, and whether they can be
// reduced.
void arguments(const CollectiveDef& def, const CollectiveCall& call, const Seat& seat);

// The tensor must be defined and on the device, and its elements must not overlap.
void tensor(const char* op, const char* role, const Tensor& t, Device device = kCpu);
// Like tensor(), and the tensor must be writable: no expanded dims, not read-only.
void writable(const char* op, const char* role, const Tensor& t, Device device = kCpu);
// The timeout must be positive.
void timeout(std::string_view what, std::chrono::milliseconds timeout);
void root(const char* op, int root, int size);
void peer(const char* op, int peer, int rank, int size, bool any_allowed);
void list_length(const char* op, const char* role, size_t given, int size);
void same_dtype(const char* op, const Tensor& a, const Tensor& b);
void same_numel(const char* op, const char* role_a, const Tensor& a, const char* role_b, const Tensor& b);
// `large` must have `parts` times as many elements as `small`.
void numel_times(const char* op, const char* role_large, const Tensor& large, const char* role_small,
                 const Tensor& small, int parts);
// If the input is a slice of the output, it must be the slice of this rank.
void own_slice(const char* op, const Tensor& output, const Tensor& input, int rank, int size);
void reducible(const char* op, const ReduceOp& reduce, DType dtype);
// Dim 0 of `t` must divide into `size` equal parts.
void equal_parts(const char* op, const char* role, const Tensor& t, int size);
// The splits of dim 0 of `t` must be one per rank, non-negative, and add up to its extent; empty means equal parts.
// Returns the bytes of each part.
std::vector<int64_t> split_bytes(const char* op, const char* role, const Tensor& t, std::span<const int64_t> splits,
                                 int size);

// Splits in a tensor must be i64 [W]. Does not look at the elements.
void split_tensor(const char* op, const char* role, const Tensor& splits, int size);
// The elements of such a tensor, which may have any stride.
std::vector<int64_t> values_of(const Tensor& splits);
// The elements must be non-negative and add up to at most the extent of dim 0 of `t`.
void splits_within(const char* op, const char* role, const Tensor& t, const Tensor& splits);

}  // namespace tutti::comm::checks
