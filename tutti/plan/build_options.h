// The options with which an executable is built, and the report of building it.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/passes/epilogue.h"
#include "tutti/plan/passes/fuse.h"
#include "tutti/plan/passes/partition.h"

namespace tutti::graph {

struct CollectiveOptions {
  int64_t under_way_bytes = int64_t{32} << 20;  // see passes/schedule_collectives.h
  int64_t bucket_bytes = 0;                     // see passes/bucket_collectives.h
  bool join_products = false;                   // see passes/join_products.h
};

struct BuildOptions {
  std::string name;  // the name of the function in errors, dumps and traces
  PartitionOptions partition = {};
  CollectiveOptions collectives = {};
  FuseOptions fuse = {};
  Epilogues epilogues = Epilogues::saving;  // which kernels run on blocks of the output of a preceding matrix product
  bool prologues = true;         // kernels that compute an operand run inside the matrix product that reads it
  bool check_epilogues = false;  // also run prologues and epilogues separately and compare bits
  bool siblings = true;          // calls that share inputs become one, see passes/merge_siblings.h
  bool batch = true;             // false: one launch per kernel
  int jobs = 1;                  // how many kernels are compiled in parallel
};

struct ExecutableStatistics {
  int64_t nodes = 0;          // nodes of the captured graph
  int64_t merged = 0;         // nodes removed because another node computes the same
  int64_t unused = 0;         // nodes removed because their outputs are not read
  int64_t kernels = 0;        // kernels run by one call
  int64_t launches = 0;       // launches they take: several small kernels can share one
  int64_t fused_nodes = 0;    // nodes inside kernels, prologues and epilogues
  int64_t calls = 0;          // ops that are called individually
  int64_t bucketed = 0;       // collectives merged into the call of another one
  int64_t joined = 0;         // matrix products that became part of the collective next to them
  int64_t siblings = 0;       // calls that became part of another one with the same inputs
  int64_t started_early = 0;  // collectives that start earlier than in the program
  int64_t prologues = 0,
          epilogues = 0;  // calls with a kernel attached that computes operand 0, or runs on blocks of the output
  double prologue_saved_bytes = 0, epilogue_saved_bytes = 0;  // memory traffic avoided by them
  // Kernels next to such a call that were not attached, and siblings that were not merged, with the reason.
  std::vector<std::string> apart = {};
  int64_t arena_bytes = 0, unplanned_bytes = 0;  // memory for temporaries, and what they would take without sharing it
  double kernel_bytes = 0;                       // memory traffic of the kernels of one call
  PartitionStatistics partition;                 // of a backward inside the graph
  double compile_ms = 0;
};

}  // namespace tutti::graph
