// package(): puts a compiled function into a file that runs without the compiler.
//
//   package("mlp.tutti", [&](const Tensor& x) { return model(x); },
//           {.name = "mlp", .dynamic = {{.name = "batch", .dims = {{0, 0}}, .least = 1, .most = 64}}}, example);
//
// Every combination of the declared sizes is traced, run and compared, in the package as well, before package()
// returns: a package holds plans for sizes that were proved, not for sizes that were guessed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/graph/tree.h"
#include "tutti/tensor/handle_watch.h"

namespace tutti {

namespace deploy {
class RankGroup;
}

// A size of arguments that calls of the package may choose: least, least + step, ..., most.
struct PackagedSize {
  std::string name;
  struct Dim {
    int tensor;  // index among the tensors of the arguments, in the order they are passed
    int dim;     // negative: from the end
  };
  std::vector<Dim> dims;  // that have this size
  int64_t least = 1, most = 1, step = 1;
  // The name of a size before it in the list: this one is above its least only where that one is at its own, so that
  // the other combinations are neither proved nor taken. "": with all values of the others.
  std::string apart_from = {};
};

// A tensor that the function holds and does not write: a dense one.
struct PackagedConstant {
  std::string name;
  Tensor tensor;
};

// A tensor that the function holds and may change: a dense one of the program's memory. Each call of the package finds
// it as the call before has left it.
struct PackagedState {
  std::string name;
  Tensor tensor;
};

struct PackageOptions {
  std::string name = "function";           // in errors, traces and the manifest
  std::vector<PackagedSize> dynamic = {};  // all other sizes are those of the example
  // The processors that the package runs on; see TUTTI_CPU.
  std::vector<codegen::CpuTarget> levels = {codegen::CpuTarget::avx2, codegen::CpuTarget::avx512,
                                            codegen::CpuTarget::avx512vnni, codegen::CpuTarget::avx512bf16};
  int64_t most_combinations = 4096;  // of sizes
  // Those that programs may replace while they run the package (deploy::Package::set_constants).
  std::vector<PackagedConstant> constants = {};
  // What the function writes of the tensors that it holds, such as the parameters and moments of a training step, and
  // what the program that runs the package is to set between calls, such as a learning rate. The values at the time of
  // package() are those with which the package begins, and the tensors have them again when package() returns.
  std::vector<PackagedState> state = {};
  // The groups in which the function calls functional collectives (comm::rank_group). All of their ranks package it at
  // the same time, each into a file of its own; where these are equal, one of them serves all ranks.
  std::vector<std::shared_ptr<deploy::RankGroup>> groups = {};
  bool gradients = false;  // the function calls backward() or grad(); false: it runs without gradients
};

struct PackageReport {
  int64_t file_nbytes = 0;
  int64_t combinations = 0;                                           // of sizes, each of which ran in the package
  int64_t kernels = 0, code_nbytes = 0;                               // for all levels
  int64_t constant_nbytes_before = 0, constant_nbytes = 0;            // equal ones are kept once
  int64_t constant_words = 0, polynomial_words = 0, table_words = 0;  // of the plans, by how they depend on sizes
  double ms = 0;
};

namespace package_detail {

// With a trace running, `fn` records a call on stand-ins; without one it makes the call.
PackageReport make(const std::string& path, const graph::Leaves& arguments, graph::TraceFn fn,
                   const PackageOptions& options);

}  // namespace package_detail

// Writes the package of `fn`, a function or what compile() returned, for arguments like `args`. Nothing is left at
// `path` unless the package has been opened and has given the bits of calls of `fn` at every combination of sizes.
// UsageError when the function does what packages do not hold, naming the op, and CaptureError when it cannot be
// captured.
template <class Fn, class... Args>
PackageReport package(const std::string& path, Fn&& fn, const PackageOptions& options, const Args&... args) {
  graph::Leaves arguments;
  graph::Flattener flatten(arguments);
  (flatten(args), ...);
  const auto call = [&](const graph::StandIns& stand_ins, std::vector<Tensor>& results) -> std::shared_ptr<const void> {
    std::optional<HandleNotes::Pause> copying(std::in_place);  // the function does not hold its arguments
    std::tuple<std::decay_t<Args>...> given(args...);
    copying.reset();
    graph::Rebuilder rebuild(stand_ins);
    rebuild(given);
    const auto result = std::apply(fn, given);
    graph::Leaves leaves;
    graph::Flattener out(leaves);
    out(result);
    graph::refuse_returned_keys(leaves);
    results = std::move(leaves.tensors);
    return nullptr;
  };
  return package_detail::make(path, arguments, call, options);
}

}  // namespace tutti
