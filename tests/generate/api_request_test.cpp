#include "tutti/generate/serve/api_request.h"

#include <gtest/gtest.h>

#include "tutti/generate/serve/api_error.h"

namespace tutti::generate::serve {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;

template <class Fn>
std::string refusal_of(Fn fn) {
  try {
    fn();
  } catch (const ApiError& error) {
    return fmt::format("{} {}: {}", error.status(), error.code(), error.what());
  }
  return "accepted";
}
std::string completion_refusal(const char* body) {
  return refusal_of([&] { parse_completion(body); });
}
std::string chat_refusal(const std::string& more) {
  const std::string body =
      R"({"messages": [{"role": "user", "content": "a"}])" + (more.empty() ? "" : ", " + more) + "}";
  return refusal_of([&] { parse_chat(body); });
}

TEST(ApiRequest, ReadsAllSettings) {
  const CompletionRequest request =
      parse_completion(R"({"model": "m", "prompt": "Hi", "max_tokens": 5, "temperature": 0.5,
    "top_p": 0.9, "top_k": 40, "min_p": 0.1, "n": 2, "stop": ["a", "b"], "seed": -3, "stream": true,
    "stream_options": {"include_usage": true}, "logprobs": 3, "logit_bias": {"7": -100, "8": 1.5}, "presence_penalty": 1,
    "frequency_penalty": -1, "repetition_penalty": 1.1, "min_tokens": 2, "ignore_eos": true, "echo": true, "user": "u",
    "suffix": null})");
  const TextSettings& settings = request.settings;
  EXPECT_EQ(settings.model, "m");
  EXPECT_EQ(std::get<std::string>(request.prompts.at(0)), "Hi");
  EXPECT_TRUE(request.echo && settings.stream && settings.include_usage && settings.log_probabilities &&
              settings.ignores_ends);
  EXPECT_EQ(settings.max_tokens, 5);
  EXPECT_EQ(settings.min_tokens, 2);
  EXPECT_EQ(settings.n, 2);
  EXPECT_EQ(settings.stops, (Texts{"a", "b"}));
  EXPECT_EQ(settings.top_tokens, 3);
  const SamplingOptions sampling = settings.sampling({});
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.presence_penalty, 1);
  EXPECT_EQ(sampling.frequency_penalty, -1);
  EXPECT_EQ(sampling.repetition_penalty, 1.1);
  EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(sampling.logit_bias, (std::map<int32_t, double>{{7, -100.0}, {8, 1.5}}));
}

TEST(ApiRequest, LeavesToTheServerWhatIsNotSaid) {
  const TextSettings settings = parse_completion(R"({"prompt": "x", "temperature": null})").settings;
  const SamplingOptions defaults{.temperature = 0.7, .top_k = 20, .top_p = 0.8, .seed = 9};
  const SamplingOptions sampling = settings.sampling(defaults);
  EXPECT_EQ(sampling.temperature, 0.7);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.top_p, 0.8);
  EXPECT_EQ(sampling.seed, 9U);
  EXPECT_FALSE(settings.max_tokens || settings.seed || settings.stream || settings.log_probabilities);
  EXPECT_EQ(parse_completion(R"({"prompt": "x", "top_k": -1})").settings.top_k, 0);
}

TEST(ApiRequest, TakesPromptsAsTextsOrIds) {
  EXPECT_EQ(std::get<Ids>(parse_completion(R"({"prompt": [1, 2]})").prompts.at(0)), (Ids{1, 2}));
  const auto prompts = parse_completion(R"({"prompt": ["a", [3], ""]})").prompts;
  ASSERT_EQ(prompts.size(), 3U);
  EXPECT_EQ(std::get<std::string>(prompts[0]), "a");
  EXPECT_EQ(std::get<Ids>(prompts[1]), Ids{3});
  const EmbeddingRequest embedding = parse_embedding(R"({"input": ["a", "b"], "encoding_format": "base64"})");
  EXPECT_EQ(embedding.inputs.size(), 2U);
  EXPECT_TRUE(embedding.as_base64);
  EXPECT_EQ(parse_embedding(R"({"input": "a", "user": "u"})", {.inputs = 1}).inputs.size(), 1U);
  EXPECT_NE(refusal_of([] {
              parse_embedding(R"({"input": ["a", "b"]})", {.inputs = 1});
            }).find("has 2 entries; at most 1 are taken"),
            std::string::npos);
}

TEST(ApiRequest, ReadsChats) {
  const ChatRequest request = parse_chat(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"x": 1}],
    "logprobs": true, "top_logprobs": 2, "max_completion_tokens": 7, "tool_choice": "auto", "stop": "z",
    "chat_template_kwargs": {"enable_thinking": false}, "response_format": {"type": "text"}})");
  EXPECT_EQ(request.messages.size(), 1U);
  EXPECT_TRUE(request.tools.has_value() && request.add_generation_prompt);
  EXPECT_EQ(request.settings.max_tokens, 7);
  EXPECT_EQ(request.settings.top_tokens, 2);
  EXPECT_EQ(request.settings.stops, Texts{"z"});
  ASSERT_EQ(request.extra.size(), 1U);
  EXPECT_EQ(request.extra[0].first, "enable_thinking");
}

TEST(ApiRequest, ReadsTokenizations) {
  EXPECT_EQ(parse_tokenize(R"({"prompt": "a"})").text, "a");
  EXPECT_TRUE(parse_tokenize(R"({"prompt": "a"})").add_special_tokens);
  EXPECT_FALSE(parse_tokenize(R"({"content": "a"})").add_special_tokens);
  EXPECT_FALSE(parse_tokenize(R"({"prompt": "a", "add_special_tokens": false})").add_special_tokens);
  EXPECT_EQ(parse_detokenize(R"({"tokens": [5, 6]})"), (Ids{5, 6}));
}

TEST(ApiRequest, SaysWhatIsWrong) {
  EXPECT_EQ(completion_refusal("{"),
            "400 invalid_value: request:1:2: byte 2: not JSON: syntax error while parsing object key - unexpected end "
            "of input; "
            "expected string literal");
  EXPECT_EQ(completion_refusal("[]"), "400 invalid_value: request: is an array of 0; expected an object");
  EXPECT_EQ(completion_refusal("{}"), "400 missing_field: prompt is missing");
  EXPECT_EQ(completion_refusal(R"({"prompt": "a", "temprature": 1})").substr(0, 63),
            "400 unknown_field: unknown field 'temprature'; did you mean 'te");
  EXPECT_EQ(completion_refusal(R"({"prompt": 7})"),
            "400 invalid_value: request: prompt: is 7; expected a text, ids, or a list of them");
  EXPECT_EQ(completion_refusal(R"({"prompt": "a", "temperature": -1})"),
            "400 invalid_value: request: temperature: is -1; expected 0 to 100");
  EXPECT_EQ(completion_refusal(R"({"prompt": "a", "stop": ["1", "2", "3", "4", "5"]})"),
            "400 invalid_value: request: stop: has 5 stop strings; at most 4 are taken");
  EXPECT_EQ(completion_refusal(R"({"prompt": "a", "stop": ""})"),
            "400 invalid_value: request: stop: has a stop string of 0 bytes; expected 1 to 1024");
  EXPECT_EQ(completion_refusal(R"({"prompt": "a", "logit_bias": {"x": 1}})"),
            "400 invalid_value: request: logit_bias: has the key 'x', which is no id");
  EXPECT_EQ(completion_refusal(R"({"prompt": ["a", "b"], "n": 9})"),
            "400 invalid_value: n: 9 choices of 2 prompts; at most 16 texts are made for a request");
  EXPECT_EQ(completion_refusal(R"({"prompt": [1, -2]})").substr(0, 37), "400 invalid_value: request: prompt[1]");
  EXPECT_EQ(chat_refusal(R"("top_logprobs": 3)"), "400 invalid_value: top_logprobs is given without logprobs: true");
  EXPECT_EQ(chat_refusal(R"("response_format": {"type": "json_object"})"),
            "400 invalid_value: request: response_format: is not supported; only the type text is");
  EXPECT_EQ(chat_refusal(R"("tool_choice": "required")"),
            "400 invalid_value: request: tool_choice: is \"required\"; supported are auto and none");
  EXPECT_EQ(refusal_of([] { parse_chat(R"({"messages": []})"); }),
            "400 invalid_value: request: messages: is an array of 0; expected a list of at least one message");
  EXPECT_EQ(refusal_of([] { parse_embedding(R"({"input": "a", "dimensions": 3})"); }).substr(0, 47),
            "400 unknown_field: unknown field 'dimensions'. ");
}

TEST(ApiRequest, RefusesHostileJson) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_NE(refusal_of([&] { parse_completion(deep); }), "accepted");
  EXPECT_NE(completion_refusal("{\"prompt\": \"\xff\"}"), "accepted");
  std::string many = "{\"prompt\": [";
  for (int i = 0; i < 65; ++i) many += i == 0 ? "\"a\"" : ",\"a\"";
  EXPECT_EQ(refusal_of([&] { parse_completion(many + "]}"); }),
            "400 invalid_value: request: prompt: has 65 entries; at most 64 are taken");
}

}  // namespace
}  // namespace tutti::generate::serve
