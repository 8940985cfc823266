#include "tutti/train/report/report_facts.h"

#include <gtest/gtest.h>

#include "tests/train/support/temp_folder.h"
#include "tutti/core/error.h"

namespace tutti::train {
namespace {

ReportFacts example() {
  ReportFacts facts{.memory = {{"activations", "41.2 MiB (62 %)"}, {"peak", "66.4 MiB"}},
                    .ranks = std::vector<RankMemoryBars>(2),
                    .timeline = StepTimeline{.step = 7, .ranks = 2, .spans = {}, .dropped = 3},
                    .samples = {{500, "a \"quoted\" day\n"}, {1000, "a year"}}};
  facts.ranks[1].planned.fill(3);
  facts.ranks[1].measured.fill(int64_t{1} << 40);
  for (int kind = 0; kind < kNumStepSpanKinds; ++kind)
    facts.timeline->spans.push_back({kind % 2, static_cast<StepSpanKind>(kind), 0.1 * kind, 12.5});
  return facts;
}

TEST(ReportFacts, ComeBackAsTheyWere) {
  for (const ReportFacts& facts : {ReportFacts{}, example()}) {
    const std::string json = to_json(facts);
    const ReportFacts back = parse_report_facts(json, "here");
    EXPECT_EQ(to_json(back), json);
    EXPECT_EQ(back.timeline.has_value(), facts.timeline.has_value());
    EXPECT_EQ(back.memory, facts.memory);
    ASSERT_EQ(back.ranks.size(), facts.ranks.size());
    for (size_t r = 0; r < back.ranks.size(); ++r) EXPECT_EQ(back.ranks[r].measured, facts.ranks[r].measured);
  }
}

TEST(ReportFacts, AreNoneWithoutAFile) {
  const TempFolder folder;
  EXPECT_TRUE(read_report_facts(folder / "report.json").memory.empty());
}

TEST(ReportFacts, OfOtherProgramsAreRefusedByName) {
  const std::string good = to_json(example());
  const std::pair<std::string, std::string> changes[] = {{"\"kind\":5", "\"kind\":6"}, {"\"rank\":1", "\"rank\":2"},
                                                         {"[3,3,3,", "[3,3,"},         {"[3,3,3,", "[3,-3,3,"},
                                                         {"\"step\":7", "\"step\":0"}, {"\"samples\"", "\"sample\""}};
  for (const auto& [from, to] : changes) {
    std::string text = good;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    try {
      parse_report_facts(text, "report.json");
      ADD_FAILURE() << to << " was taken";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("report.json"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tutti::train
