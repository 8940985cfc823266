#include "tutti/codegen/choice/engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace tutti::codegen::choice {
namespace {

using tutti::testing::TemporaryFolder;

Signature call_of(int64_t m, int64_t n = 64) {
  const TensorSignature t = tensor_signature(DType::f32, std::array{m, n}, std::array{n, int64_t{1}}, nullptr);
  return {.op = "test", .operands = {t, t, t}, .epilogue = {}};
}

std::vector<int> numbers(int count) {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Candidates 0, 1, 2, ...; the heuristic takes the smallest that the predicates leave.
ChoiceRules<int> rules_of(std::vector<Predicate<int>> predicates) {
  return {.predicates = std::move(predicates),
          .classify = [](const int&, const Signature&) { return 0; },
          .cost = [](const int& candidate, const Signature&) { return candidate; },
          .name = [](const int& candidate) { return fmt::format("candidate {}", candidate); }};
}

ChoiceEngine<int> engine_of(int count, std::vector<Predicate<int>> predicates = {}, const ChoiceOptions& options = {},
                            WinnerStore* store = nullptr) {
  return {[count](const BucketKey&) { return numbers(count); }, rules_of(std::move(predicates)), options, store};
}

const ChoiceOptions kMeasure{.mode = ChoiceMode::measure, .max_candidates = CandidateLimit::all()};

const auto never_run = [](const int&) -> double { throw std::logic_error("a candidate was run"); };

// Candidate 5 is the fastest.
const auto fifth_is_fastest = [](const int& candidate) { return candidate == 5 ? 10.0 : 100.0 + candidate; };

TEST(ChoiceEngine, CallsThePredicateOncePerCandidateAndNeverAgain) {
  auto engine = engine_of(
      390000, {{"multiple of 1000", [](int candidate, const Signature&) { return candidate % 1000 == 999; }}});
  EXPECT_EQ(engine.choose(call_of(8), never_run), 999);
  EXPECT_EQ(engine.statistics().all_predicate_calls(), 390000);
  EXPECT_EQ(engine.statistics().classified, 390);
  EXPECT_EQ(engine.choose(call_of(8), never_run), 999);
  EXPECT_EQ(engine.partition(call_of(8))->classes[0].size(), 390u);
  EXPECT_EQ(engine.statistics().all_predicate_calls(), 390000);
  EXPECT_EQ(engine.statistics().passes, 1);
  EXPECT_EQ(engine.statistics().memo_hits, 1);
}

TEST(ChoiceEngine, AsksDearPredicatesOnlyWhatTheCheapOnesLeave) {
  auto engine = engine_of(1000, {{"cheap", [](int candidate, const Signature&) { return candidate < 100; }},
                                 {"dear", [](int candidate, const Signature&) { return candidate % 10 == 3; }}});
  EXPECT_EQ(engine.choose(call_of(8), never_run), 3);
  const auto calls = engine.statistics().predicate_calls;
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0], (std::pair<std::string, int64_t>("cheap", 1000)));
  EXPECT_EQ(calls[1], (std::pair<std::string, int64_t>("dear", 100)));
}

TEST(ChoiceEngine, SortsIntoClassesInOnePass) {
  ChoiceRules<int> rules = rules_of({});
  rules.classify = [](int candidate, const Signature&) { return candidate % 3 - 1; };  // a third is dropped
  ChoiceEngine<int> engine([](const BucketKey&) { return numbers(9); }, rules, {});
  Signature call = call_of(8);
  call.classes = 2;
  const auto found = engine.partition(call);
  EXPECT_EQ(found->classes, (std::vector<std::vector<uint32_t>>{{1, 4, 7}, {2, 5, 8}}));
  EXPECT_EQ(engine.statistics().classified, 9);
}

TEST(ChoiceEngine, LooksAtNoOtherBucket) {
  std::vector<BucketKey> made;
  ChoiceEngine<int> engine(
      [&](const BucketKey& key) { return made.push_back(key), numbers(key.a == DType::f32 ? 10 : 20); },
      rules_of({{"any", [](int, const Signature&) { return true; }}}), {});
  (void)engine.partition(call_of(8));
  (void)engine.partition(call_of(9));
  EXPECT_EQ(made.size(), 1u);
  EXPECT_EQ(engine.statistics().all_predicate_calls(), 20);
  Signature other = call_of(8);
  other.operands[0].dtype = DType::bf16;
  (void)engine.partition(other);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[1].a, DType::bf16);
  EXPECT_EQ(engine.statistics().all_predicate_calls(), 40);
}

TEST(ChoiceEngine, TellsCallsApartByTheTensorsOfTheEpilogue) {
  auto engine = engine_of(10, {{"any", [](int, const Signature&) { return true; }}});
  Signature call = call_of(8);
  call.epilogue = {{"add", {tensor_signature(DType::f32, std::array{int64_t{64}}, std::array{int64_t{1}}, nullptr)}}};
  (void)engine.choose(call, never_run);
  for (const auto& change : std::vector<void (*)(TensorSignature&)>{[](TensorSignature& t) { t.strides[0] = 2; },
                                                                    [](TensorSignature& t) { t.dtype = DType::bf16; },
                                                                    [](TensorSignature& t) { t.sizes[0] = 1; }}) {
    Signature other = call;
    change(other.epilogue[0].tensors[0]);
    const int64_t before = engine.statistics().passes;
    (void)engine.choose(other, never_run);
    EXPECT_EQ(engine.statistics().passes, before + 1);
    EXPECT_NE(other.hash(), call.hash());
    EXPECT_NE(other.key(), call.key());
  }
  Signature without = call;
  without.epilogue[0].tensors.clear();
  EXPECT_NE(without.key(), call.key());
}

TEST(ChoiceEngine, MeasuresAndKeepsTheFastest) {
  auto engine = engine_of(10, {}, kMeasure);
  EXPECT_EQ(engine.choose(call_of(8), fifth_is_fastest), 5);
  EXPECT_EQ(engine.statistics().measured, 10);
  EXPECT_EQ(engine.choose(call_of(8), never_run), 5);
}

TEST(ChoiceEngine, MeasuresTheFirstOfTheRankingOnly) {
  ChoiceOptions options = kMeasure;
  options.max_candidates = CandidateLimit::at_most(3);
  auto engine = engine_of(10, {}, options);
  int largest = 0;
  const auto run = [&](const int& candidate) {
    largest = std::max(largest, candidate);
    return 100.0 - 20 * candidate;
  };
  EXPECT_EQ(engine.choose(call_of(8), run), 2);
  EXPECT_EQ(largest, 2);
}

TEST(ChoiceEngine, StaysWithTheHeuristicWhenTheGainIsNoise) {
  auto engine = engine_of(10, {}, kMeasure);
  EXPECT_EQ(engine.choose(call_of(8), [](const int& candidate) { return candidate == 4 ? 98.5 : 100.0; }), 0);
}

TEST(ChoiceEngine, LeavesOutWhatCannotRun) {
  auto engine = engine_of(3, {}, kMeasure);
  EXPECT_EQ(engine.choose(
                call_of(8),
                [](const int& candidate) { return candidate == 2 ? 50.0 : std::numeric_limits<double>::infinity(); }),
            2);
}

TEST(ChoiceEngine, DeterministicModeNeverRunsACandidate) {
  ChoiceOptions options = kMeasure;
  options.deterministic = true;
  const TemporaryFolder folder;
  WinnerStore store(folder / "cache", "machine");
  ChoiceEngine<int> measuring = engine_of(10, {}, kMeasure, &store), engine = engine_of(10, {}, options, &store);
  EXPECT_EQ(measuring.choose(call_of(8), fifth_is_fastest), 5);
  EXPECT_EQ(engine.choose(call_of(8), never_run), 0);  // nor follows timings of an earlier process
  EXPECT_EQ(engine.statistics().measured, 0);
  EXPECT_EQ(engine.statistics().disk_hits, 0);
}

TEST(ChoiceEngine, FailedMeasuringLeavesNoDecision) {
  auto engine = engine_of(10, {}, kMeasure);
  EXPECT_THROW((void)engine.choose(call_of(8), never_run), std::logic_error);
  EXPECT_FALSE(engine.find(call_of(8)));
  EXPECT_EQ(engine.choose(call_of(8), fifth_is_fastest), 5);
  EXPECT_EQ(engine.statistics().passes, 1);  // the pass itself had succeeded
}

TEST(ChoiceEngine, SaysWhyNoCandidateIsLeft) {
  auto engine = engine_of(10, {{"aligned", [](int candidate, const Signature&) { return candidate < 4; }},
                               {"fits", [](int, const Signature&) { return false; }}});
  try {
    (void)engine.choose(call_of(8), never_run);
    FAIL();
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("none of 10 candidates can serve [test a f32 [8, 64]"), std::string::npos) << text;
    EXPECT_NE(text.find("6 by 'aligned', 4 by 'fits'"), std::string::npos) << text;
  }
}

TEST(ChoiceEngine, AllRanksTakeWhatRankZeroMeasured) {
  // Two engines, whose timings differ; the exchange of two ranks in one thread.
  auto zero = engine_of(10, {}, kMeasure), one = engine_of(10, {}, kMeasure);
  std::string bytes;
  EXPECT_EQ(zero.adopt(call_of(8), fifth_is_fastest, [&](const auto& mine) { return bytes = mine(); }), 5);
  EXPECT_EQ(one.choose(call_of(8), [](const int& candidate) { return candidate == 7 ? 1.0 : 9.0; }), 7);
  EXPECT_EQ(one.adopt(call_of(8), never_run, [&](const auto&) { return bytes; }), 5);
  EXPECT_EQ(one.choose(call_of(8), never_run), 5);
}

TEST(ChoiceEngine, RefusesAChoiceOfRankZeroThatItCannotRun) {
  auto engine = engine_of(3);
  try {
    (void)engine.adopt(call_of(8), never_run, [](const auto&) { return "candidate 5"; });
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 0 chose 'candidate 5'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("not among the 3 candidates"), std::string::npos) << error.what();
  }
}

TEST(ChoiceEngine, ManyThreadsMakeOneDecision) {
  auto engine = engine_of(1000, {{"any", [](int, const Signature&) { return true; }}}, {});
  std::vector<std::thread> threads;
  std::vector<int> chosen(8, -1);
  for (size_t t = 0; t < chosen.size(); ++t)
    threads.emplace_back([&, t] {
      for (int64_t m = 1; m <= 20; ++m) chosen[t] = engine.choose(call_of(m), never_run);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(chosen, std::vector<int>(8, 0));
  EXPECT_EQ(engine.statistics().passes, 20);
  EXPECT_EQ(engine.statistics().all_predicate_calls(), 20 * 1000);
}

TEST(TensorSignature, RefusesMoreDimsThanItDescribes) {
  const std::array<int64_t, 5> five{1, 1, 1, 1, 1};
  try {
    (void)tensor_signature(DType::f32, five, five, nullptr);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("5 dims; at most 4"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)tensor_signature(DType::f32, std::array<int64_t, 2>{1, 1}, std::array<int64_t, 1>{1}, nullptr),
               UsageError);
}

}  // namespace
}  // namespace tutti::codegen::choice
