// `tutti bench serve`.
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "tests/cli/support/published.h"
#include "tests/cli/support/tiny_run.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

TEST(BenchServe, CountsWhatClientsGetAndHowLongTheyWait) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  const Output output =
      work.tutti("bench serve published --clients 1,3 --requests 2 --prompt-words 5 --max-tokens 6 --threads 2 --json");
  ASSERT_EQ(output.status, 0) << output.err;
  std::istringstream lines(output.out);
  const int expected[] = {1, 3};
  size_t row = 0;
  for (std::string line; std::getline(lines, line); ++row) {
    ASSERT_LT(row, 2U) << output.out;
    const JsonDocument document(line, {.name = "row"});
    const JsonValue json = document.top();
    EXPECT_EQ(json.size(), 13U) << line;
    EXPECT_EQ(json.at("clients").whole(), expected[row]);
    EXPECT_EQ(json.at("requests").whole(), 2 * expected[row]);
    EXPECT_EQ(json.at("errors").whole(), 0);
    EXPECT_EQ(json.at("generated_tokens").whole(), 12 * expected[row]);
    EXPECT_GE(json.at("prompt_tokens").whole(), 10 * expected[row]);
    for (const char* time : {"requests_per_s", "tokens_per_s", "ttft_p50_ms", "itl_p50_ms", "request_p50_ms"})
      EXPECT_GT(json.at(time).number(), 0) << time << line;
    for (const std::string wait : {"ttft", "itl", "request"})
      EXPECT_LE(json.at(wait + "_p50_ms").number(), json.at(wait + "_p99_ms").number()) << line;
  }
  EXPECT_EQ(row, 2U);
}

TEST(BenchServe, SaysThatNobodyAnswers) {
  const Workplace work;
  const Output nobody = work.tutti("bench serve http://127.0.0.1:1");
  EXPECT_EQ(nobody.status, 1);
  EXPECT_NE(nobody.err.find("bench serve: http://127.0.0.1:1 does not answer: Connection refused"), std::string::npos)
      << nobody.err;
  EXPECT_EQ(work.tutti("bench serve nowhere").status, 2);
}

TEST(BenchServe, SpeaksHttpAlone) {
  const Workplace work;
  const Output secure = work.tutti("bench serve https://127.0.0.1:1");
  EXPECT_EQ(secure.status, 2);
  EXPECT_NE(secure.err.find("https://127.0.0.1:1: only http is spoken"), std::string::npos) << secure.err;
  for (const char* wrong : {"http://", "http://a/v1", "http://a:0", "http://a:b", "http://a:80x", "http://[::1"}) {
    const Output output = work.tutti(std::string("bench serve ") + wrong);
    EXPECT_EQ(output.status, 2) << wrong;
    EXPECT_NE(output.err.find(std::string(wrong) + " is no address of a server"), std::string::npos) << output.err;
  }
}

// The first stream, by which the bench sees that the server answers, is a good one.
TEST(BenchServe, CountsStreamsOfAnotherKindAsErrors) {
  httplib::Server server;
  std::atomic<int> asked = 0;
  server.Post("/v1/completions", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(++asked == 1 ? "data: [DONE]\n\n" : "data: nonsense\n\n", "text/event-stream");
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread listens([&] { server.listen_after_bind(); });
  const Workplace work;
  const Output output =
      work.tutti("bench serve http://127.0.0.1:" + std::to_string(port) + "/ --clients 2 --requests 3 --json");
  server.stop();
  listens.join();
  EXPECT_EQ(output.status, 1) << output.err;
  EXPECT_NE(output.out.find("\"errors\":6"), std::string::npos) << output.out;
  EXPECT_NE(output.err.find("2 clients: the stream is not one of completions: event"), std::string::npos) << output.err;
}

}  // namespace
}  // namespace tutti::test
