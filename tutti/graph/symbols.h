// Symbolic sizes of a compiled function's arguments.
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

// A size that may take any value in [min, max] that is a multiple of `multiple_of`; other values are an error.
struct DynamicDim {
  int tensor;  // index among the tensors of the arguments, in the order they are passed; -1: an argument that is a
               // SymInt
  int dim;     // dim of that tensor, negative from the end; or the index among the SymInts
  int64_t min = 2;
  int64_t max = std::numeric_limits<int64_t>::max();
  int64_t multiple_of = 1;
};

// An entry of CompileOptions::dynamic.
inline DynamicDim dynamic(int tensor, int dim, int64_t min = 2, int64_t max = std::numeric_limits<int64_t>::max(),
                          int64_t multiple_of = 1) {
  return {tensor, dim, min, max, multiple_of};
}

namespace graph {

std::string describe(const DynamicDim& dim);  // "dim 0 of tensor 1"

class Symbols {
 public:
  // The dims that the user declared, except sizes 0 and 1, which stay integers. UsageError for a tensor or dim that
  // does not exist, an empty range, or a size of `arguments` outside its range.
  static Symbols declared(std::span<const DynamicDim> dims, const std::string& function, const Leaves& arguments);
  // Adds the dims in which `arguments` differ from those that `before` was made for, where all but sizes must be equal.
  // Sizes 0 and 1 stay integers, because most ops treat them specially, and so do the (tensor, dim) pairs of `except`.
  void add_varying(const Guards& before, const Leaves& arguments, std::span<const std::pair<int, int>> except);

  bool empty() const { return dims_.empty(); }
  const std::vector<DynamicDim>& dims() const { return dims_; }
  size_t num_declared() const { return num_declared_; }  // the declared ones come first
  int index_of(int tensor, int dim) const;               // -1: the size is an integer
  bool in_range(const Leaves& arguments) const;
  std::vector<int64_t> values_in(const Leaves& arguments) const;
  // The sizes of the arguments, with a symbol of `graph` in place of each of the dims.
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
