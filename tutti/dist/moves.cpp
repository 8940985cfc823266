#include "tutti/dist/moves.h"

#include <algorithm>
#include <set>

#include "tutti/comm/functional/async_result.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"

namespace tutti::dist {
namespace {

using Coordinate = std::vector<int64_t>;

// Calls visit for each choice of coordinates along `axes`; the others are 0.
template <class Visit>
void for_each_along(const std::vector<int>& axes, const std::vector<int64_t>& mesh_shape, const Visit& visit) {
  Coordinate at(mesh_shape.size(), 0);
  while (true) {
    visit(at);
    size_t k = axes.size();
    while (k > 0) {
      int64_t& c = at[static_cast<size_t>(axes[k - 1])];
      if (++c < mesh_shape[static_cast<size_t>(axes[k - 1])]) break;
      c = 0;
      --k;
    }
    if (k == 0) return;
  }
}

// The rank that serves `destination` with what it holds at `offsets` along the axes that shard: where it is a copy, the
// one that stands at the same coordinate.
Coordinate source_for(const DTensorSpec& from, const Coordinate& destination, const Coordinate& along,
                      const std::vector<int>& axes) {
  Coordinate source = destination;
  for (const int axis : axes) {
    if (from.placements()[static_cast<size_t>(axis)].is_shard())
      source[static_cast<size_t>(axis)] = along[static_cast<size_t>(axis)];
  }
  return source;
}

}  // namespace

std::vector<Coordinate> coordinates_of(const std::vector<int64_t>& mesh_shape) {
  std::vector<int> axes;
  for (size_t a = 0; a < mesh_shape.size(); ++a) axes.push_back(static_cast<int>(a));
  std::vector<Coordinate> all;
  for_each_along(axes, mesh_shape, [&](const Coordinate& at) { all.push_back(at); });
  return all;
}

std::vector<int> moved_axes(const DTensorSpec& from, const DTensorSpec& to) {
  std::set<int> moved;
  for (int d = 0; d < from.sizes().ndim(); ++d) {
    const std::vector<int> holders = from.axes_of(d), takers = to.axes_of(d);
    for_each_along(holders, from.mesh_shape(), [&](const Coordinate& source) {
      const IndexSet held = from.indices(d, source);
      if (held.size() == 0) return;
      for_each_along(takers, to.mesh_shape(), [&](const Coordinate& taker) {
        if (shared_runs(held, to.indices(d, taker)).empty()) return;
        for (const int axis : holders) {
          const auto at = static_cast<size_t>(axis);
          const bool may_differ =
              std::find(takers.begin(), takers.end(), axis) == takers.end() || source[at] != taker[at];
          if (may_differ && from.mesh_shape()[at] > 1) moved.insert(axis);
        }
      });
    });
  }
  return {moved.begin(), moved.end()};
}

double lacking_elements(const DTensorSpec& from, const DTensorSpec& to) {
  double lacking = 0;
  const std::vector<Coordinate> all = coordinates_of(from.mesh_shape());
  for (const Coordinate& at : all) {
    double wanted = 1, own = 1;
    for (int d = 0; d < from.sizes().ndim(); ++d) {
      const IndexSet target = to.indices(d, at);
      double shared = 0;
      for (const SharedRun& run : shared_runs(from.indices(d, at), target)) shared += static_cast<double>(run.length);
      wanted *= static_cast<double>(target.size());
      own *= shared;
    }
    lacking += wanted - own;
  }
  return lacking / static_cast<double>(all.size());
}

bool is_cut(const DTensorSpec& from, const DTensorSpec& to) { return lacking_elements(from, to) == 0; }

std::vector<Block> blocks_between(const DTensorSpec& from, std::span<const int64_t> source, const DTensorSpec& to,
                                  std::span<const int64_t> destination) {
  std::vector<Block> blocks{{}};
  for (int d = 0; d < from.sizes().ndim(); ++d) {
    const std::vector<SharedRun> runs = shared_runs(from.indices(d, source), to.indices(d, destination));
    std::vector<Block> next;
    for (const Block& block : blocks) {
      for (const SharedRun& run : runs) {
        Block longer = block;
        longer.from.push_back(run.in_first);
        longer.to.push_back(run.in_second);
        longer.sizes.push_back(run.length);
        next.push_back(longer);
      }
    }
    blocks = std::move(next);
  }
  return blocks;
}

Mover::Mover(const DTensorSpec& from, const DTensorSpec& to, const DeviceMesh& mesh) {
  plan(from, to, mesh, moved_axes(from, to), false);
}
Mover::Mover(const DTensorSpec& from, const DTensorSpec& to, const DeviceMesh& mesh, int axis) {
  plan(from, to, mesh, {axis}, true);
}

Mover Mover::across(const DTensorSpec& from, const DeviceMesh& source, const DTensorSpec& to,
                    const DeviceMesh& target) {
  const std::vector<Coordinate> sources = coordinates_of(source.shape()), targets = coordinates_of(target.shape());
  Mover mover;
  mover.before_ = source.has_coordinate() ? from.local_sizes(source.coordinate()) : Extents{0};
  mover.sizes_ = target.has_coordinate() ? to.local_sizes(target.coordinate()) : Extents{0};
  mover.group_ = source.group_with(target);
  mover.incoming_.resize(1);
  if (!mover.group_) return mover;
  mover.me_ = mover.group_->rank();
  const std::vector<int> members = mover.group_->world_ranks();
  const auto place = [&](int rank) {
    return static_cast<int>(std::lower_bound(members.begin(), members.end(), rank) - members.begin());
  };
  mover.outgoing_.resize(members.size());
  mover.incoming_.resize(members.size());
  std::vector<int> axes;
  for (int axis = 0; axis < source.ndim(); ++axis) axes.push_back(axis);
  for (size_t q = 0; q < targets.size(); ++q) {
    const int taker = place(target.ranks()[q]);
    for (size_t p = 0; p < sources.size(); ++p) {
      const int giver = place(source.ranks()[p]);
      if (giver != mover.me_ && taker != mover.me_) continue;
      // One of several copies serves: the taker serves itself, else they take turns.
      const auto own = std::find(source.ranks().begin(), source.ranks().end(), target.ranks()[q]);
      const Coordinate& anchor = own == source.ranks().end()
                                     ? sources[q % sources.size()]
                                     : sources[static_cast<size_t>(own - source.ranks().begin())];
      if (source_for(from, anchor, sources[p], axes) != sources[p]) continue;
      const std::vector<Block> blocks = blocks_between(from, sources[p], to, targets[q]);
      if (giver == mover.me_) mover.outgoing_[static_cast<size_t>(taker)] = blocks;
      if (taker == mover.me_) mover.incoming_[static_cast<size_t>(giver)] = blocks;
    }
  }
  return mover;
}

Mover Mover::scatter(const DTensorSpec& from, const DTensorSpec& to, const DeviceMesh& mesh, int source) {
  std::vector<int> axes;
  for (int axis = 0; axis < mesh.ndim(); ++axis) axes.push_back(axis);
  Mover mover;
  mover.before_ = from.local_sizes(mesh.coordinate());
  mover.sizes_ = to.local_sizes(mesh.coordinate());
  mover.group_ = mesh.group_over(axes);
  mover.me_ = mover.group_->rank();
  const std::vector<Coordinate> all = coordinates_of(mesh.shape());
  for (size_t p = 0; p < all.size(); ++p) {
    mover.outgoing_.push_back(mover.me_ == source ? blocks_between(from, mesh.coordinate(), to, all[p])
                                                  : std::vector<Block>());
    mover.incoming_.push_back(static_cast<int>(p) == source ? blocks_between(from, all[p], to, mesh.coordinate())
                                                            : std::vector<Block>());
  }
  return mover;
}

void Mover::plan(const DTensorSpec& from, const DTensorSpec& to, const DeviceMesh& mesh, const std::vector<int>& axes,
                 bool are_terms) {
  before_ = from.local_sizes(mesh.coordinate());
  sizes_ = to.local_sizes(mesh.coordinate());
  const Coordinate& here = mesh.coordinate();
  if (!axes.empty()) group_ = mesh.group_over(axes);
  if (group_) me_ = group_->rank();
  for_each_along(axes, mesh.shape(), [&](const Coordinate& along) {
    Coordinate peer = here;
    for (const int axis : axes) peer[static_cast<size_t>(axis)] = along[static_cast<size_t>(axis)];
    // The peer is served by this rank if this is the copy that stands where the peer looks.
    const bool serves = are_terms || source_for(from, peer, here, axes) == here,
               is_served = are_terms || source_for(from, here, peer, axes) == peer;
    outgoing_.push_back(serves ? blocks_between(from, here, to, peer) : std::vector<Block>());
    incoming_.push_back(is_served ? blocks_between(from, peer, to, here) : std::vector<Block>());
  });
}

// The block of `t`, which has the sizes `whole`, or other ones in dims that the block has whole.
static Tensor part_at(const Tensor& t, const Extents& whole, const Extents& at, const Extents& sizes) {
  Tensor part = t;
  for (int d = 0; d < t.ndim(); ++d) {
    const auto k = static_cast<size_t>(d);
    if (at[k] != 0 || sizes[k] != whole[k]) part = narrow(part, d, at[k], sizes[k]);
  }
  return part;
}

Mover::Received Mover::receive(const Tensor& local) const {
  Received result{.by_rank = std::vector<std::vector<Piece>>(incoming_.size()), .arrived = {}};
  std::vector<std::vector<Piece>>& received = result.by_rank;
  const auto me = static_cast<size_t>(me_);
  for (const Block& block : incoming_[me])
    received[me].push_back({part_at(local, before_, block.from, block.sizes), block.to});
  if (!group_) return result;
  std::vector<Tensor> sent;
  std::vector<int64_t> in_splits, out_splits;
  for (size_t p = 0; p < outgoing_.size(); ++p) {
    int64_t count = 0;
    for (const Block& block : outgoing_[p]) {
      if (p == me) continue;
      sent.push_back(reshape(part_at(local, before_, block.from, block.sizes), {-1}));
      count += numel_of(block.sizes);
    }
    in_splits.push_back(count);
    count = 0;
    for (const Block& block : incoming_[p]) count += p == me ? 0 : numel_of(block.sizes);
    out_splits.push_back(count);
  }
  const Tensor packed = sent.empty() ? zeros({0}, local.dtype()) : sent.size() == 1 ? sent[0] : cat(sent);
  const Tensor arrived = result.arrived = comm::functional::all_to_all_single(packed, out_splits, in_splits, group_);
  int64_t offset = 0;
  for (size_t p = 0; p < incoming_.size(); ++p) {
    for (const Block& block : incoming_[p]) {
      if (p == me) continue;
      const int64_t count = numel_of(block.sizes);
      received[p].push_back({reshape(narrow(arrived, 0, offset, count), to_shape(block.sizes)), block.to});
      offset += count;
    }
  }
  return result;
}

Mover::Received Mover::receive_later(const Tensor& local) const {
  Received received = receive(local);
  if (!received.arrived.defined() || !comm::functional::is_pending(received.arrived)) return received;
  for (Piece& own : received.by_rank[static_cast<size_t>(me_)]) own.value = clone(own.value);
  return received;
}

// Blocks stand as a grid: those with one range in `dim` are put together along the later dims first.
Tensor Mover::assemble(std::vector<Piece> pieces, size_t dim) {
  if (pieces.size() == 1) return pieces[0].value;
  std::stable_sort(pieces.begin(), pieces.end(),
                   [dim](const Piece& a, const Piece& b) { return a.at[dim] < b.at[dim]; });
  std::vector<Tensor> parts;
  for (size_t begin = 0; begin < pieces.size();) {
    size_t end = begin;
    while (end < pieces.size() && pieces[end].at[dim] == pieces[begin].at[dim]) ++end;
    parts.push_back(assemble(
        {pieces.begin() + static_cast<std::ptrdiff_t>(begin), pieces.begin() + static_cast<std::ptrdiff_t>(end)},
        dim + 1));
    begin = end;
  }
  return parts.size() == 1 ? parts[0] : cat(parts, static_cast<int64_t>(dim));
}

namespace {

template <class Piece>
std::vector<Piece> joined(const std::vector<std::vector<Piece>>& by_rank) {
  std::vector<Piece> pieces;
  for (const std::vector<Piece>& of_rank : by_rank) pieces.insert(pieces.end(), of_rank.begin(), of_rank.end());
  return pieces;
}

// Nobody reads what arrives where nothing does.
void wait_if_empty(const Tensor& arrived) {
  if (arrived.defined() && arrived.numel() == 0) comm::functional::wait_tensor(arrived);
}

}  // namespace

Tensor Mover::run(const Tensor& local) const {
  const Received received = receive(local);
  wait_if_empty(received.arrived);
  return numel_of(sizes_) == 0 ? zeros(to_shape(sizes_), local.dtype()) : assemble(joined(received.by_rank), 0);
}

std::vector<Tensor> Mover::assemble_each(std::vector<std::vector<Piece>> by_rank, const Extents& sizes, DType dtype) {
  std::vector<Tensor> parts;
  for (std::vector<Piece>& of_rank : by_rank)
    parts.push_back(numel_of(sizes) == 0 ? zeros(to_shape(sizes), dtype) : assemble(std::move(of_rank), 0));
  return parts;
}

std::vector<Tensor> Mover::run_by_rank(const Tensor& local) const {
  Received received = receive(local);
  wait_if_empty(received.arrived);
  return assemble_each(std::move(received.by_rank), sizes_, local.dtype());
}

Arriving Mover::start(const Tensor& local) const {
  const Received received = receive_later(local);
  Arriving arriving{.arrived = received.arrived};
  const std::vector<Piece> pieces = joined(received.by_rank);
  arriving.value = [pieces, sizes = sizes_, dtype = local.dtype()] {
    return numel_of(sizes) == 0 ? zeros(to_shape(sizes), dtype) : assemble(pieces, 0);
  };
  arriving.write = [pieces](const Tensor& target) {
    for (const Piece& piece : pieces)
      facets::raw_copy(part_at(target, target.extents(), piece.at, piece.value.extents()), piece.value);
  };
  return arriving;
}

Arriving Mover::start_by_rank(const Tensor& local, std::function<Tensor(std::span<const Tensor>)> combine) const {
  const Received received = receive_later(local);
  return {.arrived = received.arrived,
          .value = [by_rank = received.by_rank, sizes = sizes_, dtype = local.dtype(), combine = std::move(combine)] {
            return combine(assemble_each(by_rank, sizes, dtype));
          }};
}

}  // namespace tutti::dist
