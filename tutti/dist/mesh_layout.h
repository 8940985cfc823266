// MeshLayout: which positions of a list of ranks belong to each dim of a mesh.
//
// A dim is a list of (size, stride) pairs, outermost first: coordinate c of a dim of the pairs (2, 4) (2, 1) stands at
// position (c / 2) * 4 + (c % 2) * 1. Slicing picks dims, flattening joins their pairs, unflattening divides one; no
// ranks are copied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::dist {

struct StridedPart {
  int64_t size = 1, stride = 1;
  friend bool operator==(const StridedPart&, const StridedPart&) = default;
};

struct MeshDim {
  std::vector<StridedPart> parts;
  int64_t size() const;
  // The position of a coordinate, relative to that of coordinate 0.
  int64_t offset(int64_t coordinate) const;
  friend bool operator==(const MeshDim&, const MeshDim&) = default;
};

struct MeshLayout {
  std::vector<MeshDim> dims;

  // The dims of a dense array of these sizes, row by row.
  static MeshLayout dense(const std::vector<int64_t>& sizes);

  int64_t size() const;
  std::vector<int64_t> sizes() const;
  // The positions of all coordinates, the last dim fastest, relative to that of the first.
  std::vector<int64_t> offsets() const;
  // The dims of `which`, in that order.
  MeshLayout pick(const std::vector<int>& which) const;
  // All dims as one.
  MeshDim flattened() const;
  // Whether two coordinates stand at one position.
  bool overlaps() const;
  // "(2,2:4,1)": sizes, then strides, of each dim.
  std::string to_string() const;
  friend bool operator==(const MeshLayout&, const MeshLayout&) = default;
};

// `dim` divided into dims of these sizes, whose product is its size. UsageError where a border between two of its pairs
// does not fall on a border between sizes.
std::vector<MeshDim> unflattened(const MeshDim& dim, const std::vector<int64_t>& sizes);

}  // namespace tutti::dist
