// Texts of an engine, and those of whole forwards with which they are compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/generate/support/coded_attention.h"
#include "tutti/autograd/tape.h"
#include "tutti/generate/engine.h"
#include "tutti/models/decoder.h"

namespace tutti::generate {

struct Text {
  std::vector<int32_t> tokens;  // generated ones
  std::vector<float> log_probabilities, prompt_log_probabilities;
  std::vector<std::vector<TokenChance>> top;
  Finish finish = Finish::no;
  std::string error;
};

inline void add(std::map<RequestId, Text>& texts, const std::vector<Event>& events) {
  for (const Event& event : events) {
    Text& text = texts[event.request];
    EXPECT_EQ(text.finish, Finish::no);
    if (event.token) {
      text.tokens.push_back(event.token->id);
      text.log_probabilities.push_back(event.token->log_probability);
      text.top.push_back(event.token->top);
    }
    if (!event.prompt_log_probabilities.empty()) text.prompt_log_probabilities = event.prompt_log_probabilities;
    text.finish = event.finish;
    text.error = event.error;
  }
}

inline std::map<RequestId, Text> finish(Engine& engine) {
  std::map<RequestId, Text> texts;
  while (engine.has_work()) add(texts, engine.step());
  return texts;
}

inline models::TokenBatch row_of(std::span<const int32_t> tokens, models::AttentionCache* cache = nullptr) {
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  return {Tensor::of(std::vector<int32_t>(tokens.begin(), tokens.end())), Tensor::of(positions),
          Tensor::of(std::vector<int32_t>(tokens.size(), 0)), 1, cache};
}

// The text that the request gives by whole forwards, one for each token, in which keys and values are codes if a dtype
// of these is given.
inline Text by_forwards(models::Decoder& model, const Tokenizer& tokenizer, const Request& request, int64_t context,
                        std::optional<DType> codes = {}) {
  const NoGradScope no_grad;
  const nn::EvalScope evaluating(model);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) ids.push_back(id);
  Text text;
  std::vector<int32_t> tokens = request.prompt;
  std::optional<CodedAttention> coded;
  const auto cache = [&] { return codes ? &coded.emplace(*codes) : nullptr; };
  while (text.finish == Finish::no) {
    const size_t seen = std::min(tokens.size(), static_cast<size_t>(context));
    const Tensor logits = model.forward(row_of(std::span(tokens).last(seen), cache()));
    const auto last = static_cast<size_t>((logits.extent(0) - 1) * logits.extent(1));
    const std::span<const float> row(logits.data<float>() + last, static_cast<size_t>(logits.extent(1)));
    const int32_t id = draw_token(row, ids, request.sampling, {tokens, std::ssize(request.prompt), {}});
    if (std::find(request.ends.begin(), request.ends.end(), id) != request.ends.end()) {
      text.finish = Finish::end;
      break;
    }
    tokens.push_back(id);
    text.tokens.push_back(id);
    if (std::ssize(text.tokens) == request.max_tokens || (!request.slides && std::ssize(tokens) > context))
      text.finish = Finish::length;
  }
  // All log-probabilities come from one forward, as training runs it.
  if (request.slides) return text;
  const std::span<const int32_t> inputs = std::span(tokens).first(tokens.size() - 1);
  if (inputs.empty()) return text;
  const Tensor losses =
      model.losses(row_of(inputs, cache()), Tensor::of(std::vector<int32_t>(tokens.begin() + 1, tokens.end())));
  for (size_t i = 0; i < inputs.size(); ++i)
    (i + 1 < request.prompt.size() ? text.prompt_log_probabilities : text.log_probabilities)
        .push_back(-losses.data<float>()[i]);
  return text;
}

inline void expect_same_text(const Text& got, const Text& expected, bool of_prompt, const std::string& what) {
  EXPECT_EQ(got.tokens, expected.tokens) << what;
  EXPECT_EQ(got.finish, expected.finish) << what << " " << got.error;
  ASSERT_EQ(got.log_probabilities.size(), expected.log_probabilities.size()) << what;
  for (size_t i = 0; i < got.log_probabilities.size(); ++i)
    EXPECT_EQ(got.log_probabilities[i], expected.log_probabilities[i]) << what << ", token " << i;
  if (of_prompt) {
    EXPECT_EQ(got.prompt_log_probabilities, expected.prompt_log_probabilities) << what;
  }
}

// The caches of engines hold what the model computes, or codes.
inline const std::optional<DType> kCacheDTypes[] = {std::nullopt, DType::i8, DType::f8e4m3fn};

// Begins with a part of `beginning`, so that some requests share pages.
inline Request random_request(std::mt19937& random, std::span<const int32_t> beginning) {
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Request request{.max_tokens = 1 + upto(20)};
  request.prompt.assign(beginning.begin(), beginning.begin() + upto(70));
  for (int k = 1 + upto(50); k > 0; --k) request.prompt.push_back(upto(256));
  if (upto(3) == 0)
    request.prompt.assign(beginning.begin(),
                          beginning.end());  // equal prompts, of which nothing is left to read but the end
  request.sampling.temperature = upto(3) * 0.7;
  request.sampling.top_k = upto(2) * 30;
  request.sampling.top_p = upto(3) == 0 ? 0.8 : 1;
  request.sampling.repetition_penalty = upto(3) == 0 ? 1.3 : 1;
  request.sampling.seed = random();
  request.prompt_log_probabilities = upto(3) == 0;
  return request;
}

}  // namespace tutti::generate
