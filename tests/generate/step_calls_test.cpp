// Calls of an engine as bytes.
#include "tutti/generate/step_calls.h"

#include <gtest/gtest.h>

#include <random>

#include "tutti/core/error.h"

namespace tutti::generate {
namespace {

StepCalls all_members() {
  StepCalls calls{.cancelled = {3, 4}, .late = {16}, .ends = true};
  calls.submitted.resize(2);
  auto& [id, request] = calls.submitted[0];
  id = 17;
  request.prompt = {5, 0, -1};
  request.max_tokens = 7, request.min_tokens = 2, request.top_log_probabilities = 5;
  request.ends = {3}, request.suppressed = {4, 9};
  request.prompt_log_probabilities = request.slides = true;
  SamplingOptions& sampling = request.sampling;
  sampling.temperature = 0.1, sampling.top_k = 11, sampling.top_p = 0.3, sampling.min_p = 0.05;
  sampling.repetition_penalty = 1.1, sampling.presence_penalty = -0.2, sampling.frequency_penalty = 0.7;
  sampling.logit_bias = {{1, -100.0}, {8, 0x1.8p-40}};
  sampling.order = SamplingOrder::llama_cpp;
  sampling.seed = ~uint64_t{0};
  calls.submitted[1].first = 18;
  calls.submitted[1].second.prompt = {1};
  return calls;
}

TEST(StepCalls, AreTheSameBehindBytes) {
  const std::string bytes = bytes_of(all_members());
  const StepCalls calls = step_calls_in(bytes);
  EXPECT_EQ(bytes_of(calls), bytes);
  ASSERT_EQ(calls.submitted.size(), 2u);
  const auto& [id, request] = calls.submitted[0];
  EXPECT_EQ(id, 17u);
  EXPECT_EQ(request.prompt, (std::vector<int32_t>{5, 0, -1}));
  EXPECT_EQ(request.sampling.logit_bias, (std::map<int32_t, double>{{1, -100.0}, {8, 0x1.8p-40}}));
  EXPECT_EQ(request.sampling.order, SamplingOrder::llama_cpp);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.7);
  EXPECT_EQ(request.suppressed, (std::vector<int32_t>{4, 9}));
  EXPECT_TRUE(request.slides && request.prompt_log_probabilities);
  EXPECT_EQ(calls.submitted[1].second.max_tokens, Request{}.max_tokens);
  EXPECT_EQ(calls.cancelled, (std::vector<RequestId>{3, 4}));
  EXPECT_EQ(calls.late, std::vector<RequestId>{16});
  EXPECT_TRUE(calls.ends);
  EXPECT_FALSE(step_calls_in(bytes_of({})).ends);
}

TEST(StepCalls, OtherBytesAreRefused) {
  const std::string bytes = bytes_of(all_members());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(step_calls_in(std::string_view(bytes).substr(0, length)), InternalError) << length;
  EXPECT_THROW(step_calls_in(bytes + "x"), InternalError);
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = bytes;
    for (unsigned i = 1 + random() % 4; i > 0; --i) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      step_calls_in(damaged);
    } catch (const InternalError&) {
    }
  }
}

}  // namespace
}  // namespace tutti::generate
