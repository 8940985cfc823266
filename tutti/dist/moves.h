// The blocks that ranks send each other so that a tensor in one layout comes into another, as dense blocks. Neither
// layout is looked at for Partial placements: terms of a value move as values do.
#pragma once

#include <vector>

#include <functional>

#include "tutti/comm/process_group.h"
#include "tutti/dist/spec.h"

namespace tutti::dist {

// All coordinates of a mesh, the last dim fastest.
std::vector<std::vector<int64_t>> coordinates_of(const std::vector<int64_t>& mesh_shape);

// The mesh dims along which elements travel.
std::vector<int> moved_axes(const DTensorSpec& from, const DTensorSpec& to);
// The elements that a rank lacks, on average over the mesh.
double lacking_elements(const DTensorSpec& from, const DTensorSpec& to);
// Whether a rank holds all it needs, on every rank.
bool is_cut(const DTensorSpec& from, const DTensorSpec& to);

// A dense block of the part `from` of one rank that stands in the part `to` of another.
struct Block {
  Extents from, to, sizes;
};
std::vector<Block> blocks_between(const DTensorSpec& from, std::span<const int64_t> source, const DTensorSpec& to,
                                  std::span<const int64_t> destination);

// The work that is left of a step whose collective may still be under way.
struct Arriving {
  Tensor arrived;                                        // the result of the collective; undefined: nothing travels
  std::function<Tensor()> value = {};                    // the part; empty: `arrived` itself
  std::function<void(const Tensor& target)> write = {};  // the same into dense memory; empty: a copy of the value does
};

// Moves parts of this rank from one layout to another; made once and used for any tensor of these layouts.
class Mover {
 public:
  Mover(const DTensorSpec& from, const DTensorSpec& to, const DeviceMesh& mesh);
  // For a tensor whose ranks along `axis` hold terms of a value: each gets the terms of its share from all of them.
  Mover(const DTensorSpec& from, const DTensorSpec& to, const DeviceMesh& mesh, int axis);
  // Only the rank `source` of the mesh has the elements; `from` is replicated.
  static Mover scatter(const DTensorSpec& from, const DTensorSpec& to, const DeviceMesh& mesh, int source);
  // Between layouts on different meshes, over the ranks of both. Either may be that of a mesh without this rank.
  static Mover across(const DTensorSpec& from, const DeviceMesh& source, const DTensorSpec& to,
                      const DeviceMesh& target);
  // Whether tensors of other sizes in dims that neither layout cuts cannot be moved by this: what travels is counted in
  // elements.
  bool is_for_one_size() const { return group_ != nullptr || numel_of(sizes_) == 0; }
  // The part in the layout `to`; may be a view of `local`.
  Tensor run(const Tensor& local) const;
  // The same without waiting for what the ranks exchange. `local` may be changed as soon as it returns.
  Arriving start(const Tensor& local) const;
  // The contribution of each rank of the group, in rank order.
  std::vector<Tensor> run_by_rank(const Tensor& local) const;
  // The same without waiting; the value is that of `combine` on them.
  Arriving start_by_rank(const Tensor& local, std::function<Tensor(std::span<const Tensor>)> combine) const;

 private:
  struct Piece {
    Tensor value;
    Extents at;
  };
  Mover() = default;
  void plan(const DTensorSpec& from, const DTensorSpec& to, const DeviceMesh& mesh, const std::vector<int>& axes,
            bool are_terms);
  struct Received {
    std::vector<std::vector<Piece>> by_rank;
    Tensor arrived;  // the memory of what other ranks sent; undefined: nothing travels
  };
  Received receive(const Tensor& local) const;
  // The same, with pieces of this rank that do not change with `local`.
  Received receive_later(const Tensor& local) const;
  static std::vector<Tensor> assemble_each(std::vector<std::vector<Piece>> by_rank, const Extents& sizes, DType dtype);
  static Tensor assemble(std::vector<Piece> pieces, size_t dim);

  std::shared_ptr<comm::ProcessGroup> group_;  // null: nothing travels
  int me_ = 0;
  std::vector<std::vector<Block>> outgoing_, incoming_;  // by rank of the group
  Extents before_, sizes_;                               // of the part, in both layouts
};

}  // namespace tutti::dist
