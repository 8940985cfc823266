// comm_ms and the timeline of the report know what ranks that divide products, experts and parameters exchange in
// forward and backward.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

struct Layout {
  const char *name, *flags;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
struct ExchangeTime : testing::TestWithParam<Layout> {};

#define EVERY_ROUND " --parallelism.data_parallel_schedule=every_round"
constexpr Layout kLayouts[] = {
    {"Tp2", "-n 2 --model.flavor=tiny-tp4 --parallelism.tensor_parallel_degree=2"},
    {"Tp2Compiled", "-n 2 --model.flavor=tiny-tp4 --parallelism.tensor_parallel_degree=2 --training.compile=true"},
    {"Tp2Async",
     "-n 2 --model.flavor=tiny-tp4 --parallelism.tensor_parallel_degree=2 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true"},
    {"Ep2", "-n 2 --model.flavor=tiny_moe-tp4 --parallelism.expert_parallel_degree=2" EVERY_ROUND},
    {"Ep2Store",
     "-n 2 --model.flavor=tiny_moe-tp4 --parallelism.expert_parallel_degree=2 "
     "--parallelism.expert_parallel_comm_backend=direct_store" EVERY_ROUND},
    {"Tp2Experts", "-n 2 --model.flavor=tiny_moe-tp4 --parallelism.tensor_parallel_degree=2" EVERY_ROUND},
};
INSTANTIATE_TEST_SUITE_P(Of, ExchangeTime, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ExchangeTime, IsInTheMetricsAndInTheTimeline) {
  Workplace work;
  work.write("corpus.jsonl", synthetic_corpus(20, 200));
  ASSERT_EQ(
      work.tutti(std::string(
                     "train " TUTTI_SOURCE_DIR "/configs/quickstart.toml --data corpus.jsonl --data.tokenizer=byte "
                     "--data.sequence_length=256 --training.global_batch_tokens=2048 "
                     "--training.steps=2 --lr_scheduler.warmup_steps=1 --validation.every=0 "
                     "--validation.sample_tokens=0 --numerics.token_grain=64 --runtime.threads=1 --run.name=run ") +
                 GetParam().flags)
          .status,
      0)
      << work.read("err.txt");
  const std::string report = work.read("runs/run/report.html");
  // These are the times of rank 0 in step 2: forward and backward, reduction, optimizer, unshard, waiting, exchange.
  const std::string head = "<tr><th>rank 0</th>", cell = "<td";
  std::vector<double> ms;
  const size_t begin = report.rfind(head), end = report.find("</tr>", begin);
  ASSERT_NE(begin, std::string::npos);
  for (size_t at = report.find(cell, begin); at < end; at = report.find(cell, at + 1))
    ms.push_back(std::stod(report.substr(report.find('>', at) + 1)));
  ASSERT_EQ(ms.size(), 6U) << "the report has no time of exchanges";
  const double shards = ms[0], exchange = ms[5], in_calls = std::stod(work.metric("run", "comm_ms").back()),
               step = std::stod(work.metric("run", "step_ms").back());
  EXPECT_GT(exchange, 0);
  EXPECT_LE(exchange, in_calls + 0.1);
  EXPECT_LE(in_calls, step);
  // Forward and backward have hundreds of exchanges, of which the report shows the longest.
  size_t spans = 0;
  for (size_t at = report.find("rank 0: exchange"); at != std::string::npos;
       at = report.find("rank 0: exchange", at + 1))
    ++spans;
  EXPECT_GT(spans, 20U);
  EXPECT_GT(shards, 0);
}

}  // namespace
}  // namespace tutti::test
