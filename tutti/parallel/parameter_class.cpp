#include "tutti/parallel/parameter_class.h"

#include "tutti/core/error.h"
#include "tutti/dist/wrapper.h"

namespace tutti::parallel {

std::vector<ParameterClass> expert_classes(const std::vector<Tensor>& parameters, int64_t shards,
                                           const ExpertRanks& ranks) {
  if (ranks.experts == nullptr) return {};
  const int64_t together = ranks.experts->size(), all = (ranks.all == nullptr ? 1 : ranks.all->size()) * ranks.tensor,
                parts = shards * ranks.tensor;
  TUTTI_CHECK(parts % together == 0 && all % together == 0,
              "expert_classes: {} ranks divide the experts; expected a divisor of the {} parts of virtual shards and "
              "of the {} ranks",
              together, parts, all);
  ParameterClass experts{.name = "experts", .holders = ranks.replicas, .nodes = parts / together};
  for (const Tensor& p : parameters) {
    if (dist::is_dtensor(p) && dist::part_of(p, "expert_classes").mesh->id() == ranks.experts->id())
      experts.parameters.push_back(p);
  }
  return {experts};
}

}  // namespace tutti::parallel
