// Functions with collectives in packages: the bits of the live function over every transport, and what does not fit.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/packaged_ranks.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/deploy/package_error.h"
#include "tutti/deploy/section_file.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/control.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/extremes.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"

namespace tutti::comm::packaged {
namespace {

using testing::TemporaryFolder;

class PackagedCollectives : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, PackagedCollectives, ::testing::ValuesIn(world_transports()),
                         [](const auto& info) { return info.param; });

// Sizes come back, so that plans that were kept run again, and the two packages take turns in one group.
TEST_P(PackagedCollectives, HaveTheBitsOfTheLiveFunctionsInAnySequenceOfCalls) {
  const TemporaryFolder folder;
  run_apart(GetParam(), 2, [&](ProcessGroup& group) {
    const ShardedMlp mlp(group);
    const Exchanges exchanges{group};
    const std::string mlp_file = file_of(folder.path(), "mlp", group);
    const std::string exchanges_file = file_of(folder.path(), "exchanges", group);
    package(mlp_file, mlp, options_for(group, "mlp", {{.name = "batch", .dims = {{0, 0}}, .least = 1, .most = 4}}),
            values({2, 6}, group.rank(), 1));
    package(exchanges_file, exchanges,
            options_for(group, "exchanges", {{.name = "rows", .dims = {{0, 0}}, .least = 2, .most = 6, .step = 2}}),
            values({4, 4}, group.rank(), 2));
    const auto packaged_mlp = open_in(group, mlp_file), packaged_exchanges = open_in(group, exchanges_file);
    const auto compiled_mlp = compile(mlp);
    const auto compiled_exchanges = compile(exchanges);
    uint64_t seed = 3;
    for (const int64_t size : {1, 3, 2, 3, 4, 1, 3}) {
      // The same x on both ranks, as tensor parallelism has it; and what one rank alone computes with all weights.
      const Tensor x = values({size, 6}, 0, ++seed);
      const Tensor y = packaged_mlp->run({{x}})[0];
      expect_same(y, compiled_mlp(x));
      expect_same(y, mlp(x));
      const auto of_rank = [&](int r) {
        return ShardedMlp::of_rank(x, ShardedMlp::part(r, {6, 5}, 11), ShardedMlp::part(r, {5, 3}, 12));
      };
      expect_same(y, tanh(add(of_rank(0), of_rank(1))));
      const Tensor z = values({2 * (1 + size % 3), 4}, group.rank(), ++seed);
      const std::vector<Tensor> got = packaged_exchanges->run({{z}}), live = exchanges(z),
                                compiled = compiled_exchanges(z);
      for (size_t i = 0; i < live.size(); ++i) expect_same(got[i], live[i]), expect_same(got[i], compiled[i]);
    }
    TUTTI_CHECK(functional::WorkRegistry::current().unwaited() == 0, "works are left");
    const deploy::PackageGroup& of_mlp = packaged_mlp->manifest().groups.at(0);
    const deploy::PackageGroup& of_exchanges = packaged_exchanges->manifest().groups.at(0);
    TUTTI_CHECK(of_mlp.name == "0" && of_mlp.ranks == 2 && of_mlp.rank == group.rank(), "group '{}' of {}, rank {}",
                of_mlp.name, of_mlp.ranks, of_mlp.rank);
    TUTTI_CHECK(of_exchanges.ranks == 2 && of_exchanges.rank == -1, "rank {} of equal files", of_exchanges.rank);
  });
}

// Those that groups in C do not have: coalesced calls, uneven exchanges, permutations and messages.
TEST_P(PackagedCollectives, OfEveryKindHaveTheBitsOfTheLiveFunction) {
  const TemporaryFolder folder;
  run_apart(GetParam(), 2, [&](ProcessGroup& group) {
    const int64_t rank = group.rank();
    const auto fn = [&](const Tensor& x, const Tensor& splits) {
      using namespace functional;
      const Tensor given[] = {exp(x), cast(x, DType::f64)};
      const std::vector<Tensor> sums = all_reduce_coalesced(given, "sum", group),
                                all = all_gather_single_coalesced(given, group);
      const std::vector<int64_t> out{1 + rank, 2 - rank}, in{1 + rank, 2 - rank}, next{1, 0};
      const Tensor uneven = all_to_all_single(x, out, in, group);
      const PaddedRows padded = all_to_all_v_padded_single(x, splits, 6, group);
      const Tensor swapped = permute_tensor(neg(x), next, group);
      const PointToPoint messages[] = {{PointToPoint::Kind::irecv, x, static_cast<int>(1 - rank), 3},
                                       {PointToPoint::Kind::isend, tanh(x), static_cast<int>(1 - rank), 3}};
      const std::vector<Tensor> passed = batch_isend_irecv(messages, group);
      return std::vector<Tensor>{sums[0], sums[1],  all[0], all[1], uneven, padded.output, padded.output_splits,
                                 swapped, passed[0]};
    };
    const std::string file = file_of(folder.path(), "kinds", group);
    const Tensor splits = Tensor::of(std::vector<int64_t>{1 + rank, 2 - rank});
    package(file, fn, options_for(group, "kinds"), values({3, 4}, group.rank(), 1), splits);
    const auto packaged = open_in(group, file);
    for (uint64_t seed = 2; seed < 5; ++seed) {
      const Tensor x = values({3, 4}, group.rank(), seed);
      const std::vector<Tensor> live = fn(x, splits), got = packaged->run({{x, splits}});
      for (size_t i = 0; i < live.size(); ++i) expect_same(got[i], live[i]);
    }
  });
}

// Many parts are under way at once, of sizes that take several packets, and results are written where the caller says.
TEST_P(PackagedCollectives, StartEarlyAndAreWaitedForWhereTheyAreRead) {
  const TemporaryFolder folder;
  run_apart(GetParam(), 3, [&](ProcessGroup& group) {
    const auto fn = [&](const Tensor& x) {
      const Tensor a = functional::all_reduce(exp(x), "sum", group), b = functional::all_reduce(tanh(x), "sum", group);
      functional::wait_tensor(functional::all_reduce(neg(x), "min", group));  // is made, and nobody reads it
      const Tensor c = mul(matmul(x, x), 0.5);
      return std::vector<Tensor>{add(mul(b, c), a), functional::all_gather_single(c, 0, group), b};
    };
    const std::string file = file_of(folder.path(), "early", group);
    package(file, fn, options_for(group, "early"), values({70, 70}, group.rank(), 1));
    const auto packaged = open_in(group, file);
    for (uint64_t seed = 2; seed < 5; ++seed) {
      const Tensor x = values({70, 70}, group.rank(), seed);
      const std::vector<Tensor> into{Tensor::empty({70, 70}), Tensor::empty({210, 70}), Tensor::empty({70, 70})};
      packaged->run({{x}}, into);
      const std::vector<Tensor> live = fn(x), got = packaged->run({{x}});
      for (size_t i = 0; i < live.size(); ++i) expect_same(into[i], live[i]), expect_same(got[i], live[i]);
    }
  });
}

TEST(PackagedCollectivesIn, BranchesAndLoopsRunWhereTheDataChooses) {
  const TemporaryFolder folder;
  run_apart("threads", 2, [&](ProcessGroup& group) {
    const auto fn = [&](const Tensor& x) {
      using functional::all_reduce;
      const Tensor total = all_reduce(sum(x), "sum", group);
      const Tensor y = cond(
          gt(total, 0.0), [&](auto in) { return all_reduce(exp(in[0]), "sum", group); },
          [&](auto in) { return mul(all_reduce(in[0], "min", group), 2.0); }, {x})[0];
      return while_loop([&](auto in) { return lt(all_reduce(amax(in[0]), "max", group), 50.0); },
                        [&](auto in) { return add(in[0], all_reduce(abs(in[0]), "sum", group)); }, {y})[0];
    };
    const std::string file = file_of(folder.path(), "branches", group);
    package(file, fn, options_for(group, "branches"), values({4, 5}, group.rank(), 1));
    const auto packaged = open_in(group, file);
    for (const double sign : {1.0, -1.0, 1.0}) {
      const Tensor x = mul(abs(values({4, 5}, group.rank(), 2)), sign);
      expect_same(packaged->run({{x}})[0], fn(x));
    }
  });
}

// Weights are divided over one of two groups: the files of a rank differ along that one only. They run in groups of
// other names.
TEST(PackagedCollectivesIn, TwoGroupsSayWhoseFileItIsForEach) {
  const TemporaryFolder folder;
  run_apart("threads", 4, [&](ProcessGroup& world) {
    const auto groups_named = [&](const std::string& suffix) {
      const int row = world.rank() / 2, column = world.rank() % 2;
      return std::pair{world.split({2 * row, 2 * row + 1}, {.name = fmt::format("tp{}", suffix)}),
                       world.split({column, column + 2}, {.name = fmt::format("dp{}", suffix)})};
    };
    const auto function_on = [&](ProcessGroup& tp, ProcessGroup& dp) {
      return [&, mlp = ShardedMlp(tp)](const Tensor& x) { return functional::all_gather_single(mlp(x), 0, dp); };
    };
    const auto [tp, dp] = groups_named("");
    PackageOptions options = options_for(*dp, "mesh");
    options.groups = {rank_group(dp), rank_group(tp)};
    const std::string file = file_of(folder.path(), "mesh", world);
    const Tensor x = values({2, 6}, dp->rank(), 1);
    package(file, function_on(*tp, *dp), options, x);
    const auto [other_tp, other_dp] = groups_named(".again");
    // Both ranks along dp open the file of the first of them.
    const auto packaged = Package::open(fmt::format("{}/mesh.{}", folder.path(), world.rank() % 2));
    const auto& groups = packaged->manifest().groups;
    TUTTI_CHECK(groups.size() == 2 && groups[0].rank == -1 && groups[1].rank == tp->rank(), "{} groups, ranks {}, {}",
                groups.size(), groups[0].rank, groups[1].rank);
    const std::vector<std::shared_ptr<deploy::RankGroup>> swapped{rank_group(other_tp), rank_group(other_dp)},
        right{swapped[1], swapped[0]};
    require_has(error_of<UsageError>([&] { packaged->set_groups(swapped); }), "mesh: ");
    // Rank 0 alone has a wrong file for the first group, and the ranks of the second hear it.
    options.name = "turned";
    options.groups = {rank_group(tp), rank_group(dp)};
    package(file_of(folder.path(), "turned", world), function_on(*tp, *dp), options, x);
    const auto turned = Package::open(fmt::format("{}/turned.{}", folder.path(), world.rank() == 0 ? 1 : tp->rank()));
    require_has(error_of<UsageError>([&] { turned->set_groups(swapped); }),
                "turned: this file is that of rank 1 of group 'tp', and this is rank 0");
    packaged->set_groups(right);
    for (uint64_t seed = 2; seed < 5; ++seed) {
      const Tensor z = values({2, 6}, dp->rank(), seed);
      expect_same(packaged->run({{z}})[0], function_on(*tp, *dp)(z));
    }
  });
}

// A step of data parallelism, whose parameters are the state of the package.
TEST(PackagedCollectivesIn, TrainingStepsContinueWithTheBitsOfTheLiveStep) {
  const TemporaryFolder folder;
  run_apart("threads", 2, [&](ProcessGroup& group) {
    const Tensor w = values({4, 3}, 0, 7);
    const auto step = [&](const Tensor& x) {
      const Tensor y = matmul(x, w);
      const Tensor gradient = functional::all_reduce(matmul(transpose(x, 0, 1), y), "avg", group);
      sub_(w, mul(gradient, 0.125));
      return functional::all_reduce(sum(mul(y, y)), "sum", group);
    };
    PackageOptions options = options_for(group, "step");
    options.state = {{"w", w}};
    const std::string file = file_of(folder.path(), "step", group);
    package(file, step, options, values({5, 4}, group.rank(), 1));
    const auto packaged = open_in(group, file);
    const auto state = packaged->new_state();
    for (uint64_t seed = 2; seed < 6; ++seed) {
      const Tensor x = values({5, 4}, group.rank(), seed);
      expect_same(packaged->run(*state, {{x}})[0], step(x));
      expect_same(state->read("w"), w);
    }
  });
}

// ---- what does not fit ----------------------------------------------------------------------------------------------

TEST(PackagedCollectivesThat, HaveNoGroupAreRefusedWhenTheyArePackagedAndWhenTheyRun) {
  const TemporaryFolder folder;
  run_apart("threads", 2, [&](ProcessGroup& group) {
    const Exchanges fn{group};
    const Tensor x = values({4, 4}, group.rank(), 1);
    PackageOptions options = options_for(group, "f");
    const auto groups = options.groups;
    options.groups.clear();
    const std::string file = file_of(folder.path(), "f", group);
    require_has(error_of<UsageError>([&] { package(file, fn, options, x); }),
                "it communicates with the ranks of group '0', which PackageOptions::groups does not have; add "
                "comm::rank_group(group)");
    options.groups = {groups[0], groups[0]};
    require_has(error_of<UsageError>([&] { package(file, fn, options, x); }), "give each process group once");
    options.groups = groups;
    package(file, fn, options, x);
    const auto packaged = Package::open(file);
    require_has(error_of<UsageError>([&] { packaged->run({{x}}); }),
                "f: the function communicates in '0' of 2 ranks, and has no such group; give it live ones");
    require_has(error_of<UsageError>([&] { packaged->set_groups({}); }),
                "f: 0 groups are given, and the function communicates in 1");
    require_has(error_of<UsageError>([&] { packaged->set_groups(std::vector<std::shared_ptr<deploy::RankGroup>>(1)); }),
                "f: group 0, '0', is null");
    packaged->set_groups(groups);
    expect_same(packaged->run({{x}})[1], fn(x)[1]);
  });
}

TEST(PackagedCollectivesThat, WereMadeForAnotherSizeOrRankAreRefusedOnAllRanks) {
  const TemporaryFolder folder;
  run_apart("threads", 2, [&](ProcessGroup& group) {
    package(file_of(folder.path(), "mlp", group), ShardedMlp(group), options_for(group, "mlp"),
            values({2, 6}, group.rank(), 1));
    const int other = 1 - group.rank();
    require_has(error_of<UsageError>([&] { open_in(group, fmt::format("{}/mlp.{}", folder.path(), other)); }),
                fmt::format("mlp: this file is that of rank {} of group '0', and this is rank {}; each rank opens the "
                            "file that it has written",
                            other, group.rank()));
    // Only rank 1 is wrong, and rank 0 is told.
    const std::string text = error_of<UsageError>([&] { open_in(group, folder / "mlp.0"); });
    require_has(text, "mlp: this file is that of rank 0 of group '0', and this is rank 1");
    if (group.rank() == 0) require_has(text, "rank 1: ");
    open_in(group, file_of(folder.path(), "mlp", group));
  });
  run_apart("threads", 3, [&](ProcessGroup& group) {
    require_has(error_of<UsageError>([&] { open_in(group, folder / "mlp.0"); }),
                "mlp: was packaged with the 2 ranks of group '0', and this group has 3");
  });
}

TEST(PackagedCollectivesThat, WereNotMadeTogetherAreRefusedOnAllRanks) {
  const TemporaryFolder folder;
  run_apart("threads", 2, [&](ProcessGroup& group) {
    const Exchanges fn{group};
    const auto doubled = [&](const Tensor& x) { return fn(mul(x, 2.0)); };
    const Tensor x = values({4, 4}, group.rank(), 1);
    package(file_of(folder.path(), "f", group), fn, options_for(group, "f"), x);
    package(file_of(folder.path(), "g", group), doubled, options_for(group, "g"), x);
    const std::string own = file_of(folder.path(), group.rank() == 0 ? "f" : "g", group);
    require_has(error_of<UsageError>([&] { open_in(group, own); }), "that was not made together with that of rank");
    // The group goes on.
    expect_same(open_in(group, folder / "g.1")->run({{x}})[0], doubled(x)[0]);
  });
}

// Files whose hashes are right and whose contents do not fit together.
TEST(PackagedCollectivesThat, NameOtherGroupsThanTheirManifestAreDamaged) {
  const TemporaryFolder folder;
  run_apart("threads", 2, [&](ProcessGroup& group) {
    const std::string file = file_of(folder.path(), "f", group);
    package(file, Exchanges{group}, options_for(group, "f"), values({4, 4}, group.rank(), 1));
    const auto damage_of = [&](auto change) {
      const auto whole = deploy::SectionFile::open(file);
      std::vector<deploy::Section> sections(whole->sections().begin(), whole->sections().end());
      deploy::Manifest manifest = deploy::Manifest::of_bytes(sections[0].bytes);
      change(manifest);
      const std::string bytes = manifest.to_bytes();
      sections[0].bytes = bytes;
      deploy::write_sections(file + ".forged", sections);
      return error_of<deploy::PackageError>(
          [&] { Package::open(file + ".forged", Package::Purpose::look)->check_all_plans(); });
    };
    require_has(damage_of([](auto&) {}), "no error");
    require_has(damage_of([](auto& m) { m.groups[0].name = "1"; }),
                "in a group '0' of 2 ranks, which its manifest does not list");
    require_has(damage_of([](auto& m) { m.groups[0].ranks = 3; }), "which its manifest does not list");
    require_has(damage_of([](auto& m) { m.groups.clear(); }), "which its manifest does not list");
    require_has(damage_of([](auto& m) {
                  m.groups.insert(m.groups.begin(), m.groups[0]);
                  m.groups[0].ranks = 4;
                }),
                "a group '0' that has no name, or that of another group");
    require_has(damage_of([](auto& m) { m.groups[0].name = ""; }), "a group '' that has no name");
    require_has(damage_of([](auto& m) { m.groups[0].rank = 2; }), "a group of 2 ranks, which is for rank 2");
    require_has(damage_of([](auto& m) { m.groups[0].ranks = 0; }), "a group of 0 ranks");
    require_has(damage_of([](auto& m) { m.groups[0].together = "short"; }), "a group of 2 ranks");
  });
}

// Every byte of the manifest and of the plans, under right hashes: an error of a package or none, and nothing runs.
TEST(PackagedCollectivesThat, AreForgedByteByByteEndInErrorsOfPackages) {
  const TemporaryFolder folder;
  run_apart("threads", 1, [&](ProcessGroup& group) {
    const std::string file = folder / "f", forged = folder / "forged";
    package(file, Exchanges{group}, options_for(group, "f"), values({4, 4}, group.rank(), 1));
    const auto whole = deploy::SectionFile::open(file);
    int refused = 0, made = 0;
    for (size_t k = 0; k < whole->sections().size(); ++k) {
      std::vector<deploy::Section> sections(whole->sections().begin(), whole->sections().end());
      if (sections[k].kind != deploy::SectionKind::manifest && sections[k].kind != deploy::SectionKind::plans) continue;
      std::string bytes(sections[k].bytes);
      for (size_t i = 0; i < bytes.size(); ++i) {
        const char before = bytes[i];
        bytes[i] = static_cast<char>(before ^ (i % 3 == 0 ? 0x80 : i % 3 == 1 ? 1 : 0xff));
        sections[k].bytes = bytes;
        deploy::write_sections(forged, sections);
        refused += error_of<deploy::PackageError>(
                       [&] { Package::open(forged, Package::Purpose::look)->check_all_plans(); }) != "no error";
        ++made;
        bytes[i] = before;
      }
    }
    TUTTI_CHECK(made > 1000 && refused > made / 2, "{} of {} refused", refused, made);
  });
}

std::vector<std::string> between_processes() {
  std::vector<std::string> names = world_transports();
  std::erase(names, "threads");
  return names;
}

class PackagedCollectivesOver : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Processes, PackagedCollectivesOver, ::testing::ValuesIn(between_processes()),
                         [](const auto& info) { return info.param; });

// One call works, then rank 1 is gone, or does not call before the deadline.
std::string text_of_rank_0(const std::string& transport, bool dies) {
  const TemporaryFolder folder;
  const auto results = run_world(2,
                                 [&](ProcessGroup& group) {
                                   const ShardedMlp mlp(group);
                                   const Tensor x = values({2, 6}, 0, 1);
                                   const std::string file = file_of(folder.path(), "mlp", group);
                                   package(file, mlp, options_for(group, "mlp"), x);
                                   const auto packaged = open_in(group, file);
                                   packaged->run({{x}});
                                   if (group.rank() == 1 && dies) _exit(7);
                                   if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
                                   if (group.rank() == 0)
                                     group.set_timeout(dies ? std::chrono::seconds(30) : std::chrono::seconds(1));
                                   packaged->run({{x}});
                                 },
                                 {.transport = transport});
  return results[0].error;
}

TEST_P(PackagedCollectivesOver, ADeadPeerIsNamed) {
  const std::string text = text_of_rank_0(GetParam(), true);
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
}

TEST_P(PackagedCollectivesOver, APeerThatIsLateIsNamed) {
  const std::string text = text_of_rank_0(GetParam(), false);
  EXPECT_NE(text.find("all_reduce"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::comm::packaged
