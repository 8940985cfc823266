#include "tutti/train/report/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/support/temp_folder.h"

namespace tutti::train {
namespace {

Report example() {
  Report report{.title = "quickstart",
                .config = {},
                .records = {},
                .baseline = 3.2,
                .model = {{"parameters", "2,883,584"}},
                .machine = {{"CPU", "eight-bit"}},
                .facts = {.memory = {{"activations", "41.2 MiB (62 %)"}},
                          .samples = {{500, "The word of the day"}, {1000, "The word of the year"}}}};
  for (int64_t step = 1; step <= 1000; ++step) {
    const double x = static_cast<double>(step);
    StepRecord record{.step = step,
                      .loss = static_cast<float>(1.3 + 4.3 * std::exp(-x / 150) + 0.08 * std::sin(x * 12.9898)),
                      .grad_norm = 0.6 + 3 * std::exp(-x / 60) + 0.15 * std::sin(x * 78.233),
                      .lr = 1e-3 * std::min(x / 100, 1 - (x - 100) / 950),
                      .items_seen = 8192 * step,
                      .items_per_s = 61000 + 1800 * std::sin(x * 3.7),
                      .step_ms = 134,
                      .memory_peak_bytes = 700 << 20};
    if (step % 100 == 0) record.val_bits_per_byte = 2.0 + 3.0 * std::exp(-x / 250);
    report.records.push_back(record);
  }
  return report;
}

TEST(Report, LoadsNothingFromElsewhere) {
  const std::string html = render_report(example());
  for (const char* forbidden : {"http://", "https://", "src=", "<link", "url(", "@import", "<script"}) {
    EXPECT_EQ(html.find(forbidden), std::string::npos) << forbidden;
  }
}

TEST(Report, ShowsAllPlots) {
  const std::string html = render_report(example());
  for (const char* title :
       {"Train loss", "Validation", "Learning rate", "Gradient norm", "Throughput", "Time per step"}) {
    EXPECT_NE(html.find("aria-label=\"" + std::string(title)), std::string::npos) << title;
  }
  EXPECT_NE(html.find("order-2 byte model 3.200"), std::string::npos);
}

TEST(Report, TellsHowFarBelowTheOrder2ModelItIs) {
  EXPECT_NE(render_report(example()).find("1.145 below an order-2 model"), std::string::npos);
}

TEST(Report, ShowsConfigurationMachineMemoryAndNewestSampleFirst) {
  const std::string html = render_report(example());
  EXPECT_NE(html.find("<th>global_batch_tokens</th><td>8192</td>"), std::string::npos);
  EXPECT_NE(html.find("<th>CPU</th><td>eight-bit</td>"), std::string::npos);
  EXPECT_NE(html.find("<th>activations</th><td>41.2 MiB (62 %)</td>"), std::string::npos);
  EXPECT_LT(html.find("The word of the year"), html.find("The word of the day"));
}

TEST(Report, TellsOfRanksThatWereLost) {
  EXPECT_EQ(render_report(example()).find("Ranks that were lost"), std::string::npos);
  Report report = example();
  report.records[16].lost_ranks = {{.rank = 2, .pid = 4711, .host = "host7", .step = 17, .seconds_lost = 0.214}};
  EXPECT_NE(render_report(report).find("<th>rank 2, in step 17</th><td>pid 4711 on host7; 0.21 s lost</td>"),
            std::string::npos);
}

// A table of more than two columns becomes a list where it would be too wide, with the name of each number beside it.
TEST(Report, HasTablesThatFitAPhone) {
  Report report = example();
  report.facts.timeline = StepTimeline{.step = 2,
                                       .ranks = 2,
                                       .spans = {{0, StepSpanKind::wait, 0, 1}, {1, StepSpanKind::optimizer, 0, 1}},
                                       .dropped = 0};
  const std::string html = render_report(report);
  int tables = 0;
  for (size_t at = html.find("<table"); at != std::string::npos; at = html.find("<table", at + 1), ++tables) {
    const std::string table = html.substr(at, html.find("</table>", at) - at);
    const bool becomes_a_list = table.starts_with("<table class=\"spans\">");
    for (size_t row = table.find("<tr>"); row != std::string::npos; row = table.find("<tr>", row + 1)) {
      const std::string cells = table.substr(row, table.find("</tr>", row) - row);
      size_t count = 0, named = 0;
      for (size_t cell = cells.find("<td"); cell != std::string::npos; cell = cells.find("<td", cell + 1))
        ++count, named += cells.substr(cell, 15) == "<td data-name=\"";
      EXPECT_TRUE(count <= 1 || (becomes_a_list && named == count)) << cells;
    }
  }
  EXPECT_GT(tables, 8);
  EXPECT_NE(html.find("@media(max-width:640px)"), std::string::npos);
  EXPECT_NE(html.find(".spans td::before{content:attr(data-name)"), std::string::npos);
}

TEST(Report, TellsThePeakInAUnitThatFits) {
  Report report = example();
  EXPECT_NE(render_report(report).find("peak memory 700.0 MiB"), std::string::npos);
  report.records.back().memory_peak_bytes = 300'000;
  EXPECT_NE(render_report(report).find("peak memory 293.0 KiB"), std::string::npos);
}

TEST(Report, EscapesWhatItIsGiven) {
  Report report = example();
  report.title = "<script>1</script>";
  report.facts.samples = {{1, "<b>&"}};
  report.machine = {{"<i>", "\"'"}};
  report.config.run.name = "<u>";
  const std::string html = render_report(report);
  for (const char* raw : {"<script>", "<b>&", "<i>\"", "<u>"}) EXPECT_EQ(html.find(raw), std::string::npos) << raw;
}

TEST(Report, OfARunWithoutStepsIsAPage) {
  Report report = example();
  report.records.clear();
  EXPECT_NE(render_report(report).find("No step has been trained yet."), std::string::npos);
}

TEST(Report, IsWrittenAsAFile) {
  const TempFolder folder;
  write_report(folder / "report.html", example());
  EXPECT_EQ(contents_of(folder / "report.html"), render_report(example()));
}

TEST(Displayable, KeepsTextAndLineBreaks) { EXPECT_EQ(displayable("a\n\tü€😀"), "a\n\tü€😀"); }

TEST(Displayable, ReplacesWhatIsNoText) {
  EXPECT_EQ(displayable("a\xff\xc3"), "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(displayable("\xed\xa0\x80").substr(0, 3), "\xef\xbf\xbd");
  EXPECT_EQ(displayable("\xc0\x80").substr(0, 3), "\xef\xbf\xbd");
  EXPECT_EQ(displayable(std::string("x\0y\x1b", 4)), "x\xc2\xb7y\xc2\xb7");
}

}  // namespace
}  // namespace tutti::train
