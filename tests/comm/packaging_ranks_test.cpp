// Ranks that package together, of which one fails: all of them hear it at once, and can go on.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/comm/support/packaged_ranks.h"
#include "tutti/ops/random.h"

namespace tutti::comm::packaged {
namespace {

using testing::TemporaryFolder;

class PackagingRanks : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, PackagingRanks, ::testing::ValuesIn(world_transports()),
                         [](const auto& info) { return info.param; });

constexpr auto kDeadline = std::chrono::seconds(60);

// What this rank is told when the last rank packages `wrong` and the others `right`; and none of them waits long.
using Fn = std::function<Tensor(const Tensor&)>;
std::string text_of(ProcessGroup& group, const std::string& file, const Fn& right, const Fn& wrong,
                    const std::vector<PackagedSize>& sizes = {}, const std::vector<PackagedSize>& sizes_of_last = {}) {
  const bool is_last = group.rank() == group.size() - 1;
  const auto fn = [&](const Tensor& x) { return is_last ? wrong(x) : right(x); };
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  try {
    package(file, fn, options_for(group, "f", is_last ? sizes_of_last : sizes), values({4, 4}, 0, 1));
  } catch (const std::exception& error) {
    text = error.what();
  } catch (int) {
    text = "no std::exception";
  }
  TUTTI_CHECK(std::chrono::steady_clock::now() - start < kDeadline / 2, "rank {} has waited for its deadline: {}",
              group.rank(), text);
  return text;
}

TEST_P(PackagingRanks, HearOfTheOneThatFailsAtAnyPointAndGoOn) {
  const TemporaryFolder folder;
  run_apart(GetParam(), 3, [&](ProcessGroup& group) {
    group.set_timeout(kDeadline);
    const bool is_last = group.rank() == group.size() - 1;
    const std::string file = file_of(folder.path(), "f", group);
    const auto sum_of = [&](const Tensor& x) { return functional::all_reduce(x, "sum", group); };
    const auto right = [&](const Tensor& x) { return sum_of(mul(sum_of(x), 2.0)); };
    const std::string heard = fmt::format("package: rank {} of group '0' has failed: ", group.size() - 1);

    // While it is traced: a package has no generator.
    std::string text = text_of(group, file, right, [&](const Tensor& x) {
      const Tensor y = right(x);
      return add(y, mul(uniform({4, 4}), 0.0));
    });
    require_has(text, is_last ? "random" : heard);
    // Before its first collective, between two of them, and where others have many under way.
    const auto throws = [](const Tensor&) -> Tensor { throw UsageError("nothing works"); };
    const auto expect_text = [&](const std::string& got, const std::string& thrown) {
      TUTTI_CHECK(got == (is_last ? thrown : heard + thrown), "'{}'", got);
    };
    expect_text(text_of(group, file, right, throws), "nothing works");
    expect_text(text_of(group, file, right, [&](const Tensor& x) { return throws(sum_of(x)); }), "nothing works");
    const std::string long_text(3000, 'x');
    text = text_of(group, file, right, [&](const Tensor&) -> Tensor { throw UsageError(long_text); });
    require_has(text, is_last ? long_text : heard + long_text.substr(0, 700));
    const auto many = [&](const Tensor& x) {
      Tensor all = x;
      std::vector<Tensor> under_way;
      for (int i = 0; i < 20; ++i) under_way.push_back(sum_of(mul(x, static_cast<double>(i))));
      for (const Tensor& t : under_way) all = add(all, t);
      return all;
    };
    expect_text(text_of(group, file, many, throws), "nothing works");
    // In the middle of its calls, and with an error of other kinds.
    int calls = 0;
    text = text_of(group, file, right, [&](const Tensor& x) -> Tensor {
      if (++calls == 2) throw std::runtime_error("the second call");
      return right(x);
    });
    require_has(text, is_last ? "the second call" : heard + "the second call");
    // With an exception of no kind.
    text = text_of(group, file, right, [](const Tensor&) -> Tensor { throw 7; });
    require_has(text, is_last ? "no std::exception" : heard + "an exception that is no std::exception");
    // Its folder is missing, or its name cannot be had when all else is done.
    text = text_of(group, is_last ? folder / "missing/f" : file, right, right);
    require_has(text, is_last ? "missing/f" : heard);
    if (is_last) std::filesystem::create_directories(file + "/full");
    text = text_of(group, file, right, right);
    require_has(text, is_last ? "rename" : heard);
    if (is_last) std::filesystem::remove_all(file);
    // Groups that differ.
    if (is_last) {
      PackageOptions options = options_for(group, "f");
      options.groups.push_back(nullptr);
      require_has(error_of<UsageError>([&] { package(file, right, options, values({4, 4}, 0, 1)); }),
                  "package: 'f': a group is null");
    } else {
      require_has(text_of(group, file, right, right), heard + "package: 'f': a group is null");
    }
    // Names that differ behind what is told of them.
    PackageOptions named = options_for(group, std::string(400, 'n') + (is_last ? "a" : "b"));
    require_has(error_of<UsageError>([&] { package(file, right, named, values({4, 4}, 0, 1)); }), "is at 'nnn");
    // It declares other sizes.
    const std::vector<PackagedSize> sizes{{.name = "rows", .dims = {{0, 0}}, .least = 1, .most = 2}},
        others{{.name = "rows", .dims = {{0, 0}}, .least = 2, .most = 2}}, wrong{{.name = "rows", .dims = {}}};
    text = text_of(group, file, right, right, sizes, others);
    require_has(text, fmt::format("is at 'f, rows from {} to 2 by 1', and this is at 'f, rows from {} to 2 by 1'",
                                  is_last ? 1 : 2, is_last ? 2 : 1));
    text = text_of(group, file, right, right, sizes, wrong);
    require_has(text, is_last ? "'rows' is the size of no dim" : heard);

    group.barrier();
    TUTTI_CHECK(std::filesystem::is_empty(folder.path()), "files are left");
    group.barrier();
    package(file, right, options_for(group, "f", sizes), values({4, 4}, 0, 1));
    const Tensor x = values({2, 4}, group.rank(), 5);
    expect_same(open_in(group, file)->run({{x}})[0], right(x));
  });
}

// The failing rank shares one group with two of the others, and none with the last.
TEST(PackagingRanksOfAMesh, AllHearOfTheOneThatFails) {
  const TemporaryFolder folder;
  run_apart("threads", 4, [&](ProcessGroup& world) {
    const int row = world.rank() / 2, column = world.rank() % 2;
    const auto tp = world.split({2 * row, 2 * row + 1}, {.name = "tp"}),
               dp = world.split({column, column + 2}, {.name = "dp"});
    tp->set_timeout(kDeadline), dp->set_timeout(kDeadline);
    const auto fn = [&](const Tensor& x) {
      const Tensor y = functional::all_reduce(functional::all_reduce(x, "sum", *tp), "max", *dp);
      return world.rank() == 3 ? add(y, mul(uniform({4, 4}), 0.0)) : y;
    };
    PackageOptions options = options_for(*tp, "f");
    options.groups = {rank_group(tp), rank_group(dp)};
    // All of them write to one path, each to a file of its own that is not proved.
    const std::string file = folder / "f";
    const auto start = std::chrono::steady_clock::now();
    const std::string text = error_of<UsageError>([&] { package(file, fn, options, values({4, 4}, 0, 1)); });
    require_has(text, world.rank() == 3 ? "random"
                      : world.rank() == 0
                          ? "rank 1 of group 'dp' has failed: package: rank 1 of group 'tp' has failed: "
                          : "package: rank 1 of group ");
    TUTTI_CHECK(std::chrono::steady_clock::now() - start < kDeadline / 2, "rank {} has waited", world.rank());
    const auto right = [&](const Tensor& x) {
      return functional::all_reduce(functional::all_reduce(x, "sum", *tp), "max", *dp);
    };
    package(file, right, options, values({4, 4}, 0, 1));
    const auto packaged = Package::open(file);
    packaged->set_groups(options.groups);
    const Tensor x = values({4, 4}, world.rank(), 5);
    expect_same(packaged->run({{x}})[0], right(x));
    world.barrier();
    TUTTI_CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1, "files are left");
    world.barrier();
  });
}

// The function calls the groups in another order than they are listed: the failing rank must not wait in one of them.
TEST(PackagingRanksOfTwoGroups, HearOfTheOneThatFailsInWhicheverOrderTheyCall) {
  const TemporaryFolder folder;
  run_apart("threads", 2, [&](ProcessGroup& world) {
    const auto part = world.split({0, 1}, {.name = "part"});
    part->set_timeout(kDeadline), world.set_timeout(kDeadline);
    const auto both = [&](const Tensor& x) {
      return functional::all_reduce(functional::all_reduce(x, "sum", world), "max", *part);
    };
    const auto start = std::chrono::steady_clock::now();
    for (const bool world_first : {true, false}) {
      PackageOptions options = options_for(world, "f");
      if (world_first) options.groups.push_back(rank_group(part));
      else options.groups.insert(options.groups.begin(), rank_group(part));
      const std::string file = file_of(folder.path(), "f", world);
      for (const bool at_once : {true, false}) {
        const auto fn = [&](const Tensor& x) {
          if (world.rank() == 0) return both(x);
          const Tensor y = at_once ? x : functional::all_reduce(x, "sum", world);
          if (y.numel() > 0) throw UsageError("nothing works");
          return y;
        };
        const std::string text = error_of<UsageError>([&] { package(file, fn, options, values({4, 4}, 0, 1)); });
        require_has(text, "nothing works");
        TUTTI_CHECK((text == "nothing works") == (world.rank() == 1), "'{}'", text);
      }
      package(file, both, options, values({4, 4}, 0, 1));
    }
    TUTTI_CHECK(std::chrono::steady_clock::now() - start < kDeadline / 2, "rank {} has waited", world.rank());
  });
}

}  // namespace
}  // namespace tutti::comm::packaged
