// What can be wrong with the arguments of a call, found before any byte moves. All throw UsageError naming the op, the
// argument and the values.
#pragma once

#include <chrono>
#include <string_view>

#include "tutti/comm/backend.h"

namespace tutti::comm::checks {

// A tensor given, on the device, whose elements are there once.
void tensor(const char* op, const char* role, const Tensor& t, Device device = kCpu);
// Like tensor(), and it may be written: no expanded dims, not read-only.
void writable(const char* op, const char* role, const Tensor& t, Device device = kCpu);
// More than 0; of any length.
void timeout(std::string_view what, std::chrono::milliseconds timeout);
void root(const char* op, int root, int size);
void peer(const char* op, int peer, int rank, int size, bool any_allowed);
void list_length(const char* op, const char* role, size_t given, int size);
void same_dtype(const char* op, const Tensor& a, const Tensor& b);
void same_numel(const char* op, const char* role_a, const Tensor& a, const char* role_b, const Tensor& b);
// numel of `large` is `parts` times that of `small`.
void numel_times(const char* op, const char* role_large, const Tensor& large, const char* role_small, const Tensor& small, int parts);
// An input that is a slice of the output is this rank's own: another one is somebody else's place.
void own_slice(const char* op, const Tensor& output, const Tensor& input, int rank, int size);
void reducible(const char* op, const ReduceOp& reduce, DType dtype);
// Splits of dim 0 of `t`, one per rank, none negative, adding up to its extent; empty: equal parts. Bytes per part.
std::vector<int64_t> split_bytes(const char* op, const char* role, const Tensor& t, Splits splits, int size);

}  // namespace tutti::comm::checks
