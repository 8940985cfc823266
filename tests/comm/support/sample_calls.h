// One right call of each collective, for tests that go through all of them.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// The tensors that a call refers to.
struct SampleArguments {
  std::vector<Tensor> outputs, inputs;
  std::vector<std::vector<Tensor>> output_lists;
  std::vector<int64_t> output_splits, input_splits;
};

struct SampleCall {
  std::vector<Tensor> inputs;   // this rank's, which the call must leave alone
  std::vector<Tensor> outputs;  // this rank's, which it writes
  std::function<void()> make;   // blocks
  // The arguments that `make` passes, which a test may change; null for messages and calls made of other collectives.
  std::shared_ptr<SampleArguments> arguments;
};

struct SampleOptions {
  int64_t count = 5;  // elements that a rank gives each rank
  DType dtype = DType::f32;
  ReduceOp op = {};
  int root = 0;
  bool uneven = false;  // the ranks' sizes differ, whether the call takes that or not
};

// Collective over the group's members. Messages go around the ring of ranks. Kinds whose name ends in _v always get
// uneven sizes.
SampleCall sample_call(ProcessGroup& group, CollectiveKind kind, const SampleOptions& options = {});

std::vector<CollectiveKind> all_kinds();
void PrintTo(CollectiveKind kind, std::ostream* out);  // for names of tests
// The names that an error's message may give the call.
std::vector<std::string> names_of_call(CollectiveKind kind);
// Whether it takes a reduce op.
bool reduces(CollectiveKind kind);

// A tensor whose bytes tell rank and position and are legal values of any dtype.
Tensor filled(int rank, const Extents& sizes, DType dtype);
// Returns a hash of the bytes of contiguous tensors.
uint64_t checksum(const std::vector<Tensor>& tensors);

}  // namespace tutti::comm
