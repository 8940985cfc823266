// Groups by name, and groups made of groups.
#include "tutti/comm/groups.h"

#include <gtest/gtest.h>

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
    const auto first = new_group({0, 1, 2}), second = new_group({0, 1, 2}), named = new_group({2, 1, 0}, {.name = "rows"});
    EXPECT_NE(first->name(), second->name());
    for (const auto& made : {first, second, named, group.split({1, 2, 0})}) EXPECT_EQ(registry.resolve(made->name()), made);
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

}  // namespace
}  // namespace tutti::comm
