// DeviceMesh: grids of ranks, and what is derived from them.
#include <algorithm>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/comm/groups.h"

namespace tutti::dist {
namespace {

using Ranks = std::vector<int>;
const MeshOptions kNamed{.names = {"dp", "cp", "tp"}};

TEST(DeviceMesh, KnowsShapeRanksAndPlace) {
  on_mesh({2, 3}, [](const Mesh& mesh) {
    EXPECT_EQ(mesh->shape(), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(mesh->ranks(), (Ranks{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(mesh->coordinate(), (std::vector<int64_t>{mesh->rank() / 3, mesh->rank() % 3}));
    EXPECT_EQ(mesh->group(0)->size(), 2);
    EXPECT_EQ(mesh->group(-1)->size(), 3);
    EXPECT_EQ(mesh->group(1)->world_ranks(), mesh->rank() < 3 ? (Ranks{0, 1, 2}) : (Ranks{3, 4, 5}));
    EXPECT_EQ(mesh->to_string(), "mesh(2, 3)");
  });
}

TEST(DeviceMesh, GroupsCommunicate) {
  on_mesh({2, 2, 2}, [](const Mesh& mesh) {
    for (int d = 0; d < 3; ++d) {
      float sum[] = {static_cast<float>(1 << mesh->rank())};
      mesh->group(d)->all_reduce_values<float>(sum);
      float expected = 0;
      for (const int r : mesh->group(d)->world_ranks()) expected += static_cast<float>(1 << r);
      EXPECT_EQ(sum[0], expected);
    }
  });
}

TEST(DeviceMesh, ADimOfTheWholeWorldIsTheWorld) {
  on_mesh({4}, [](const Mesh& mesh) { EXPECT_EQ(mesh->group(), comm::world()); });
}

TEST(DeviceMesh, SlicesInAnyOrder) {
  on_mesh(
      {2, 2, 2},
      [](const Mesh& mesh) {
        const Mesh tp = mesh->slice({"tp"});
        EXPECT_EQ(tp->ranks(), (Ranks{mesh->rank() / 2 * 2, mesh->rank() / 2 * 2 + 1}));
        EXPECT_EQ(tp->group(), mesh->group("tp"));
        const Mesh turned = mesh->slice({"tp", "dp"});
        const int cp = mesh->rank() / 2 % 2 * 2;
        EXPECT_EQ(turned->ranks(), (Ranks{cp, cp + 4, cp + 1, cp + 5}));
        EXPECT_EQ(turned->coordinate(), (std::vector<int64_t>{mesh->rank() % 2, mesh->rank() / 4}));
        EXPECT_EQ(mesh->slice({"dp", "cp", "tp"}), mesh);
        EXPECT_NE(mesh->slice({"tp", "cp", "dp"})->id(), mesh->id());
      },
      kNamed);
}

TEST(DeviceMesh, Flattens) {
  on_mesh(
      {2, 2, 2},
      [](const Mesh& mesh) {
        const Mesh data = mesh->slice({"dp", "cp"})->flatten();
        EXPECT_EQ(data->names(), (std::vector<std::string>{"dp_cp"}));
        EXPECT_EQ(data->ranks(), mesh->rank() % 2 == 0 ? (Ranks{0, 2, 4, 6}) : (Ranks{1, 3, 5, 7}));
        EXPECT_EQ(mesh->slice({"dp_cp"})->group(), data->group());
        EXPECT_EQ(data->flatten("dp_cp"), data);
        const Mesh apart = mesh->slice({"dp", "tp"})->flatten("outside");  // not equally distant
        EXPECT_EQ(apart->ranks(), mesh->rank() / 2 % 2 == 0 ? (Ranks{0, 1, 4, 5}) : (Ranks{2, 3, 6, 7}));
        const Mesh back = apart->unflatten("outside", {2, 2}, {"a", "b"});
        EXPECT_EQ(back->ranks(), apart->ranks());
        EXPECT_EQ(back->shape(), (std::vector<int64_t>{2, 2}));
        EXPECT_USAGE_ERROR(apart->unflatten("outside", {3, 2}, {"a", "b"}),
                           "sizes [3, 2] do not multiply to the 4 ranks");
        EXPECT_USAGE_ERROR(mesh->slice({"dp", "cp"})->flatten("tp"), "'tp' is the name of a dim of the mesh already");
        EXPECT_USAGE_ERROR(mesh->slice({"cp", "tp"})->flatten("outside"),
                           "'outside' is the name of other flattened dims");
        EXPECT_USAGE_ERROR(mesh->slice({"dp_cp", "dp"}), "share ranks");
      },
      kNamed);
}

TEST(DeviceMesh, UnflattensAWholeDim) {
  on_mesh({8},
          [](const Mesh& mesh) {
            const Mesh grid = mesh->unflatten("all", {2, 2, 2}, {"x", "y", "z"});
            EXPECT_EQ(grid->coordinate(),
                      (std::vector<int64_t>{mesh->rank() / 4, mesh->rank() / 2 % 2, mesh->rank() % 2}));
            EXPECT_EQ(grid->slice({"x", "z"})->ranks().size(), 4u);
          },
          {.names = {"all"}});
}

TEST(DeviceMesh, Concatenates) {
  on_mesh(
      {2, 2, 2},
      [](const Mesh& mesh) {
        const Mesh both = concatenate({mesh->slice({"tp"}), mesh->slice({"dp"})});
        EXPECT_EQ(both->names(), (std::vector<std::string>{"tp", "dp"}));
        EXPECT_EQ(both->id(), mesh->slice({"tp", "dp"})->id());
        EXPECT_USAGE_ERROR(concatenate({mesh->slice({"dp", "tp"})->flatten("q"), mesh->slice({"dp"})}), "share ranks");
        EXPECT_USAGE_ERROR(concatenate({mesh->slice({"dp"}), mesh->slice({"dp"})}), "stands twice");
      },
      kNamed);
}

TEST(DeviceMesh, IsMadeOfGroups) {
  comm::run_ranks(4, [](comm::ProcessGroup& world) {
    const int row = world.rank() / 2, column = world.rank() % 2;
    const auto a = comm::new_group({column, column + 2});
    const auto b = comm::new_group({row * 2, row * 2 + 1});
    const Mesh mesh = mesh_from_groups({a, b}, "cpu", {0, 1, 2, 3}, {2, 2}, {.names = {"a", "b"}});
    EXPECT_EQ(mesh->group("a"), a);
    EXPECT_EQ(mesh_from_group(b, "cpu")->ranks(), b->world_ranks());
    EXPECT_USAGE_ERROR(mesh_from_groups({b, a}, "cpu", {0, 1, 2, 3}, {2, 2}),
                       "the group of a dim has the ranks of its line");
    EXPECT_USAGE_ERROR(mesh_from_groups({a}, "cpu", {0, 1, 2, 3}, {2, 2}), "1 groups for the 2 dims");
  });
}

TEST(DeviceMesh, RanksOutsideHaveNoPlace) {
  comm::run_ranks(3, [](comm::ProcessGroup& world) {
    const Mesh mesh = init_device_mesh("cpu", {2}, {.names = {"x"}});
    EXPECT_EQ(mesh->has_coordinate(), world.rank() < 2);
    if (world.rank() == 2)
      EXPECT_USAGE_ERROR(mesh->group(), "rank 2 has no place in mesh(x=2), whose ranks are [0, 1]");
  });
}

TEST(DeviceMesh, AnyRanksInAnyOrder) {
  comm::run_ranks(4, [](comm::ProcessGroup& world) {
    const Mesh mesh = make_device_mesh("cpu", {3, 1, 0, 2}, {2, 2});
    const Ranks order{3, 1, 0, 2};
    const auto at = std::find(order.begin(), order.end(), world.rank()) - order.begin();
    EXPECT_EQ(mesh->coordinate(), (std::vector<int64_t>{at / 2, at % 2}));
    EXPECT_EQ(mesh->group(1)->world_ranks(), at < 2 ? (Ranks{3, 1}) : (Ranks{0, 2}));
  });
}

TEST(DeviceMesh, TransportsByDim) {
  on_mesh({2, 2}, [](const Mesh& mesh) { EXPECT_NE(mesh->group(0), mesh->group(1)); },
          {.names = {"a", "b"}, .transports = {{"a", "threads"}, {"1", "threads"}}});
}

TEST(DeviceMesh, IdsAreEqualOnAllRanks) {
  on_mesh({2, 2}, [](const Mesh& mesh) {
    int32_t least[] = {static_cast<int32_t>(mesh->id())}, most[] = {static_cast<int32_t>(mesh->id())};
    comm::world()->all_reduce_values<int32_t>(least, comm::ReduceKind::min);
    comm::world()->all_reduce_values<int32_t>(most, comm::ReduceKind::max);
    EXPECT_EQ(least[0], most[0]);
    EXPECT_EQ(init_device_mesh("cpu", {2, 2})->id(), mesh->id());
    EXPECT_NE(init_device_mesh("cpu", {4})->id(), mesh->id());
    EXPECT_EQ(mesh_of_id(mesh->id()), mesh);
  });
}

TEST(DeviceMesh, RefusesWhatMakesNoGrid) {
  on_mesh({2}, [](const Mesh& mesh) {
    EXPECT_USAGE_ERROR(init_device_mesh("cpu", {3}), "shape [3] needs 3 ranks, the world has 2");
    EXPECT_USAGE_ERROR(init_device_mesh("cpu", {1, 2}, {.names = {"a"}}), "1 names for 2 dims");
    EXPECT_USAGE_ERROR(init_device_mesh("cpu", {1, 2}, {.names = {"a", "a"}}), "name 'a' stands twice");
    EXPECT_USAGE_ERROR(init_device_mesh("cuda:0", {2}),
                       "device type 'cuda:0' names one device; give the type alone ('cuda')");
    EXPECT_USAGE_ERROR(init_device_mesh("gpu", {2}), "unknown device type 'gpu'");
    EXPECT_USAGE_ERROR(init_device_mesh("cpu", {}), "the shape is empty");
    EXPECT_USAGE_ERROR(init_device_mesh("cpu", {2, 0}), "size 0 in shape [2, 0]");
    EXPECT_USAGE_ERROR(make_device_mesh("cpu", {0, 0}, {2}), "rank 0 stands twice");
    EXPECT_USAGE_ERROR(make_device_mesh("cpu", {0, 2}, {2}), "rank 2 is not one of the 2 ranks of the world");
    EXPECT_USAGE_ERROR(init_device_mesh("cpu", {2}, {.names = {"x"}, .transports = {{"y", "shm"}}}),
                       "a transport is given for dim 'y'");
    EXPECT_USAGE_ERROR(
        init_device_mesh("cpu", {2}, {.names = {"x"}, .transports = {{"x", "threads"}, {"0", "threads"}}}),
        "two transports are given for dim 0");
    EXPECT_USAGE_ERROR(mesh->slice({"x"}), "mesh(2) has no names");
    EXPECT_USAGE_ERROR(mesh->flatten(), "has no names to join");
    EXPECT_USAGE_ERROR(mesh->group(1), "dim 1 of mesh(2), which has 1 dims");
    const Mesh named = init_device_mesh("cpu", {1, 2}, {.names = {"dp", "tp"}});
    EXPECT_USAGE_ERROR(named->group(), "each with a group of its own; say which");
    EXPECT_USAGE_ERROR(named->local_rank(), "has 2 dims; say which");
    EXPECT_USAGE_ERROR(named->slice({"tq"}), "did you mean 'tp'");
    EXPECT_USAGE_ERROR(mesh_of_id(12345), "no longer exists on this rank");
  });
}

}  // namespace
}  // namespace tutti::dist
