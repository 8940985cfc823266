#include "tutti/train/report/expert_plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/support/message_of.h"

namespace tutti::train {
namespace {

std::vector<StepRecord> records(int64_t steps) {
  std::vector<StepRecord> list;
  for (int64_t s = 1; s <= steps; ++s)
    list.push_back({.step = s,
                    .experts = {{.layer = 0, .tokens = {0, 8, 8, 8}},
                                {.layer = 1, .tokens = {20, 2, 1, 1}, .bias_min = -0.5f, .bias_max = 0.25f}}});
  return list;
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(LoadClass, IsThatOfTokensOverTheMean) {
  EXPECT_EQ(load_class(0, 8), 0);
  EXPECT_EQ(load_class(0, 0), 0);
  const std::pair<int64_t, int> rows[] = {{1, 1},   {24, 1},  {25, 2},  {49, 2},  {50, 3},  {80, 4},  {100, 4},
                                          {124, 4}, {125, 5}, {199, 5}, {200, 6}, {399, 6}, {400, 7}, {100000, 7}};
  for (const auto& [tokens, expected] : rows) EXPECT_EQ(load_class(tokens, 100), expected) << tokens;
}

TEST(ExpertPlot, HasAMapForEachStepAndASliderWithoutAScript) {
  const std::string html = render_expert_loads(records(3));
  EXPECT_EQ(count_of(html, "<input type=\"radio\""), 3u);
  EXPECT_EQ(count_of(html, "<svg"), 3u);
  EXPECT_EQ(count_of(html, " checked>"), 1u) << "the last step is shown first";
  EXPECT_EQ(html.find("<script"), std::string::npos);
  // Layer 0: no token for expert 0, 4/3 of the mean for the others. Layer 1: 20, 2, 1, 1 by a mean of 6.
  EXPECT_NE(html.find("<path class=\"heat0\" d=\"M0 0h10v9h-10z\"/>"), std::string::npos) << html;
  EXPECT_NE(html.find("<path class=\"heat5\" d=\"M10 0h30v9h-30z\"/>"), std::string::npos) << html;
  EXPECT_NE(html.find("<path class=\"heat6\" d=\"M0 10h10v9h-10z\"/>"), std::string::npos) << html;
  EXPECT_NE(html.find("step 2: at most 3.33 times the mean, 1 without a token"), std::string::npos) << html;
  EXPECT_EQ(render_expert_loads(std::vector<StepRecord>{{.step = 1}}), "") << "a dense model has no such part";
}

// Numbers of layers and experts, as large as other text of the page and without overlaps, for models of all sizes.
TEST(ExpertPlot, LabelsLayersAndExperts) {
  for (const auto& [layers, experts] :
       {std::pair<int64_t, size_t>{1, 2}, {2, 4}, {8, 64}, {48, 128}, {94, 128}, {94, 8}}) {
    StepRecord record{.step = 1};
    for (int64_t layer = 0; layer < layers; ++layer)
      record.experts.push_back({.layer = layer + 3, .tokens = std::vector<int64_t>(experts, 5)});
    const std::string html = render_expert_loads(std::vector<StepRecord>{record});
    EXPECT_NE(html.find(">layer</text>"), std::string::npos);
    EXPECT_NE(html.find(">expert</text>"), std::string::npos);
    EXPECT_NE(html.find("text-anchor=\"end\">3</text>"), std::string::npos) << "the first layer with experts";
    EXPECT_NE(html.find("text-anchor=\"middle\">0</text>"), std::string::npos);
    double left, top, width, height, font;
    ASSERT_EQ(
        std::sscanf(html.c_str() + html.find("viewBox="), "viewBox=\"%lf %lf %lf %lf\"", &left, &top, &width, &height),
        4);
    ASSERT_EQ(std::sscanf(html.c_str() + html.find("font-size="), "font-size=\"%lf\"", &font), 1);
    const double scale = std::min(1040 / width, 480 / height);  // as the page shows it
    EXPECT_GT(font * scale, 9) << layers << " x " << experts;
    EXPECT_LT(font * scale, 14) << layers << " x " << experts;
    const size_t rows = count_of(html, "text-anchor=\"end\"") - 2, columns = count_of(html, "text-anchor=\"middle\"");
    EXPECT_LE(static_cast<double>(rows) * font, static_cast<double>(layers) * 10 + font) << layers << " x " << experts;
    EXPECT_LE(static_cast<double>(columns) * 2 * font, static_cast<double>(experts) * 10 + 2 * font)
        << layers << " x " << experts;
  }
}

TEST(ExpertPlot, ShowsAtMostTwentyFourStepsTheFirstAndTheLastAmongThem) {
  const std::string html = render_expert_loads(records(1000));
  EXPECT_EQ(count_of(html, "<svg"), 24u);
  EXPECT_NE(html.find("<p>step 1:"), std::string::npos);
  EXPECT_NE(html.find("<p>step 1000:"), std::string::npos);
}

TEST(ExpertText, HasALineForEachLayerAndACharacterForEachExpert) {
  EXPECT_EQ(
      describe_expert_loads(records(1)[0]),
      "step 1\n"
      "layer  max/mean  entropy  starved      bias from         to  tokens by the mean, expert 0 first\n"
      "    0      1.33    0.792        1         0.0000     0.0000  _+++\n"
      "    1      3.33    0.450        0        -0.5000     0.2500  #:..\n"
      "\n"
      "_ none, . below 1/4, : 1/4 to 1/2, - 1/2 to 4/5, = 4/5 to 5/4 of the mean, + 5/4 to 2, # 2 to 4, @ 4 or more\n");
  EXPECT_EQ(message_of([] { describe_expert_loads({.step = 4}); }),
            "step 4 has no loads of experts: the model has none, or another version recorded the step");
}

}  // namespace
}  // namespace tutti::train
