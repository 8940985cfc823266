// The engine against one forward of the model as the trainer runs it, in any order of arrivals and cut into any
// batches: tokens and log-probabilities are compared bit by bit.
#include "tutti/generate/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "tests/generate/support/texts.h"
#include "tests/generate/support/tiny_decoders.h"
#include "tests/support/message_of.h"
#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/ops/cross_entropy.h"

namespace tutti::generate {
namespace {

class EngineBits : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

// Arrivals, chunks, slots, shared beginnings, small caches that put requests back, and threads at random; every third
// cache holds what the model computes, the others codes.
TEST_P(EngineBits, AreThoseOfOneForwardHoweverRequestsCome) {
  const auto& [kind, dtype] = GetParam();
  const ByteTokenizer tokenizer;
  const auto model = make_tiny(kind, dtype);
  std::mt19937 random(11);
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int64_t put_back = 0, reused = 0;
  for (int round = 0; round < 18; ++round) {
    RankContext context({.threads = 1 + upto(3)});
    const RankContext::Scope scope(context);
    const int requests = 2 + upto(6);
    EngineOptions options{.context = 150 + upto(100), .max_requests = 1 + upto(6), .batch_tokens = 6 + upto(60)};
    options.shares_prefixes = upto(4) > 0;
    options.interleaved_tokens = upto(2) * (1 + upto(20));
    options.compile = round % 2 == 1;
    options.cache_dtype = kCacheDTypes[round % 3];
    const int64_t page_bytes =
        kPageKeys * position_bytes(2, 10, options.cache_dtype.value_or(dtype)) * (kind.starts_with("gemma4") ? 8 : 3);
    options.cache_bytes = page_bytes * (upto(4) > 0 ? 9 + upto(6) : 200);
    Engine engine(*model, tokenizer, options);
    std::vector<int32_t> beginning;
    for (int i = 0; i < 70; ++i) beginning.push_back(upto(256));
    std::map<RequestId, Request> asked;
    std::map<RequestId, Text> texts;
    for (int i = 0; i < requests; ++i) {
      const Request request = random_request(random, beginning);
      asked[engine.submit(request)] = request;
      for (int steps = upto(3); steps > 0; --steps) {
        add(texts, engine.step());
        engine.cache().poison(std::nan(""));
      }
    }
    while (engine.has_work()) {
      add(texts, engine.step());
      engine.cache().poison(std::nan(""));
    }
    put_back += engine.counters().put_back;
    reused += engine.counters().reused_tokens;
    EXPECT_EQ(engine.counters().free_pages, engine.counters().pages);
    for (const auto& [id, request] : asked)
      expect_same_text(texts[id], by_forwards(*model, tokenizer, request, engine.context(), options.cache_dtype),
                       request.prompt_log_probabilities, fmt::format("round {}, request {}", round, id));
  }
  EXPECT_GT(reused, 0);
  if (kind == "dense") {
    EXPECT_GT(put_back, 0);
  }
}

std::string name_of_kind(const ::testing::TestParamInfo<std::tuple<std::string, DType>>& info) {
  std::string kind = std::get<0>(info.param);
  std::replace(kind.begin(), kind.end(), '-', '_');
  return kind + "_" + std::string(name_of(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(EveryKind, EngineBits,
                         ::testing::Combine(::testing::Values("dense", "window", "windows", "experts", "gemma4",
                                                              "gemma4-experts"),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         name_of_kind);

struct Tiny {
  ByteTokenizer tokenizer;
  std::unique_ptr<models::Decoder> model = make_tiny("dense");
};

TEST(Engine, ATextBeyondTheContextSlidesOrEnds) {
  Tiny tiny;
  Engine engine(*tiny.model, tiny.tokenizer, {.context = 20});
  Request request{.prompt = {1, 2, 3, 4, 5, 6, 7}, .sampling = {.temperature = 1, .seed = 3}, .max_tokens = 30};
  const RequestId ends = engine.submit(request);
  request.slides = true;
  const RequestId slides = engine.submit(request);
  Request longer = request;
  longer.prompt.assign(33, 65);
  const RequestId from_beyond = engine.submit(longer);
  std::map<RequestId, Text> texts = finish(engine);
  EXPECT_EQ(texts[ends].finish, Finish::length);
  EXPECT_EQ(texts[ends].tokens.size(), 14u);
  EXPECT_EQ(texts[slides].tokens, by_forwards(*tiny.model, tiny.tokenizer, request, 20).tokens);
  EXPECT_EQ(texts[from_beyond].tokens, by_forwards(*tiny.model, tiny.tokenizer, longer, 20).tokens);
}

TEST(Engine, EndsAreNotToldAndTheLeastNumberOfTokensIsKept) {
  Tiny tiny;
  Engine engine(*tiny.model, tiny.tokenizer, {});
  Request request{.prompt = {10, 20}, .sampling = {.temperature = 0}, .max_tokens = 12};
  const RequestId first = engine.submit(request);
  const std::vector<int32_t> tokens = finish(engine)[first].tokens;
  ASSERT_EQ(tokens.size(), 12u);
  request.ends = {tokens[5]};
  const size_t end = static_cast<size_t>(std::find(tokens.begin(), tokens.end(), tokens[5]) - tokens.begin());
  const RequestId ended = engine.submit(request);
  request.min_tokens = static_cast<int64_t>(end) + 3;
  const RequestId later = engine.submit(request);
  std::map<RequestId, Text> texts = finish(engine);
  EXPECT_EQ(texts[ended].finish, Finish::end);
  EXPECT_EQ(texts[ended].tokens,
            std::vector<int32_t>(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)));
  EXPECT_GE(texts[later].tokens.size(), end + 3);
  for (size_t i = 0; i < end + 3; ++i) EXPECT_NE(texts[later].tokens[i], tokens[5]);
}

TEST(Engine, TellsTheMostLikelyTokensOfTheRawLogits) {
  Tiny tiny;
  Engine engine(*tiny.model, tiny.tokenizer, {});
  Request request{.prompt = {10, 20}, .sampling = {.temperature = 0.5, .top_k = 3, .logit_bias = {{70, 90.0}}}};
  request.max_tokens = 3;
  request.top_log_probabilities = 258;
  const RequestId id = engine.submit(request);
  const Text text = finish(engine)[id];
  ASSERT_EQ(text.top.size(), 3u);
  EXPECT_EQ(text.tokens, (std::vector<int32_t>{70, 70, 70}));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(text.top[i].size(), 258u);
    double sum = 0;
    for (size_t k = 0; k < 258; ++k) {
      sum += std::exp(static_cast<double>(text.top[i][k].log_probability));
      if (k > 0) {
        EXPECT_LE(text.top[i][k].log_probability, text.top[i][k - 1].log_probability);
      }
      if (text.top[i][k].id == 70) {
        EXPECT_EQ(text.top[i][k].log_probability, text.log_probabilities[i]);
      }
    }
    EXPECT_LT(sum, 1);  // the model has rows for ids without a token
    EXPECT_GT(sum, 0.9);
  }
}

// A long prompt is read in small parts while another request writes, and at once when none does.
TEST(Engine, PromptsLetOthersWrite) {
  Tiny tiny;
  const auto steps_until_second = [&](int64_t interleaved, bool with_writer) {
    Engine engine(*tiny.model, tiny.tokenizer, {.context = 300, .batch_tokens = 64, .interleaved_tokens = interleaved});
    RequestId writer = 0;
    if (with_writer) {
      writer = engine.submit({.prompt = {1, 2, 3}, .max_tokens = 200});
      engine.step();
    }
    const RequestId second = engine.submit({.prompt = std::vector<int32_t>(120, 7), .max_tokens = 1});
    for (int64_t step = 1;; ++step) {
      bool writes = !with_writer, is_done = false;
      for (const Event& event : engine.step()) {
        writes |= event.request == writer && event.token.has_value();
        is_done |= event.request == second;
      }
      EXPECT_TRUE(writes) << "the writer waits in step " << step;
      if (is_done || step > 200) return step;
    }
  };
  EXPECT_EQ(steps_until_second(10, true), 12);
  EXPECT_EQ(steps_until_second(0, true), 2);
  EXPECT_EQ(steps_until_second(10, false), 2);
  EXPECT_THROW(Engine(*tiny.model, tiny.tokenizer, {.interleaved_tokens = -1}), UsageError);
}

TEST(Engine, RequestsEndWhenTheyAreCancelledOrLateAndTheOthersGoOn) {
  Tiny tiny;
  Engine engine(*tiny.model, tiny.tokenizer, {.max_requests = 2, .batch_tokens = 8});
  const auto now = std::chrono::steady_clock::now();
  Request request{.prompt = std::vector<int32_t>(30, 5), .max_tokens = 40};
  const RequestId stays = engine.submit(request), goes = engine.submit(request), waits = engine.submit(request);
  request.deadline = now - std::chrono::seconds(1);
  const RequestId late = engine.submit(request);
  std::map<RequestId, Text> texts;
  for (int i = 0; i < 12; ++i) add(texts, engine.step());
  EXPECT_EQ(texts[late].finish, Finish::deadline);
  EXPECT_FALSE(texts[goes].tokens.empty());
  engine.cancel(goes);
  engine.cancel(waits);
  engine.cancel(late);
  engine.cancel(777);
  while (engine.has_work()) add(texts, engine.step());
  EXPECT_EQ(texts[goes].finish, Finish::cancelled);
  EXPECT_EQ(texts[waits].finish, Finish::cancelled);
  EXPECT_EQ(texts[stays].tokens.size(), 40u);
  EXPECT_EQ(engine.counters().free_pages, engine.counters().pages);
}

TEST(Engine, ARequestWhoseLogitsAreNoNumbersFailsAlone) {
  Tiny tiny;
  Engine engine(*tiny.model, tiny.tokenizer, {});
  Request nothing_left{.prompt = {1, 2}, .max_tokens = 4};
  for (int32_t id = 0; id < 258; ++id) nothing_left.suppressed.push_back(id);
  const RequestId fails = engine.submit(nothing_left), goes = engine.submit({.prompt = {1, 2}, .max_tokens = 4});
  std::map<RequestId, Text> texts = finish(engine);
  EXPECT_EQ(texts[fails].finish, Finish::failed);
  EXPECT_NE(texts[fails].error.find("no token is left to draw: all 258 are forbidden"), std::string::npos);
  EXPECT_EQ(texts[goes].tokens.size(), 4u);
}

TEST(Engine, RequestsThatCannotRunAreRefused) {
  Tiny tiny;
  Engine engine(*tiny.model, tiny.tokenizer, {.context = 40});
  const auto refused = [&](Request request) { return message_of([&] { engine.submit(std::move(request)); }); };
  EXPECT_EQ(refused({}), "there is no token to continue; give a prompt");
  EXPECT_EQ(refused({.prompt = std::vector<int32_t>(41, 1)}), "the prompt has 41 tokens; the context holds 40");
  EXPECT_EQ(refused({.prompt = {1, 262}}), "token 262 is none of the model's 262");
  EXPECT_EQ(refused({.prompt = {1}, .ends = {-1}}), "token -1 is none of the model's 262");
  EXPECT_EQ(refused({.prompt = {1}, .max_tokens = -1}), "0 to -1 tokens; expected 0 or more");
  EXPECT_EQ(refused({.prompt = {1}, .sampling = {.top_p = 1.5}}), "top_p is 1.5; expected 0 to 1");
  EXPECT_EQ(refused({.prompt = {1}, .top_log_probabilities = 263}),
            "log-probabilities of 263 tokens; the model has 262");
  EXPECT_FALSE(engine.has_work());
  EXPECT_NE(message_of([&] { Engine(*tiny.model, tiny.tokenizer, {.context = 0}); }).find("an engine of 0 tokens"),
            std::string::npos);
  EXPECT_NE(message_of([&] { Engine(*tiny.model, tiny.tokenizer, {.cache_bytes = 100}); }).find("holds no page of"),
            std::string::npos);
  EXPECT_EQ(message_of([&] { Engine(*tiny.model, tiny.tokenizer, {.cache_dtype = DType::u8}); }),
            "an engine with a cache of u8; expected i8 or f8e4m3fn, or none for the dtype in which the model computes");
  const auto in_f64 = make_tiny("dense", DType::f64);
  EXPECT_EQ(message_of([&] { Engine(*in_f64, tiny.tokenizer, {.cache_dtype = DType::i8}); }),
            "an engine with a cache of i8 for a model in f64; codes stand for numbers in f32, so that the model must "
            "compute in f32, bf16 or f16");
  for (const DType code : {DType::i8, DType::f8e4m3fn})  // a page takes 2688 bytes
    EXPECT_EQ(
        Engine(*tiny.model, tiny.tokenizer, {.context = 200, .cache_bytes = 4 * 7680, .cache_dtype = code}).context(),
        11 * kPageKeys);
  Engine small(*tiny.model, tiny.tokenizer, {.context = 200, .cache_bytes = 4 * 7680});
  EXPECT_EQ(message_of([&] { small.submit({.prompt = std::vector<int32_t>(65, 1)}); }),
            "the prompt has 65 tokens; the context holds 64, as many as the memory of the cache does");
}

TEST(Engine, ReadsAPromptWithoutWritingAnything) {
  Tiny tiny;
  Engine engine(*tiny.model, tiny.tokenizer, {.batch_tokens = 16});
  Request request{.prompt = std::vector<int32_t>(50, 9), .max_tokens = 0};
  request.prompt_log_probabilities = true;
  const RequestId id = engine.submit(request);
  const Text text = finish(engine)[id];
  EXPECT_EQ(text.finish, Finish::length);
  EXPECT_TRUE(text.tokens.empty());
  EXPECT_EQ(text.prompt_log_probabilities.size(), 49u);
}

}  // namespace
}  // namespace tutti::generate
