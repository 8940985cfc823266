#include "tests/comm/support/group_disagreements.h"

#include <chrono>
#include <ostream>

#include "tutti/comm/groups.h"
#include "tutti/core/error.h"
#include "tutti/job/errors.h"

namespace tutti::comm {
namespace {

using Ranks = std::vector<int>;
using Group = std::shared_ptr<ProcessGroup>;

constexpr std::chrono::seconds kSoon{5};

Group split(ProcessGroup& world, const std::vector<Ranks>& lists) {
  return world.split(lists[static_cast<size_t>(world.rank())]);
}
Group make_new(ProcessGroup& world, const std::vector<Ranks>& lists) {
  return new_group(lists[static_cast<size_t>(world.rank())]);
}

}  // namespace

void PrintTo(const Disagreement& d, std::ostream* out) { *out << d.name; }

const std::vector<Disagreement>& disagreements() {
  static const std::vector<Disagreement> list = {
      {"SplitOverlaps",
       [](ProcessGroup& w) { return split(w, {{0, 1}, {1, 2}, {1, 2}}); },
       {"split of group '0': the lists differ", "rank 0 gives [0, 1]", "rank 1, which is in it, gives [1, 2]"}},
      {"SplitOrders",
       [](ProcessGroup& w) { return split(w, {{0, 1, 2}, {0, 1, 2}, {0, 2, 1}}); },
       {"rank 0 gives [0, 1, 2]", "rank 2, which is in it, gives [0, 2, 1]"}},
      {"SplitOnlyOneLeavesOut",
       [](ProcessGroup& w) { return split(w, {{0, 2}, {}, {0, 1, 2}}); },
       {"rank 0 gives [0, 2]", "rank 2, which is in it, gives [0, 1, 2]"}},
      {"SplitNobody",
       [](ProcessGroup& w) { return split(w, {{0, 1}, {}, {}}); },
       {"rank 0 gives [0, 1]", "rank 1, which is in it, gives []"}},
      {"SplitOutOfRange",
       [](ProcessGroup& w) { return split(w, {{0}, {1, 3}, {2}}); },
       {"rank 1 gives [1, 3]: rank 3 is out of range; legal: 0 to 2"}},
      {"SplitTwice",
       [](ProcessGroup& w) { return split(w, {{0}, {1, 1}, {2}}); },
       {"rank 1 gives [1, 1]: rank 1 is listed twice"}},
      {"SplitWithoutItself",
       [](ProcessGroup& w) { return split(w, {{0, 1}, {0, 1}, {0, 1}}); },
       {"rank 2 is not among the ranks [0, 1] it gives"}},
      {"SplitNames",
       [](ProcessGroup& w) { return w.split({0, 1, 2}, {.name = w.rank() == 2 ? "odd" : "even"}); },
       {"the names of the group differ: 'even' on rank 0, 'odd' on rank 2"}},
      {"SplitTransports",
       [](ProcessGroup& w) { return w.split({0, 1, 2}, {.transport = w.rank() == 1 ? "fake" : "gloo"}); },
       {"the transports differ: 'gloo' on rank 0, 'fake' on rank 1"}},
      {"NewGroupSizes",
       [](ProcessGroup& w) { return make_new(w, {{0, 1}, {0, 1, 2}, {0, 1, 2}}); },
       {"new_group: the members differ", "makes a group of [0,1]", "makes a group of [0,1,2]"}},
      {"NewGroupOrders",
       [](ProcessGroup& w) { return make_new(w, {{0, 1, 2}, {2, 1, 0}, {0, 1, 2}}); },
       {"makes a group of [0,1,2]", "makes a group of [2,1,0]"}},
      {"NewGroupRing",
       [](ProcessGroup& w) { return make_new(w, {{0, 1}, {1, 2}, {2, 0}}); },
       {"makes a group of [0,1]", "makes a group of [1,2]", "makes a group of [2,0]"}},
      {"NewGroupNames",
       [](ProcessGroup& w) { return new_group({2, 1, 0}, {.name = w.rank() == 1 ? "odd" : "even"}); },
       {"the names of the group differ: 'even' on rank 2, 'odd' on rank 1"}},
      {"NewGroupTransports",
       [](ProcessGroup& w) { return new_group({0, 1, 2}, {.transport = w.rank() == 1 ? "fake" : "gloo"}); },
       {"the transports differ: 'gloo' on rank 0, 'fake' on rank 1"}},
      {"MergeOrders",
       [](ProcessGroup& w) { return w.rank() == 2 ? merge({2}, {0, 1}) : merge({0, 1}, {2}); },
       {"makes a group of [0,1,2]", "makes a group of [2,0,1]"}},
      {"MergeMembers",
       [](ProcessGroup& w) { return w.rank() == 0 ? merge({0}, {1}) : merge({0}, {1, 2}); },
       {"makes a group of [0,1]", "makes a group of [0,1,2]"}},
      {"Shrink",
       [](ProcessGroup& w) { return w.rank() == 2 ? w.shrink({0}) : w.shrink(w.rank() == 0 ? Ranks{1} : Ranks{}); },
       {"shrink of group '0'", "leaves out"}},
  };
  return list;
}

namespace {

void expect_refused(ProcessGroup& world, const Disagreement& d) {
  const auto begin = std::chrono::steady_clock::now();
  std::string text;
  try {
    d.make(world);
  } catch (const UsageError& error) {
    text = error.what();
  }
  for (const std::string& part : d.says)
    TUTTI_CHECK(text.find(part) != std::string::npos, "rank {}: '{}' is not in '{}'", world.rank(), part, text);
  TUTTI_CHECK(std::chrono::steady_clock::now() - begin < kSoon, "rank {}: it took longer than {} s", world.rank(),
              kSoon.count());
}

}  // namespace

void expect_groups(ProcessGroup& world) {
  const std::vector<Group> groups = {new_group({0, 1, 2}), world.split({2, 1, 0}),
                                     world.rank() < 2 ? new_group({0, 1}) : nullptr,
                                     world.rank() > 0 ? new_group({2, 1}) : nullptr, merge({2}, {0, 1})};
  for (const Group& group : groups) {
    if (!group) continue;
    const Tensor one = Tensor::of<float>({1});
    group->all_reduce(one);
    TUTTI_CHECK(one.item() == static_cast<double>(group->size()), "the sum is {}", one.item());
  }
}

void check_disagreement(ProcessGroup& world, const Disagreement& d) {
  for (int i = 0; i < 2; ++i) {
    expect_refused(world, d);
    world.barrier();
  }
  expect_groups(world);
}

}  // namespace tutti::comm
