// Groups by name, and groups made of groups.
#include "tutti/comm/groups.h"

#include <gtest/gtest.h>

#include "tests/comm/support/transport_worlds.h"
#include "tutti/comm/group_registry.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(GroupRegistry, KnowsTheWorldAndEveryGroupByItsName) {
  run_ranks(3, [](ProcessGroup& group) {
    const GroupRegistry& registry = GroupRegistry::current();
    EXPECT_EQ(registry.resolve("0").get(), &group);
    const auto first = new_group({0, 1, 2}), second = new_group({0, 1, 2}),
               named = new_group({2, 1, 0}, {.name = "rows"});
    EXPECT_NE(first->name(), second->name());
    for (const auto& made : {first, second, named, group.split({1, 2, 0})})
      EXPECT_EQ(registry.resolve(made->name()), made);
    EXPECT_TRUE(registry.has("rows"));
    group.barrier();
  });
}

TEST(GroupRegistry, HasThreeErrorsOfItsOwnAndKeepsNoGroupAlive) {
  run_ranks(2, [](ProcessGroup& group) {
    GroupRegistry& registry = GroupRegistry::current();
    EXPECT_EQ(complaint([&] { registry.resolve("rows"); }), "process group 'rows' is not registered");
    EXPECT_EQ(complaint([&] { registry.remove("rows"); }), "process group 'rows' is not registered");
    auto rows = new_group({0, 1}, {.name = "rows"});
    EXPECT_EQ(complaint([&] { registry.add("rows", rows); }), "process group 'rows' is already registered");
    rows.reset();
    EXPECT_EQ(complaint([&] { registry.resolve("rows"); }), "process group 'rows' is registered but already destroyed");
    EXPECT_FALSE(registry.has("rows"));
    rows = new_group({0, 1}, {.name = "rows"});  // the name is free again
    EXPECT_EQ(registry.resolve("rows"), rows);
    registry.remove("rows");
    EXPECT_EQ(complaint([&] { registry.resolve("rows"); }), "process group 'rows' is not registered");
    group.barrier();
  });
}

TEST(Merge, PutsTheMembersOfTheFirstGroupFirst) {
  run_ranks(4, [](ProcessGroup& group) {
    if (group.rank() == 3) return;
    const auto both = merge({2}, {0, 1});
    EXPECT_EQ(both->world_ranks(), (std::vector<int>{2, 0, 1}));
    int64_t value = group.rank();
    both->all_reduce_values<int64_t>({&value, 1});
    EXPECT_EQ(value, 3);
    EXPECT_EQ(complaint([] { merge({0, 1}, {1, 2}); }), "new_group: rank 1 is listed twice");
  });
}

// A program that names a transport for its world has it in every group, as with PyTorch.
TEST(Groups, HaveTheTransportOfTheGroupFromWhichTheyCome) {
  for (const std::string& transport : world_transports()) {
    run_over(transport, 4, [&](ProcessGroup& world) {
      const auto name_of = [](const std::shared_ptr<ProcessGroup>& group) {
        return std::string(group->backend(DeviceKind::cpu).name());
      };
      const std::vector<int> half = world.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3},
                             across = {world.rank() % 2, world.rank() % 2 + 2};
      const auto made = new_group(half), crossing = new_group(across), split = world.split(half),
                 shrunk = world.shrink({}), again = crossing->split({0, 1});
      for (const auto& group : {made, crossing, split, shrunk, again}) {
        const bool is_part =
            transport == "hier" && name_of(group) != "threads";  // shm inside a host, what there is between hosts
        TUTTI_CHECK(is_part || name_of(group) == transport, "a group of a world over {} has {}", transport,
                    name_of(group));
        int64_t value = 1;
        group->all_reduce_values<int64_t>({&value, 1});
        TUTTI_CHECK(value == group->size(), "{} of {}", value, group->size());
      }
      if (transport == "threads") return;
      const auto other = new_group(half, {.transport = "gloo"});
      TUTTI_CHECK(name_of(other) == "gloo" && name_of(other->split({0, 1})) == "gloo", "a group that names gloo has {}",
                  name_of(other));
    });
  }
}

}  // namespace
}  // namespace tutti::comm
