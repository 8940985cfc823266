#include "tutti/runtime/trace/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/profiler.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti {
namespace {

using Json = nlohmann::json;

// The trace of what `body` does, as a reader sees it.
template <class Body>
Json traced(Body body, const ProfilerOptions& options = {}) {
  Profiler profiler;
  EXPECT_TRUE(profiler.start(options).ok());
  body();
  EXPECT_TRUE(profiler.stop().ok());
  return Json::parse(to_chrome_trace(profiler.trace()));
}

std::vector<Json> events(const Json& trace, const std::string& phase, const std::string& name = "") {
  std::vector<Json> found;
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("ph") == phase && (name.empty() || e.at("name") == name)) found.push_back(e);
  }
  return found;
}

TEST(ChromeTrace, HasTheHeadOfTheFormat) {
  RankContext context({.rank = 2, .world_size = 4});
  const RankContext::Scope scope(context);
  const Json trace = traced([] {}, {.name = "one step"});
  EXPECT_EQ(trace.at("schemaVersion"), 1);
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  EXPECT_EQ(trace.at("traceName"), "one step");
  EXPECT_GT(trace.at("baseTimeNanoseconds").get<int64_t>(), int64_t{1'600'000'000} * 1'000'000'000);
  EXPECT_EQ(trace.at("distributedInfo"), (Json{{"backend", "tutti"}, {"rank", 2}, {"world_size", 4}}));
  EXPECT_EQ(trace.at("tutti").at("droppedEvents"), 0);
  EXPECT_EQ(events(trace, "i", "Record Window End").size(), 1u);
}

TEST(ChromeTrace, CountsDropsInItsHead) {
  const Json trace = traced(
      [] {
        for (int i = 0; i < 10; ++i) trace_mark("moment");
      },
      {.events_per_thread = 3});
  EXPECT_EQ(trace.at("tutti").at("droppedEvents"), 7);
  EXPECT_EQ(events(trace, "i", "moment").size(), 3u);
}

TEST(ChromeTrace, AKernelEventCarriesItsProvenance) {
  const TraceKernel& kernel = intern_kernel({.kernel_id = "add_mul_77",
                                             .graph_key = "step_5f",
                                             .ops = {{"add", 3}, {"mul", 4}},
                                             .stack = {"model.cpp:12 (forward)"},
                                             .module_path = "layers.0",
                                             .phase = TracePhase::backward,
                                             .bytes = 64,
                                             .flops = 16,
                                             .choice = "vector 8",
                                             .specialization = "s0=128"});
  const Json trace = traced([&] {
    const TraceSpan fixed(TraceCategory::kernel, kernel);
    const TraceSpan sized(TraceCategory::extern_call, kernel, {.bytes = 3e9, .flops = 5e12});
  });
  const Json fixed = events(trace, "X").at(1), sized = events(trace, "X").at(0);
  EXPECT_EQ(fixed.at("cat"), "kernel");
  EXPECT_EQ(fixed.at("name"), "add_mul_77");
  EXPECT_EQ(sized.at("cat"), "extern");
  Json args = fixed.at("args");
  EXPECT_EQ(args.at("debug_handle").get<std::string>().substr(0, 11), "add_mul_77:");
  args.erase("debug_handle");
  EXPECT_EQ(
      args,
      Json::parse(
          R"j({"kernel_id": "add_mul_77", "graph_key": "step_5f", "ops": [{"name": "add", "node": 3}, {"name": "mul", "node": 4}],
      "stack": ["model.cpp:12 (forward)"], "module_path": "layers.0", "phase": "bwd", "bytes": 64, "flops": 16, "choice": "vector 8",
      "specialization": "s0=128"})j"));
  EXPECT_EQ(sized.at("args").at("bytes"), 3'000'000'000);
  EXPECT_EQ(sized.at("args").at("flops"), 5'000'000'000'000);
}

TEST(ChromeTrace, AKernelWithoutItsOwnPlaceHasThatOfTheRunningCode) {
  const TraceKernel& kernel = intern_kernel({.kernel_id = "exp_1", .ops = {{"exp"}}});
  const Json trace = traced([&] {
    const ModuleScope module("mlp");
    const PhaseScope phase(TracePhase::optimizer);
    const TraceSpan call(TraceCategory::kernel, kernel);
  });
  const Json args = events(trace, "X").at(0).at("args");
  EXPECT_EQ(args.at("module_path"), "mlp");
  EXPECT_EQ(args.at("phase"), "opt");
  EXPECT_EQ(args.at("stack").size(), 1u);
  EXPECT_EQ(args.at("graph_key"), "eager");
  EXPECT_EQ(args.at("ops"), Json::parse(R"([{"name": "exp"}])"));
}

TEST(ChromeTrace, TimesAreExactMicrosecondsSinceTheBase) {
  Profiler profiler;
  ASSERT_TRUE(profiler.start().ok());
  const int64_t now = trace_now_ns();
  TraceRecorder::record({.name = "span", .begin_ns = now + 1'234'567, .end_ns = now + 1'234'567 + 89'001});
  profiler.stop();
  const std::string text = to_chrome_trace(profiler.trace());
  EXPECT_NE(text.find("\"dur\": 89.001,"), std::string::npos) << text;
  const double ts = events(Json::parse(text), "X").at(0).at("ts").get<double>();
  EXPECT_NEAR(ts, static_cast<double>(now + 1'234'567 - profiler.trace().start_ns) / 1e3, 1e-3);
}

TEST(ChromeTrace, NamesAreEscaped) {
  const std::string hard = "quote \" backslash \\ newline \n tab \t bell \a umlaut \xc3\xa4 broken \xff end";
  const Json trace = traced([&] { const TraceSpan span(TraceCategory::annotation, intern_trace_name(hard)); });
  EXPECT_EQ(events(trace, "X").at(0).at("name"),
            "quote \" backslash \\ newline \n tab \t bell \a umlaut \xc3\xa4 broken \xef\xbf\xbd end");
}

TEST(ChromeTrace, MemoryIsAMomentAndACurve) {
  const Json trace = traced([] {
    TraceRecorder::record({.category = TraceCategory::memory,
                           .begin_ns = trace_now_ns(),
                           .text = "gradients",
                           .values = {4096, -64, 1000, 2000}});
  });
  EXPECT_EQ(
      events(trace, "i", "[memory]").at(0).at("args"),
      Json::parse(
          R"({"Addr": 4096, "Bytes": -64, "Total Allocated": 1000, "Total Reserved": 2000, "Device Type": 0, "Device Id": -1,
                            "Category": "gradients"})"));
  EXPECT_EQ(events(trace, "C", "memory").at(0).at("args"), Json::parse(R"({"allocated": 1000})"));
}

TEST(ChromeTrace, CallsOfAGroupThatOverlapStandInRowsOfTheirOwn) {
  const TraceGroup& group = intern_trace_group({.name = "dp", .description = "data parallel", .ranks = {0, 4}});
  const Json trace = traced([&] {
    const int64_t t = trace_now_ns();
    for (const auto& [begin, end] : {std::pair{0, 10}, std::pair{5, 20}, std::pair{12, 14}}) {
      TraceRecorder::record({.category = TraceCategory::collective,
                             .name = "all_reduce",
                             .begin_ns = t + begin,
                             .end_ns = t + end,
                             .group = &group,
                             .text = "f32",
                             .values = {8, 8, 7, -1}});
    }
  });
  const std::vector<Json> calls = events(trace, "X", "all_reduce");
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_NE(calls[0].at("tid"), calls[1].at("tid"));
  EXPECT_EQ(calls[0].at("tid"), calls[2].at("tid"));
  EXPECT_EQ(calls[0].at("cat"), "collective_comm");
  EXPECT_EQ(
      calls[0].at("args"),
      Json::parse(
          R"({"Collective name": "all_reduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "f32", "Group size": 2,
      "Process Group Name": "dp", "Process Group Description": "data parallel", "Process Group Ranks": [0, 4], "Seq": 7})"));
  std::vector<std::string> rows;
  for (const Json& e : events(trace, "M", "thread_name")) rows.push_back(e.at("args").at("name"));
  EXPECT_EQ(rows, (std::vector<std::string>{"group 'dp'", "group 'dp' (2)"}));
}

TEST(ChromeTrace, AnArrowLeadsFromAnOpToItsGradient) {
  const Json trace = traced([] {
    for (const TracePhase phase : {TracePhase::forward, TracePhase::backward}) {
      const PhaseScope scope(phase);
      TraceContext::current().sequence = 12;
      const TraceSpan op(TraceCategory::op, phase == TracePhase::forward ? "exp" : "mul");
      TraceContext::current().sequence = -1;
    }
  });
  const Json start = events(trace, "s").at(0), finish = events(trace, "f").at(0);
  EXPECT_EQ(start.at("id"), finish.at("id"));
  EXPECT_EQ(start.at("ts"), events(trace, "X", "exp").at(0).at("ts"));
  EXPECT_EQ(finish.at("ts"), events(trace, "X", "mul").at(0).at("ts"));
  EXPECT_EQ(finish.at("bp"), "e");
  EXPECT_EQ(events(trace, "X", "exp").at(0).at("args").at("Sequence number"), 12);
}

TEST(ChromeTrace, TheFileIsWrittenWholeIntoAFolderThatIsMade) {
  testing::TemporaryFolder folder;
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.path = folder / "new/trace.json"}).ok());
  for (int i = 0; i < 20'000; ++i) trace_mark("moment");  // more than one piece
  const ProfilerStatus status = profiler.stop();
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(events(Json::parse(testing::read_whole_file(folder / "new/trace.json")), "i", "moment").size(), 20'000u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "new"), std::filesystem::directory_iterator()),
            1);
}

}  // namespace
}  // namespace tutti
