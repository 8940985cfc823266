// Damaged requests are answered, by an error or by a text, whatever the damage.
#include <gtest/gtest.h>

#include "tests/generate/support/fake_backend.h"
#include "tests/support/fuzz_rounds.h"
#include "tutti/generate/serve/api.h"
#include "tutti/runtime/json_document.h"

namespace tutti::generate::serve {
namespace {

// Equal seeds give equal numbers.
struct Numbers {
  uint64_t state = 20261128;
  size_t next(size_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33) % n;
  }
};

std::string damaged(std::string text, Numbers& numbers) {
  static constexpr std::string_view kParts[] = {"null", "-1", "1e99", "\"\"", "[]",      "{}",
                                                "true", ",",  "\"",   "}",    "\\u0000", "\xff"};
  for (size_t edits = 1 + numbers.next(3); edits > 0; --edits) {
    const size_t at = numbers.next(text.size());
    switch (numbers.next(3)) {
      case 0:
        text.erase(at, 1 + numbers.next(4));
        break;
      case 1:
        text.insert(at, kParts[numbers.next(std::size(kParts))]);
        break;
      default: {
        // A value becomes another one.
        const size_t colon = text.find(':', at);
        if (colon != std::string::npos)
          text.replace(colon + 1, text.find_first_of(",}", colon) - colon - 1, kParts[numbers.next(std::size(kParts))]);
      }
    }
    if (text.empty()) text = "{";
  }
  return text;
}

TEST(ApiFuzz, DamagedRequestsAreAnswered) {
  const std::pair<const char*, const char*> kRequests[] = {
      {"/v1/completions",
       R"({"prompt": ["a", [1, 2]], "max_tokens": 3, "temperature": 0.5, "n": 2, "stop": ["x"], "logit_bias": {"5": 1}, "logprobs": 1})"},
      {"/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true, "stream_options": {"include_usage": true}, "tools": [1], "seed": 3})"},
      {"/v1/embeddings", R"({"input": ["a", "b"], "encoding_format": "float", "model": "fake"})"},
      {"/tokenize", R"({"prompt": "abc", "add_special_tokens": true})"},
      {"/detokenize", R"({"tokens": [97, 98]})"}};
  Numbers numbers;
  int64_t refused = 0;
  testing::FuzzRounds rounds(60);
  while (rounds.go_on()) {
    testing::FakeBackend backend("ab");
    Api api(backend, testing::fake_model());
    for (int i = 0; i < 25; ++i) {
      const auto& [path, body] = kRequests[numbers.next(std::size(kRequests))];
      const std::string wrong = damaged(body, numbers);
      const Answer answer = api.handle("POST", path, wrong);
      EXPECT_TRUE(answer.status == 200 || answer.status == 400 || answer.status == 404) << answer.status << wrong;
      while (answer.stream != nullptr && answer.stream->next_events(std::chrono::milliseconds(50))) continue;
      if (answer.stream == nullptr) {
        EXPECT_NO_THROW(JsonDocument(answer.body, {.name = "answer"})) << answer.body;
      }
      refused += answer.status != 200;
    }
  }
  EXPECT_GT(refused, 5 * rounds.made());
}

}  // namespace
}  // namespace tutti::generate::serve
