// Measured costs: their file, what they change, and that all ranks of a mesh use the same ones.
#include "tutti/dist/cost_model.h"

#include <cstdlib>
#include <fstream>
#include <optional>

#include "tests/comm/support/forked_ranks.h"
#include "tests/dtensor/support/mesh_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/dist/explain.h"
#include "tutti/dist/redistribute.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::dist {
namespace {

// Sets a variable of the environment while it lives. No ranks run when it changes.
class Variable {
 public:
  explicit Variable(const std::string& value) { setenv("TUTTI_DTENSOR_COSTS", value.c_str(), 1); }
  ~Variable() { unsetenv("TUTTI_DTENSOR_COSTS"); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
};

// What the statement says when it throws, whatever it throws.
std::string error_of(const std::function<void()>& statement) {
  try {
    statement();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string written(const testing::TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder / "costs";
  std::ofstream(path) << text;
  return path;
}

// Reductions over several mesh dims at once cost as much as a hundred of one dim.
constexpr const char* kDearWideReductions =
    "# transport step ranks latency_us bytes_per_us\n"
    "threads gather 2 1 1000\n"
    "threads exchange 2 1 1000\n"
    "threads all_reduce 2 1 1000\n"
    "threads all_reduce 4 200 1000   # seen on this machine\n"
    "\n"
    "threads reduce_scatter 2 1 1000\n";

TEST(MeasuredCosts, AreWhatTheirTextSays) {
  const MeasuredCosts costs = MeasuredCosts::parse(kDearWideReductions);
  EXPECT_EQ(costs.size(), 5u);
  EXPECT_EQ(MeasuredCosts::parse(costs.to_text()).to_text(), costs.to_text());
  EXPECT_EQ(costs.find("threads", StepKind::all_reduce, 2)->latency, 1);
  EXPECT_EQ(costs.find("threads", StepKind::all_reduce, 4)->latency, 200);
  EXPECT_EQ(costs.find("threads", StepKind::all_reduce, 3)->latency, 200) << "of two as near, the one of more ranks";
  EXPECT_EQ(costs.find("threads", StepKind::all_reduce, 64)->latency, 200);
  EXPECT_EQ(costs.find("shm", StepKind::gather, 2), nullptr);
  const CostModel model{
      .tabulated = {7, 1}, .transports = {"threads", "shm"}, .measured = std::make_shared<const MeasuredCosts>(costs)};
  EXPECT_EQ(model.of(StepKind::gather, 2, 1000), std::max(1 + 1.0, cost_model("shm").of(StepKind::gather, 2, 1000)))
      << "the slowest transport, from the table where it was not measured";
  EXPECT_EQ(model.of(StepKind::gather, 1, 1000), 0);
}

TEST(MeasuredCosts, DamagedTextsAreRefused) {
  const auto refused = [](const std::string& text, const char* part) {
    EXPECT_USAGE_ERROR(MeasuredCosts::parse(text), part);
  };
  refused("", "there are none; `tutti bench comm --costs FILE` measures them");
  refused("# nothing\n", "there are none");
  refused("shm gather 2 1\n", "line 1: 'shm gather 2 1'; expected: transport step ranks latency_us bytes_per_us");
  refused("\nshm gathr 2 1 1\n", "line 2: unknown step 'gathr'");
  refused("shm cut 2 1 1\n", "line 1: unknown step 'cut'");
  refused("shm gather two 1 1\n", "line 1: the number of ranks 'two' is no number");
  refused("shm gather 1 1 1\n", "line 1: 1 ranks; a step takes two or more");
  refused("shm gather 2 -1 1\n", "expected a latency of at least 0");
  refused("shm gather 2 1 0\n", "0 bytes per us");
  refused("shm gather 2 nan 1\n", "line 1: the latency 'nan' is no number");
  refused("shm gather 2 1 inf\n", "line 1: the bandwidth 'inf' is no number");
  refused("shm gather 2 1e999 1\n", "line 1: the latency '1e999' is no number");
  refused("shm gather 99999999999999999999 1 1\n", "is no number");
  refused("shm gather 2 1 1\nshm gather 2 1 1\n", "line 2: shm gather over 2 ranks stands twice");
  refused(std::string("\0\xff\x80 junk", 7), "line 1");
}

TEST(MeasuredCosts, ChangeThePlan) {
  const testing::TemporaryFolder folder;
  const auto plan_here = [] {
    std::string text;
    on_mesh({2, 2}, [&](const Mesh& mesh) {
      const Tensor t = from_local(sample({8, 8}), mesh, {partial(), partial()});
      const RedistributePlan plan =
          plan_redistribution(spec_of(t), spec_of(t).with({replicate(), replicate()}), cost_model_of(*mesh));
      require_none(difference(full_tensor(t), full_tensor(redistribute(t, {replicate(), replicate()}))), "the sum");
      if (mesh->rank() == 0) text = plan.to_string() + "\n" + cost_model_of(*mesh).to_string();
    });
    return text;
  };
  const std::string tabulated = plan_here();
  EXPECT_NE(tabulated.find("all_reduce over mesh dim 0, 1"), std::string::npos) << tabulated;
  EXPECT_NE(tabulated.find("tabulated for threads"), std::string::npos) << tabulated;
  const Variable costs(written(folder, kDearWideReductions));
  const std::string measured = plan_here();
  EXPECT_EQ(measured.find("all_reduce over mesh dim 0, 1"), std::string::npos) << measured;
  EXPECT_NE(measured.find("all_reduce over mesh dim 1"), std::string::npos) << measured;
  EXPECT_NE(measured.find("measured for threads (5 rows)"), std::string::npos) << measured;
}

TEST(MeasuredCosts, ExplanationsSayWhichWereUsed) {
  const testing::TemporaryFolder folder;
  const ShardingQuestion question{.op = "exp", .mesh = {2, 2}, .inputs = {"[8,8]@[P,P]"}, .transport = "threads"};
  const std::string tabulated = explain_sharding(question);
  EXPECT_NE(tabulated.find("costs: tabulated for threads\n"), std::string::npos) << tabulated;
  ShardingQuestion measured = question;
  measured.costs = written(folder, kDearWideReductions);
  const std::string said = explain_sharding(measured);
  EXPECT_NE(said.find("costs: measured for threads (5 rows)\n"), std::string::npos) << said;
  measured.costs = folder / "absent";
  EXPECT_NE(error_of([&] { explain_sharding(measured); }).find("absent"), std::string::npos);
}

// Every rank hears what is wrong with the file of the first: none waits for it.
TEST(MeasuredCosts, AFileThatCannotBeUsedIsAnErrorOnAllRanks) {
  const testing::TemporaryFolder folder;
  const auto errors_with = [](const std::string& path) {
    const Variable costs(path);
    std::vector<std::string> said(4);
    comm::run_ranks(4, [&](comm::ProcessGroup& world) {
      said[static_cast<size_t>(world.rank())] = error_of([] { init_device_mesh("cpu", {2, 2}); });
    });
    return said;
  };
  for (const std::string& said : errors_with(folder / "absent"))
    EXPECT_NE(said.find("TUTTI_DTENSOR_COSTS: "), std::string::npos) << said;
  for (const std::string& said : errors_with(written(folder, "shm gather 2\n")))
    EXPECT_NE(said.find("costs: measured costs, line 1: 'shm gather 2'; expected"), std::string::npos) << said;
}

// As where a launcher passes the variable on to some hosts only.
TEST(MeasuredCosts, AreThoseOfTheFirstRankWhoeverElseNamesAFile) {
  const testing::TemporaryFolder folder;
  const std::string path = written(folder, kDearWideReductions);
  RankContext::current().set_threads(0);  // ends the pool: processes are forked from one without other threads
  for (const int named_by : {0, 1}) {
    const auto results = comm::run_world(
        2,
        [&](comm::ProcessGroup& world) {
          std::optional<Variable> costs;
          if (world.rank() == named_by) costs.emplace(path);
          const Mesh mesh = init_device_mesh("cpu", {2});
          const Tensor sum = full_tensor(from_local(Tensor::of<float>({1.0f}), mesh, {partial()}));
          TUTTI_CHECK(sum.data<float>()[0] == 2.0f, "the sum is {}", sum.data<float>()[0]);
          const bool is_measured = cost_model_of(*mesh).measured != nullptr;
          TUTTI_CHECK(is_measured == (named_by == 0), "rank {} says measured: {}", world.rank(), is_measured);
        },
        {.limit = std::chrono::seconds(30)});
    for (const comm::ForkedResult& rank : results) EXPECT_TRUE(rank.succeeded()) << rank.error;
  }
}

}  // namespace
}  // namespace tutti::dist
