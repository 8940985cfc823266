#include "tutti/parallel/gather_group.h"

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

struct GatherGroups {
  std::map<std::string, std::weak_ptr<comm::ProcessGroup>> of;  // by the key of the group of the same ranks
};

}  // namespace

std::shared_ptr<comm::ProcessGroup> gather_group(comm::ProcessGroup& group, int64_t count) {
  std::weak_ptr<comm::ProcessGroup>& known =
      RankContext::current().slot<GatherGroups>().of[fmt::format("{}/{}", group.key(), count)];
  if (auto living = known.lock()) return living;
  std::vector<int> ranks(static_cast<size_t>(count));
  const int first = group.rank() / static_cast<int>(count) * static_cast<int>(count);
  std::iota(ranks.begin(), ranks.end(), first);
  auto made = group.split(
      ranks, {.name = count == group.size() ? group.name() + "/gathers"
                                            : fmt::format("{}/gathers of {} from {}", group.name(), count, first)});
  known = made;
  return made;
}

}  // namespace tutti::parallel
