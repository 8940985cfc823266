#include "tutti/parallel/storage_placement.h"

#include <fmt/ranges.h>

#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"
#include "tutti/dist/device_mesh.h"

namespace tutti::parallel {
namespace {

const ExtensionKind kStoragePlacement{"storage placement"}, kReplacedLeaf{"replaced leaf"};

// Attached to a leaf that is no longer its parameter's.
struct ReplacedLeaf final : TensorExtension {
  explicit ReplacedLeaf(std::string parameter) : parameter(std::move(parameter)) {}
  const std::string parameter;
};

// Whether the replicas divide a parameter, too.
bool cuts_replicas(const StoragePlacement& placement) {
  const dist::Placements& placements = placement.spec->placements();
  return placements.size() == 2 && placements[0] == placements[1];
}

// The dim that a placement cuts over the last dim of its mesh.
int cut_dim(const StoragePlacement& placement, size_t parameter) {
  const dist::Placements& placements = placement.spec->placements();
  const bool is_known = (placements.size() == 1 ||
                         (placements.size() == 2 && (placements[0].is_replicate() || cuts_replicas(placement)))) &&
                        placements.back().is_shard() && placements.back().pieces() == 1;
  TUTTI_CHECK(is_known, "Shards: parameter {} is stored as {}; expected [S(d)], [R, S(d)] or [S(d), S(d)]", parameter,
              placement.spec->to_string());
  return placements.back().dim();
}

}  // namespace

const StoragePlacement* storage_placement_of(const Tensor& leaf) {
  return leaf.extensions().find<StoragePlacement>(kStoragePlacement);
}

void set_storage_placement(const Tensor& leaf, std::unique_ptr<StoragePlacement> placement) {
  leaf.extensions().put(kStoragePlacement, std::move(placement));
}

void mark_replaced(const Tensor& leaf, std::string parameter) {
  leaf.extensions().put(kReplacedLeaf, std::make_unique<ReplacedLeaf>(std::move(parameter)));
}

void check_is_current(const Tensor& leaf, std::string_view what) {
  const auto* replaced = leaf.extensions().find<ReplacedLeaf>(kReplacedLeaf);
  TUTTI_CHECK(replaced == nullptr,
              "{}: fully_shard() has sharded parameter '{}' since its leaf was taken, and forward reads another leaf "
              "now; make {} after fully_shard()",
              what, replaced->parameter, what);
}

GradientPlacements::GradientPlacements(const std::vector<Tensor>& leaves, const comm::ProcessGroup* group)
    : GradientPlacements(leaves.size(), group == nullptr ? 0 : group->rank(), group == nullptr ? 1 : group->size()) {
  const dist::DeviceMesh* first = nullptr;
  for (size_t p = 0; p < leaves.size(); ++p) {
    const StoragePlacement* placement = storage_placement_of(leaves[p]);
    if (placement == nullptr) continue;
    const dist::DeviceMesh& mesh = *placement->mesh;
    const int dim = cut_dim(*placement, p);
    TUTTI_CHECK(group != nullptr ? mesh.ranks() == group->world_ranks() : mesh.size() == 1,
                "Shards: parameter {} is stored on the ranks {} of {}, and gradients are added over {}; give both the "
                "same ranks in the same order",
                p, fmt::join(mesh.ranks(), " "), mesh.to_string(),
                group == nullptr
                    ? "one rank"
                    : fmt::format("the ranks {} of group '{}'", fmt::join(group->world_ranks(), " "), group->name()));
    TUTTI_CHECK(first == nullptr || first->shape() == mesh.shape(),
                "Shards: parameter {} is stored on {}, an earlier one on {}; expected one mesh", p, mesh.to_string(),
                first == nullptr ? "" : first->to_string());
    const bool all_divide = cuts_replicas(*placement);
    const auto inner = mesh.size(mesh.ndim() - 1), shards = all_divide ? mesh.size() : inner;
    if (first == nullptr) {
      first = &mesh;
      shards_ = static_cast<int>(shards);
      if (replicas() > 1) replica_group_ = mesh.group(0).get();
    }
    TUTTI_CHECK(shards_ == shards,
                "Shards: parameter {} is stored as {} on {}, an earlier one in {} parts; give all the same "
                "outer_dp_sharding_strategy",
                p, placement->spec->to_string(), mesh.to_string(), shards_);
    cuts_[p].dim = dim;
    for (int64_t j = 0; j < shards_; ++j) {
      const int64_t coordinate[] = {all_divide ? j / inner : 0, all_divide ? j % inner : j};
      const dist::IndexSet held =
          placement->spec->indices(dim, std::span(coordinate).last(static_cast<size_t>(mesh.ndim())));
      cuts_[p].ranges.push_back(held.ranges().empty() ? dist::Range{0, 0} : held.ranges()[0]);
    }
  }
}

Extents GradientPlacements::part_sizes(size_t parameter, Extents sizes) const {
  const Cut& cut = cuts_[parameter];
  if (cut.is_cut()) sizes[static_cast<size_t>(cut.dim)] = cut.ranges[static_cast<size_t>(shard())].size();
  return sizes;
}

}  // namespace tutti::parallel
