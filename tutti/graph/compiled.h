// The options and statistics of compile().
#pragma once

#include <string>
#include <vector>

#include "tutti/graph/symbols.h"
#include "tutti/plan/capture_error.h"
#include "tutti/plan/executable.h"

namespace tutti {

struct CompileOptions {
  std::string name = "function";  // used in errors and traces
  // 0: recompute as much as possible in the backward; 1: recompute only what is nearly free; values between trade
  // memory for time, see passes/partition.h. The bits are the same at every budget.
  double activation_memory_budget = 1.0;
  // under_way_bytes: collectives start as soon as their inputs are available, as long as results that have not been
  // read yet take at most this many bytes; 0: they start where the program calls them. bucket_bytes: small adjacent
  // collectives of one kind are merged into one call, whose results take at most this many bytes; 0 (the default): off.
  // All ranks must form the same buckets, so all of them need the same option and the same dependencies between
  // collectives. join_products: a collective and the matrix products of its result, or the one that it sums, are one
  // call that works on the parts of ranks as they come (asynchronous tensor parallelism).
  graph::CollectiveOptions collectives = {};
  bool fuse = true;  // false: one kernel per op, to examine the effect of fusion
  graph::Epilogues epilogues =
      graph::Epilogues::saving;  // which kernels run on the blocks of a matrix product's output
  bool prologues = true;         // a kernel whose result only a matrix product reads runs inside that product
  bool check_epilogues =
      false;             // compare both with separate runs; InternalError if a bit differs. As TUTTI_CHECK_EPILOGUES=1
  bool siblings = true;  // calls that share inputs become one where there is an op for it (SiblingOps)
  bool batch = true;     // false: one launch per kernel, to examine the effect of shared launches
  int recompile_limit = 16;  // the maximum number of specializations of one function
  // The action when the limit is reached.
  enum class OnLimit : uint8_t {
    error,       // throw RecompileLimit, which lists what differed
    eager,       // further kinds of arguments run eagerly
    forget,      // drop the oldest specialization: for sizes that keep changing and seldom repeat
    generalize,  // make varying sizes symbolic, even with Sizes::fixed; if that does not suffice, throw RecompileLimit
  };
  OnLimit on_limit = OnLimit::error;
  // How sizes of arguments are treated.
  enum class Sizes : uint8_t {
    automatic,  // a size becomes symbolic once a second value is seen
    fixed,      // each combination of sizes is compiled separately
  };
  Sizes sizes = Sizes::automatic;
  std::vector<DynamicDim> dynamic =
      {};  // symbolic from the first call on; CaptureError when the function needs a fixed value
  // The action at the first call of a new kind.
  enum class FirstCall : uint8_t {
    waits,       // it waits until its kernels are compiled
    runs_eager,  // it is traced and runs eagerly, as later calls do until a background thread has compiled the kernels
  };
  FirstCall first_call = FirstCall::waits;
  // The action when the function reads elements of a tensor (item(), to_contiguous(), to_string()).
  enum class OnBreak : uint8_t {
    error,    // throw CaptureError
    segment,  // split the function at the read and compile the rest for the value that was read, see docs/compiler.md
  };
  OnBreak on_break = OnBreak::error;
  // When the function is traced again to check that it still reads the same captured tensors.
  enum class Look : uint8_t {
    seldom,      // at the 2nd, 4th, 8th, 16th, ... use of a trace, and whenever a Tensor object that it reads is lost
    every_call,  // at every call: detects every change, at the cost of a trace
  };
  Look look = Look::seldom;
  int verify = 0;  // n > 0: the first and every n-th call are compared with an eager run, see verify.h
  int jobs = 0;    // how many kernels are compiled in parallel; 0: the number of cores this process may use
};

// The function was called with more kinds of arguments than CompileOptions::recompile_limit.
class RecompileLimit : public UsageError {
 public:
  using UsageError::UsageError;
};

struct CompileStatistics {
  int64_t compiles = 0;     // how often the function was traced
  int64_t members = 0;      // specializations made from an existing symbolic trace for further sizes
  int64_t eager_calls = 0;  // calls that ran eagerly, past the limit or while kernels were being compiled
  int64_t verified_calls = 0;
  int64_t looks = 0;          // how often the function was traced again for CompileOptions::look
  int64_t continuations = 0;  // segments compiled for a value that the function read
  double trace_ms = 0, compile_ms = 0;
  graph::PartitionStatistics partition;       // of the newest specialization
  graph::ExecutableStatistics last;           // of the newest specialization's forward
  graph::ExecutableStatistics last_backward;  // and backward, if it has one
};

}  // namespace tutti
