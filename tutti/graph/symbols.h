// Which sizes of a function's arguments are symbols.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/core/sym_graph.h"
#include "tutti/graph/guards.h"

namespace tutti {

// A size among the arguments that takes any size in [min, max] that is a multiple of `multiple_of`; other sizes are an error.
struct DynamicDim {
  int tensor;  // among the tensors of the arguments, in the order in which they are written; -1: an argument that is a SymInt
  int dim;     // of the tensor, may count from the end; among the SymInts
  int64_t min = 2;
  int64_t max = std::numeric_limits<int64_t>::max();
  int64_t multiple_of = 1;
};

// For CompileOptions::dynamic.
inline DynamicDim dynamic(int tensor, int dim, int64_t min = 2, int64_t max = std::numeric_limits<int64_t>::max(), int64_t multiple_of = 1) {
  return {tensor, dim, min, max, multiple_of};
}

namespace graph {

std::string describe(const DynamicDim& dim);  // "dim 0 of tensor 1"

class Symbols {
 public:
  // Those that the user declared, but for sizes 0 and 1, which stay integers. UsageError: no such tensor or dim, an empty range, or a size of `arguments` outside of it.
  static Symbols declared(std::span<const DynamicDim> dims, const std::string& function, const Leaves& arguments);
  // Adds the dims in which `arguments` differ from what `before` was made for; sizes 0 and 1 stay integers, because they
  // mean something to most ops, and so do the (tensor, dim) of `except`. Everything but sizes is equal.
  void add_varying(const Guards& before, const Leaves& arguments, std::span<const std::pair<int, int>> except);

  bool empty() const { return dims_.empty(); }
  const std::vector<DynamicDim>& dims() const { return dims_; }
  size_t num_declared() const { return num_declared_; }  // those come first
  int index_of(int tensor, int dim) const;  // -1: the size is an integer
  bool in_range(const Leaves& arguments) const;
  std::vector<int64_t> values_in(const Leaves& arguments) const;
  // The sizes of the arguments, with a symbol of `graph` for each of the dims.
  struct Sizes {
    std::vector<Shape> of_tensors;
    std::vector<SymInt> alone;
  };
  Sizes sizes_of(const Leaves& arguments, SymGraph& graph) const;
  // One line per symbol.
  std::string to_string() const;

 private:
  std::vector<DynamicDim> dims_;
  size_t num_declared_ = 0;
};

}  // namespace graph
}  // namespace tutti
