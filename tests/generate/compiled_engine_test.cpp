// Engines whose forwards are compiled: how often they are traced, and what they do where they are not. That their bits
// are those of the trainer's forward is shown by EngineBits and LedEngineBits, half of whose rounds compile.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tests/generate/support/texts.h"
#include "tests/generate/support/tiny_decoders.h"
#include "tutti/generate/engine.h"
#include "tutti/graph/compiled.h"
#include "tutti/ops/inplace.h"

namespace tutti::generate {
namespace {

Request greedy(std::vector<int32_t> prompt, int64_t tokens) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_tokens = tokens};
}

EngineOptions compiled() { return {.context = 300, .max_requests = 8, .compile = true}; }

// Lengths of prompts, numbers of texts and of pages become symbols; one of anything is a kind of its own.
TEST(CompiledEngine, IsTracedAFewTimesForAllSizes) {
  const ByteTokenizer tokenizer;
  const auto model = make_tiny("windows");
  Engine engine(*model, tokenizer, compiled());
  const auto write = [&](int texts) {
    for (int i = 0; i < texts; ++i)
      engine.submit(greedy(std::vector<int32_t>(static_cast<size_t>(3 + 5 * i + texts), i), 60));
    finish(engine);
  };
  for (int texts = 1; texts <= 8; ++texts) write(texts);
  for (int texts = 8; texts > 0; --texts) write(texts);
  EXPECT_GE(engine.compile_statistics().compiles, 3);
  EXPECT_LE(engine.compile_statistics().compiles, 8);
  EXPECT_GT(engine.compile_statistics().members, 2);
}

// The first forward, batches of prompts and texts together, and those that ask for log-probabilities of a prompt.
TEST(CompiledEngine, RunsTheRestOpByOp) {
  const ByteTokenizer tokenizer;
  const auto model = make_tiny("dense");
  Engine engine(*model, tokenizer, compiled());
  Request scored = greedy(std::vector<int32_t>(40, 7), 1);
  scored.prompt_log_probabilities = true;
  engine.submit(scored);
  finish(engine);
  engine.submit(scored);
  finish(engine);
  EXPECT_EQ(engine.compile_statistics().compiles, 0);
  const RequestId writes = engine.submit(greedy({1, 2, 3}, 100));
  std::map<RequestId, Text> texts;
  for (int i = 0; i < 3; ++i) add(texts, engine.step());
  const int64_t traced = engine.compile_statistics().compiles;
  EXPECT_GT(traced, 0);
  const RequestId joins = engine.submit(greedy(std::vector<int32_t>(20, 9), 1));
  add(texts, engine.step());
  EXPECT_EQ(engine.compile_statistics().compiles, traced);
  while (engine.has_work()) add(texts, engine.step());
  for (const auto& [id, prompt] :
       {std::pair(writes, std::vector<int32_t>{1, 2, 3}), std::pair(joins, std::vector<int32_t>(20, 9))}) {
    const Request request = greedy(prompt, id == writes ? 100 : 1);
    expect_same_text(texts[id], by_forwards(*model, tokenizer, request, 300), false, fmt::format("request {}", id));
  }
}

// Weights are read at each step: what a program changes between steps, such as a trainer that writes samples, counts.
TEST(CompiledEngine, ReadsWeightsAsTheyAreAtEachStep) {
  const ByteTokenizer tokenizer;
  const auto model = make_tiny("dense");
  Engine engine(*model, tokenizer, compiled());
  const Request request = greedy({5, 6, 7, 8}, 30);
  std::vector<Text> texts;
  for (int round = 0; round < 4; ++round) {
    seed_all(static_cast<uint64_t>(round / 2));
    nn::initialize(*model);
    const RequestId id = engine.submit(request);
    texts.push_back(finish(engine)[id]);
    expect_same_text(texts.back(), by_forwards(*model, tokenizer, request, 300), false, fmt::format("round {}", round));
  }
  EXPECT_EQ(texts[0].tokens, texts[1].tokens);
  EXPECT_NE(texts[1].tokens, texts[2].tokens);
}

// An error of a batch, or of what is drawn from it, leaves nothing behind that a later text meets.
TEST(CompiledEngine, GoesOnAfterAnError) {
  const ByteTokenizer tokenizer;
  const auto model = make_tiny("dense");
  const auto initialize = [&] {
    seed_all(7);
    nn::initialize(*model);
  };
  Engine engine(*model, tokenizer, compiled());
  const Request request = greedy({5, 6, 7, 8}, 20);
  const auto write = [&] {
    const RequestId id = engine.submit(request);
    return finish(engine)[id];
  };
  write();
  for (const nn::NamedParameter& p : model->named_parameters()) {
    const NoGradScope no_grad;
    fill_(p.parameter.use(), std::nan(""));
  }
  EXPECT_EQ(write().finish, Finish::failed);
  initialize();
  expect_same_text(write(), by_forwards(*model, tokenizer, request, 300), false, "after NaN");
}

// Two engines on two threads compile the same model, each for itself, while the other one writes.
TEST(CompiledEngine, OfTwoThreadsShareAModel) {
  const ByteTokenizer tokenizer;
  const auto model = make_tiny("window");
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4; ++i)
    requests.push_back(greedy(std::vector<int32_t>(static_cast<size_t>(1 + 9 * i), i), 40));
  std::map<RequestId, Text> texts[2];
  {
    std::vector<std::jthread> threads;
    for (auto& mine : texts) {
      threads.emplace_back([&] {
        RankContext context({.threads = 1});
        const RankContext::Scope scope(context);
        Engine engine(*model, tokenizer, compiled());
        for (const Request& request : requests) engine.submit(request);
        mine = finish(engine);
      });
    }
  }
  for (auto& mine : texts) {
    for (size_t i = 0; i < requests.size(); ++i)
      expect_same_text(mine[static_cast<RequestId>(i + 1)], by_forwards(*model, tokenizer, requests[i], 300), false,
                       fmt::format("request {}", i));
  }
}

}  // namespace
}  // namespace tutti::generate
