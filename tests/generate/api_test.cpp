// Answers and streams of the HTTP interface, with a backend without a model.
#include "tutti/generate/serve/api.h"

#include <gtest/gtest.h>

#include "tests/generate/support/fake_backend.h"
#include "tests/support/message_of.h"
#include "tutti/runtime/json_document.h"

namespace tutti::generate::serve {
namespace {

using testing::fake_model;
using testing::FakeBackend;

Answer post(Api& api, const char* path, const std::string& body) { return api.handle("POST", path, body); }

std::string chat_body(const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": "Hi"}])" + (more.empty() ? "" : ", " + more) + "}";
}

// The status, type, code and message of an error.
std::string error_of(const Answer& answer) {
  const JsonDocument json(answer.body, {.name = "error"});
  const JsonValue error = json.top().at("error");
  return fmt::format("{} {} {}: {}", answer.status, error.at("type").text(), error.at("code").text(),
                     error.at("message").text());
}

// The JSON of the events of a stream, to the last.
std::vector<std::string> events_of(const Answer& answer) {
  std::string all;
  while (const auto events = answer.stream->next_events(std::chrono::milliseconds(50))) all += *events;
  std::vector<std::string> found;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.find("\n\n", begin);
    EXPECT_TRUE(all.substr(begin).starts_with("data: ") && end != std::string::npos) << all;
    found.push_back(all.substr(begin + 6, end - begin - 6));
    begin = end + 2;
  }
  return found;
}

struct Read {
  std::string text, reason;
  int64_t choices = 0;
};
Read read_chunks(const std::vector<std::string>& events, int64_t index) {
  Read read;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const JsonDocument json(event, {.name = "event"});
    for (const auto& [key, choice] : json.top().at("choices")) {
      if (choice.at("index").whole() != index) continue;
      ++read.choices;
      if (const auto delta = choice.find("delta")) {
        if (const auto content = delta->find("content")) read.text += content->text();
      } else {
        read.text += choice.at("text").text();
      }
      if (const auto reason = choice.find_set("finish_reason")) read.reason = reason->string();
    }
  }
  return read;
}

TEST(Api, AnswersAChat) {
  FakeBackend backend;
  Api api(backend, fake_model());
  const Answer answer = post(api, "/v1/chat/completions", chat_body());
  EXPECT_EQ(answer.status, 200);
  const JsonDocument json(answer.body, {.name = "answer"});
  EXPECT_EQ(json.top().at("object").text(), "chat.completion");
  EXPECT_EQ(json.top().at("model").text(), "fake");
  const JsonValue choice = (*json.top().at("choices").begin()).value;
  EXPECT_EQ(choice.at("message").at("content").text(), "Hello");
  EXPECT_EQ(choice.at("message").at("role").text(), "assistant");
  EXPECT_EQ(choice.at("finish_reason").text(), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  const std::string prompt = "user:Hi;assistant:";
  EXPECT_EQ(json.top().at("usage").at("prompt_tokens").whole(), std::ssize(prompt));
  EXPECT_EQ(json.top().at("usage").at("completion_tokens").whole(), 5);
  EXPECT_EQ(backend.requests[0].prompt, fake_model().tokenizer->encode(prompt));
  EXPECT_EQ(backend.requests[0].max_tokens, 64 - std::ssize(prompt));
  EXPECT_EQ(backend.requests[0].ends, fake_model().ends);
}

TEST(Api, StreamsAChat) {
  FakeBackend backend("é!");
  Api api(backend, fake_model());
  const auto events = events_of(
      post(api, "/v1/chat/completions", chat_body(R"("stream": true, "stream_options": {"include_usage": true})")));
  ASSERT_GE(events.size(), 5U);
  EXPECT_NE(events[0].find(R"("delta":{"role":"assistant","content":""})"), std::string::npos) << events[0];
  const Read read = read_chunks(events, 0);
  EXPECT_EQ(read.text, "é!");
  EXPECT_EQ(read.reason, "stop");
  EXPECT_EQ(events.back(), "[DONE]");
  const std::string& usage = events[events.size() - 2];
  EXPECT_NE(usage.find(R"("choices":[],"usage":{"prompt_tokens":18,"completion_tokens":3,"total_tokens":21})"),
            std::string::npos)
      << usage;
  const std::string& last = events[events.size() - 3];
  EXPECT_NE(last.find(R"("delta":{},"logprobs":null,"finish_reason":"stop")"), std::string::npos) << last;
}

TEST(Api, CompletesSeveralPromptsSeveralTimes) {
  FakeBackend backend;
  Api api(backend, fake_model());
  const Answer answer =
      post(api, "/v1/completions", R"({"prompt": ["a", [98, 99]], "n": 2, "seed": 5, "max_tokens": 3, "echo": true})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const JsonDocument json(answer.body, {.name = "answer"});
  std::vector<std::string> texts;
  for (const auto& [key, choice] : json.top().at("choices")) {
    EXPECT_EQ(choice.at("index").whole(), std::ssize(texts));
    EXPECT_EQ(choice.at("finish_reason").text(), "length");
    texts.push_back(choice.at("text").string());
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"aHel", "aHel", "bcHel", "bcHel"}));
  std::vector<uint64_t> seeds;
  for (const Request& request : backend.requests) seeds.push_back(request.sampling.seed);
  EXPECT_EQ(seeds, (std::vector<uint64_t>{5, 6, 7, 8})) << "each text draws from a stream of its own";
}

TEST(Api, StreamsSeveralTexts) {
  FakeBackend backend("abc");
  Api api(backend, fake_model());
  const auto events = events_of(post(api, "/v1/completions", R"({"prompt": "x", "n": 2, "stream": true})"));
  for (const int64_t index : {0, 1}) {
    EXPECT_EQ(read_chunks(events, index).text, "abc");
    EXPECT_EQ(read_chunks(events, index).reason, "stop");
  }
}

TEST(Api, StopsAtStopStringsAndEndsTheRequest) {
  FakeBackend backend("one. Two");
  backend.holds = true;
  Api api(backend, fake_model());
  const Answer answer = post(api, "/v1/completions", R"({"prompt": "x", "stop": [". T"]})");
  EXPECT_NE(answer.body.find(R"("text":"one","logprobs":null,"finish_reason":"stop")"), std::string::npos)
      << answer.body;
  EXPECT_TRUE(backend.wait_for_cancel(1));
  const auto events = events_of(post(api, "/v1/completions", R"({"prompt": "x", "stop": [". T"], "stream": true})"));
  EXPECT_EQ(read_chunks(events, 0).text, "one");
  EXPECT_TRUE(backend.wait_for_cancel(2));
}

// What the files of a model say holds for every request.
TEST(Api, StopStringsAndSuppressedIdsOfTheModelHold) {
  FakeBackend backend("Hello there");
  ServedModel model = fake_model();
  model.stops = {"o t"};
  model.suppressed = {7, 8};
  Api api(backend, std::move(model));
  const Answer answer = api.handle("POST", "/v1/completions", R"({"prompt": "a", "stop": ["zzz"]})");
  EXPECT_NE(answer.body.find("\"Hell\""), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("\"stop\""), std::string::npos) << answer.body;
  EXPECT_EQ(backend.requests.at(0).suppressed, (std::vector<int32_t>{7, 8}));
}

TEST(Api, TellsLogProbabilities) {
  FakeBackend backend("é");
  Api api(backend, fake_model());
  const std::string chat = post(api, "/v1/chat/completions", chat_body(R"("logprobs": true, "top_logprobs": 1)")).body;
  EXPECT_NE(
      chat.find(
          R"("logprobs":{"content":[{"token":"�","logprob":-0.5,"bytes":[195],"top_logprobs":[{"token":"a","logprob":-1.0,"bytes":[97]}]})"),
      std::string::npos)
      << chat;
  const std::string text = post(api, "/v1/completions", R"({"prompt": "x", "logprobs": 0})").body;
  EXPECT_NE(text.find(R"("token_logprobs":[-0.5,-0.5],"top_logprobs":[{},{}],"text_offset":[0,1])"), std::string::npos)
      << text;
  const auto events = events_of(post(api, "/v1/completions", R"({"prompt": "x", "logprobs": 0, "stream": true})"));
  EXPECT_NE(events[0].find(R"("text":"é","logprobs":{"tokens":["�","�"])"), std::string::npos)
      << "a chunk has the tokens of its text: " << events[0];
}

TEST(Api, TellsTheLikeliestOfTokensWithTheSameText) {
  FakeBackend backend("ab");
  Api api(backend, fake_model());
  const std::string text = post(api, "/v1/completions", R"({"prompt": "x", "logprobs": 3})").body;
  EXPECT_NE(text.find(R"("top_logprobs":[{"a":-1.0},{"a":-1.0}])"), std::string::npos) << text;
}

TEST(Api, EndsTheRequestsOfAStreamThatIsLeft) {
  FakeBackend backend;
  backend.holds = true;
  Api api(backend, fake_model());
  post(api, "/v1/chat/completions", chat_body(R"("stream": true, "n": 2)"));
  EXPECT_TRUE(backend.wait_for_cancel(1) && backend.wait_for_cancel(2));
}

TEST(Api, EndsEmbeddingsWhoseTimeIsOver) {
  FakeBackend backend;
  backend.holds = true;
  Api api(backend, fake_model(), {.deadline = std::chrono::seconds(0)});
  EXPECT_EQ(error_of(post(api, "/v1/embeddings", R"({"input": ["a", "b"]})")),
            "504 server_error timeout: the 2 texts were not embedded within 0 s; send fewer at once");
}

TEST(Api, EndsRequestsWhoseClientHasLeft) {
  FakeBackend backend;
  backend.holds = true;
  Api api(backend, fake_model());
  const auto left = [&](const char* path, const char* body) {
    return error_of(api.handle("POST", path, body, [] { return false; }));
  };
  const std::string told = "499 invalid_request_error client_left: the client has left";
  EXPECT_EQ(left("/v1/completions", R"({"prompt": "x", "n": 2})"), told);
  EXPECT_TRUE(backend.wait_for_cancel(1) && backend.wait_for_cancel(2));
  EXPECT_EQ(left("/v1/embeddings", R"({"input": "x"})"), told);
}

TEST(Api, TellsErrorsInTheirForm) {
  FakeBackend backend;
  Api api(backend, fake_model());
  EXPECT_EQ(error_of(post(api, "/v1/completions", "{}")), "400 invalid_request_error missing_field: prompt is missing");
  EXPECT_EQ(error_of(post(api, "/v1/completions", R"({"prompt": "x", "model": "gpt"})")),
            "404 invalid_request_error model_not_found: there is no model 'gpt' here; 'fake' is served");
  EXPECT_EQ(
      error_of(post(api, "/v1/completions", "{\"prompt\": \"" + std::string(64, 'a') + "\"}")),
      "400 invalid_request_error context_length_exceeded: the prompt has 64 tokens; the model takes 64 with the text");
  EXPECT_EQ(error_of(post(api, "/v1/completions", R"({"prompt": ""})")),
            "400 invalid_request_error empty_prompt: a prompt has no tokens");
  EXPECT_EQ(error_of(post(api, "/v1/completions", R"({"prompt": [300000]})")),
            "400 invalid_request_error invalid_value: prompt: 300000 is not a token");
  EXPECT_EQ(error_of(post(api, "/v1/chat/completions", R"({"messages": ["x"]})")),
            "400 invalid_request_error invalid_value: request: messages[0]: is \"x\"; a message is an object with role "
            "and content");
  EXPECT_EQ(error_of(api.handle("GET", "/v1/completions", "")),
            "405 invalid_request_error method_not_allowed: /v1/completions takes POST, not GET");
  EXPECT_EQ(api.handle("GET", "/nowhere", "").status, 404);
  backend.is_full = true;
  EXPECT_EQ(error_of(post(api, "/v1/completions", R"({"prompt": "x"})")),
            "503 overloaded_error overloaded: too many requests wait");
  backend.is_full = false;
  backend.failure = "no memory";
  EXPECT_EQ(error_of(post(api, "/v1/completions", R"({"prompt": "x"})")), "500 server_error engine_failed: no memory");
  const auto events = events_of(post(api, "/v1/completions", R"({"prompt": "x", "stream": true})"));
  EXPECT_NE(events[events.size() - 2].find(R"({"error":{"message":"no memory")"), std::string::npos);
  ServedModel plain = fake_model();
  plain.chat = {};
  Api without(backend, plain);
  EXPECT_EQ(error_of(post(without, "/v1/chat/completions", chat_body())),
            "400 invalid_request_error invalid_value: the model has no chat template; complete plain text, or give a "
            "template");
}

TEST(Api, AnswersTheSmallEndpoints) {
  FakeBackend backend;
  Api api(backend, fake_model());
  EXPECT_EQ(api.handle("GET", "/health", "").body, R"({"status":"ok"})");
  EXPECT_NE(api.handle("GET", "/v1/models", "").body.find(R"("id":"fake","object":"model")"), std::string::npos);
  EXPECT_EQ(post(api, "/tokenize", R"({"prompt": "ab"})").body, R"({"count":2,"max_model_len":64,"tokens":[97,98]})");
  EXPECT_EQ(post(api, "/detokenize", R"({"tokens": [97, 195]})").body, R"({"prompt":"a�","content":"a�"})");
  EXPECT_EQ(post(api, "/detokenize", R"({"tokens": [99999]})").status, 400);
  const std::string metrics = api.handle("GET", "/metrics", "").body;
  EXPECT_NE(metrics.find("# HELP tutti_fake A number\n# TYPE tutti_fake gauge\ntutti_fake 3\n"), std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("tutti_http_requests_total 6\n"), std::string::npos) << metrics;
  EXPECT_NE(api.handle("GET", "/", "").body.find("<!doctype html>"), std::string::npos);
  const std::string plain = post(api, "/v1/embeddings", R"({"input": ["abc", [1]]})").body;
  EXPECT_NE(plain.find(R"("index":0,"embedding":[3.0,0.5]},{"object":"embedding","index":1,"embedding":[1.0,0.5]})"),
            std::string::npos)
      << plain;
  EXPECT_NE(plain.find(R"("usage":{"prompt_tokens":4,"total_tokens":4})"), std::string::npos) << plain;
  const std::string packed = post(api, "/v1/embeddings", R"({"input": "abc", "encoding_format": "base64"})").body;
  EXPECT_NE(packed.find(R"("embedding":"AABAQAAAAD8=")"), std::string::npos) << packed;
}

TEST(Api, TellsWhatElseToServeForEmbeddings) {
  struct Writer final : FakeBackend {
    Embeddings embed(const std::vector<Prompt>& texts, const std::function<void()>& check_wanted) override {
      return Backend::embed(texts, check_wanted);
    }
  };
  Writer backend;
  Api api(backend, fake_model());
  EXPECT_EQ(error_of(post(api, "/v1/embeddings", R"({"input": "abc"})")),
            "400 invalid_request_error not_supported: the model that is served writes texts and makes no embeddings; "
            "serve an encoder for these, such as all-MiniLM-L6-v2");
  EXPECT_NE(error_of(post(api, "/v1/embeddings", "[]")).find("expected an object"), std::string::npos);
  EXPECT_EQ(error_of(post(api, "/v1/embeddings", R"({"input": ["a", [1, 99999]]})")),
            "400 invalid_request_error invalid_value: input[1]: 99999 is not a token");
}

TEST(Api, TellsWhatElseToServeForTexts) {
  FakeBackend backend;
  ServedModel encoder = fake_model();
  encoder.writes_texts = false;
  encoder.chat = {};
  Api api(backend, encoder);
  for (const auto& [path, body] : {std::pair("/v1/completions", std::string(R"({"prompt": "x"})")),
                                   std::pair("/v1/chat/completions", chat_body())})
    EXPECT_EQ(error_of(post(api, path, body)),
              "400 invalid_request_error not_supported: 'fake' is an encoder, which writes no texts; ask it for "
              "/v1/embeddings, or serve a model that writes, such as SmolLM2");
  EXPECT_EQ(post(api, "/v1/embeddings", R"({"input": "abc"})").status, 200);
  EXPECT_TRUE(backend.requests.empty());
}

TEST(Api, EndsWhatRunsWhenItIsAborted) {
  FakeBackend backend;
  backend.holds = true;
  Api api(backend, fake_model());
  std::thread aborts([&] {
    EXPECT_TRUE(backend.wait_for_requests(1));
    api.abort();
  });
  EXPECT_EQ(post(api, "/v1/completions", R"({"prompt": "x"})").status, 503);
  aborts.join();
}

}  // namespace
}  // namespace tutti::generate::serve
