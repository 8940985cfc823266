#include "tutti/codegen/choice/options.h"

#include <gtest/gtest.h>

#include "tutti/core/error.h"

namespace tutti::codegen::choice {
namespace {

std::string message(std::string_view text) {
  try {
    (void)parse_choice_options(text, "TUTTI_X");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ChoiceOptions, AreReadFromText) {
  EXPECT_EQ(parse_choice_options("", "TUTTI_X"), ChoiceOptions{});
  EXPECT_EQ(parse_choice_options("measure", "TUTTI_X").mode, ChoiceMode::measure);
  const ChoiceOptions options =
      parse_choice_options("measure,max_candidates=3,samples=9,budget_ms=20,memo_entries=7,seed=11", "TUTTI_X");
  EXPECT_EQ(options, (ChoiceOptions{.mode = ChoiceMode::measure,
                                    .max_candidates = CandidateLimit::at_most(3),
                                    .samples = 9,
                                    .budget_ms = 20,
                                    .memo_entries = 7,
                                    .seed = 11}));
}

TEST(ChoiceOptions, PrintWhatTheyRead) {
  const std::string text =
      "mode=measure,deterministic=true,max_candidates=all,samples=5,budget_ms=500,memo_entries=4096,seed=3";
  EXPECT_EQ(to_text(parse_choice_options(text, "TUTTI_X")), text);
}

TEST(ChoiceOptions, DeterministicNeverMeasures) {
  EXPECT_TRUE(parse_choice_options("measure", "TUTTI_X").may_measure());
  EXPECT_FALSE(parse_choice_options("measure,deterministic=true", "TUTTI_X").may_measure());
  EXPECT_FALSE(ChoiceOptions{}.may_measure());
}

TEST(ChoiceOptions, AllIsAWordAndNoNumber) {
  EXPECT_EQ(parse_choice_options("max_candidates=all", "TUTTI_X").max_candidates, CandidateLimit::all());
  EXPECT_EQ(CandidateLimit::all().of(390000), 390000);
  EXPECT_EQ(CandidateLimit::at_most(10).of(390000), 10);
  EXPECT_EQ(message("max_candidates=0"), "TUTTI_X: max_candidates=0: expected a whole number from 1, or all");
  EXPECT_THROW((void)CandidateLimit::at_most(0), UsageError);
}

TEST(ChoiceOptions, UnknownNamesListTheLegalOnes) {
  const std::string text = message("max_candidate=3");
  EXPECT_NE(text.find("TUTTI_X: unknown option of a choice 'max_candidate'; did you mean 'max_candidates'?"),
            std::string::npos)
      << text;
  for (const char* name : {"mode", "deterministic", "max_candidates", "samples", "budget_ms", "memo_entries", "seed"})
    EXPECT_NE(text.find(name), std::string::npos) << text;
}

TEST(ChoiceOptions, IllegalValuesSayWhatIsLegal) {
  EXPECT_EQ(message("fast"), "TUTTI_X: mode=fast: expected heuristic or measure");
  EXPECT_EQ(message("deterministic=1"), "TUTTI_X: deterministic=1: expected true or false");
  EXPECT_EQ(message("samples=many"), "TUTTI_X: samples=many: expected a whole number from 1");
  EXPECT_EQ(message("budget_ms=-5"), "TUTTI_X: budget_ms=-5: expected milliseconds, a whole number from 1");
  EXPECT_EQ(message("seed=99999999999999999999"), "TUTTI_X: seed=99999999999999999999: expected a whole number from 0");
}

}  // namespace
}  // namespace tutti::codegen::choice
