// Iteration spaces, and how operands move over them.
#pragma once

#include <optional>

#include "tutti/plan/graph.h"

namespace tutti::graph {

// The elements that a loop nest visits, in row-major order; `row` are the dims of a reduced row, in order.
struct Space {
  Extents sizes;
  Dims row;
};

// The element that an operand reads or writes at each point of a space. Equal accesses refer to the same element
// everywhere.
struct Access {
  int32_t buffer = -1;
  int32_t version = 0;
  DType dtype = DType::f32;
  int64_t offset = 0;
  Extents strides;  // one per dim of the space; 0 where it does not move or the dim has one element
  friend bool operator==(const Access&, const Access&) = default;
  // The same memory, whatever the version.
  bool same_place(const Access& o) const {
    return buffer == o.buffer && dtype == o.dtype && offset == o.offset && strides == o.strides;
  }
};

// `v` broadcast to the space.
Access access_of(const Value& v, const Space& space);
// An output with one element per row: dense over the kept dims.
Access per_row_access_of(const Value& v, const Space& space);

// The space in which both can be written, when there is one: each dim of either is a run of neighbouring dims of it.
// Nothing when the sizes do not factor so, there would be more than kMaxDims, or the rows differ.
std::optional<Space> common_space(const Space& a, const Space& b);
// The same access over `fine`, whose dims split those of `coarse`.
Access refined(const Access& a, const Space& coarse, const Space& fine);

}  // namespace tutti::graph
