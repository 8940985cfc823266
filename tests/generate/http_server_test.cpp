// The HTTP interface over real sockets.
#include "tutti/generate/serve/http_server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include "tests/generate/support/fake_backend.h"
#include "tests/support/client_socket.h"
#include "tests/support/message_of.h"

namespace tutti::generate::serve {
namespace {

using testing::ClientSocket;
using testing::fake_model;
using testing::FakeBackend;
using namespace std::chrono_literals;

constexpr const char* kChat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
constexpr const char* kStream = R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true})";

constexpr const char* kTexts = R"({"input": ["one", "two", "three"]})";

std::string request_text(const std::string& body, const std::string& path = "/v1/chat/completions") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", path, body.size(), body);
}

// A place is free a moment after the client that had it sees its end.
bool answers_soon(HttpServer& server) {
  for (int tries = 0; tries < 100; ++tries) {
    const auto answer = httplib::Client("127.0.0.1", server.port()).Get("/health");
    if (answer && answer->status == 200) return true;
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

TEST(HttpServer, AnswersOverASocket) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  EXPECT_EQ(server.url(), fmt::format("http://127.0.0.1:{}", server.port()));
  httplib::Client client("127.0.0.1", server.port());
  const auto health = client.Get("/health");
  ASSERT_TRUE(health);
  EXPECT_EQ(health->body, R"({"status":"ok"})");
  const auto chat = client.Post("/v1/chat/completions", kChat, "application/json");
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->status, 200);
  EXPECT_NE(chat->body.find(R"("content":"Hello")"), std::string::npos) << chat->body;
  const auto page = client.Get("/");
  ASSERT_TRUE(page);
  EXPECT_NE(page->get_header_value("Content-Security-Policy").find("default-src 'none'"), std::string::npos);
  const auto absent = client.Get("/x");
  ASSERT_TRUE(absent);
  EXPECT_EQ(absent->status, 404);
  EXPECT_NE(absent->body.find(R"("code":"not_found")"), std::string::npos);
  const auto wrong = client.Put("/v1/models", "", "text/plain");
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->status, 405);
}

TEST(HttpServer, StreamsWhatComes) {
  FakeBackend backend;
  backend.holds = true;
  HttpServer server(backend, fake_model(), {});
  const ClientSocket client(server.port());
  client.send(request_text(kStream));
  const std::string begun = client.receive(R"("content":"o")");
  EXPECT_NE(begun.find("Content-Type: text/event-stream"), std::string::npos) << begun;
  EXPECT_EQ(begun.find("[DONE]"), std::string::npos) << "text comes before the end does";
  backend.release();
  EXPECT_NE(client.receive("[DONE]").find(R"("finish_reason":"stop")"), std::string::npos);
}

TEST(HttpServer, EndsTheRequestOfAClientThatLeaves) {
  FakeBackend backend;
  backend.holds = true;
  HttpServer server(backend, fake_model(), {});
  ClientSocket client(server.port());
  client.send(request_text(kStream));
  client.receive(R"("content":"o")");
  client.close();
  EXPECT_TRUE(backend.wait_for_cancel(1));
}

TEST(HttpServer, EndsAWholeAnswerWhoseClientLeaves) {
  FakeBackend backend;
  backend.holds = true;
  HttpServer server(backend, fake_model(), {});
  ClientSocket client(server.port()), reader(server.port());
  client.send(request_text(kChat));
  EXPECT_TRUE(backend.wait_for_requests(1));
  reader.send(request_text(kTexts, "/v1/embeddings"));
  EXPECT_TRUE(backend.wait_for_embeds(1));
  client.close();
  EXPECT_TRUE(backend.wait_for_cancel(1));
  reader.close();
  EXPECT_TRUE(backend.wait_for_embeds(0));
}

TEST(HttpServer, DropsAClientThatDoesNotRead) {
  FakeBackend backend(std::string(100000, 'x'));  // events of more bytes than the buffers of both sides
  backend.holds = true;
  ServedModel model = fake_model();
  model.context = 1 << 20;
  HttpServer server(backend, model, {.io_timeout = 1s});
  const ClientSocket client(server.port());
  client.send(request_text(kStream));
  EXPECT_TRUE(backend.wait_for_cancel(1));
}

TEST(HttpServer, AsksForItsKey) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {.api_key = "secret"});
  httplib::Client client("127.0.0.1", server.port());
  for (const char* given : {"", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret"}) {
    const auto answer = client.Post("/v1/chat/completions", {{"Authorization", given}}, kChat, "application/json");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 401) << given;
    EXPECT_NE(answer->body.find(R"("code":"invalid_api_key")"), std::string::npos);
  }
  EXPECT_EQ(
      client.Post("/v1/chat/completions", {{"Authorization", "Bearer secret"}}, kChat, "application/json")->status,
      200);
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_EQ(client.Get("/v1/models")->status, 401);
  EXPECT_EQ(backend.requests.size(), 1U);
}

TEST(HttpServer, ServesOthersWithAKeyAlone) {
  FakeBackend backend;
  EXPECT_EQ(message_of([&] { HttpServer(backend, fake_model(), {.host = "0.0.0.0"}); }),
            "the address 0.0.0.0 can be reached by others: set an API key, or serve 127.0.0.1");
  EXPECT_EQ(message_of([&] { HttpServer(backend, fake_model(), {.host = "127.evil.example"}); }),
            "the address 127.evil.example can be reached by others: set an API key, or serve 127.0.0.1");
}

TEST(HttpServer, RefusesPagesOfStrangers) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  httplib::Client client("127.0.0.1", server.port());
  const std::string own = fmt::format("127.0.0.1:{}", server.port());
  const auto status = [&](const httplib::Headers& headers) {
    return client.Post("/v1/chat/completions", headers, kChat, "application/json")->status;
  };
  EXPECT_EQ(status({{"Origin", "http://" + own}, {"Host", own}}), 200);
  EXPECT_EQ(status({{"Origin", "https://evil.example"}, {"Host", own}}), 403);
  for (const char* name : {"evil.example", "127.evil.example", "127.0.0.1.evil.example:80", "127.0.0", "128.0.0.1"})
    EXPECT_EQ(status({{"Host", name}}), 403) << "a name that leads here: " << name;
  EXPECT_EQ(status({{"Host", "127.1.2.3"}}), 200);
  EXPECT_EQ(status({{"Host", fmt::format("localhost:{}", server.port())}}), 200);
}

TEST(HttpServer, RefusesLargeBodies) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {.body_nbytes = 1000});
  httplib::Client client("127.0.0.1", server.port());
  const auto large = client.Post("/v1/chat/completions", std::string(1001, ' '), "application/json");
  ASSERT_TRUE(large);
  EXPECT_EQ(large->status, 413);
  EXPECT_NE(large->body.find("\"error\""), std::string::npos) << large->body;
  // Without a length, chunk by chunk.
  const ClientSocket chunked(server.port());
  chunked.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; ++i) chunked.send(fmt::format("{:x}\r\n{}\r\n", 500, std::string(500, ' ')));
  EXPECT_NE(chunked.receive("\r\n\r\n").find("413"), std::string::npos);
  EXPECT_EQ(client.Get("/health")->status, 200) << "the next request is answered";
}

TEST(HttpServer, RefusesAnAnnouncedBodyBeforeItComes) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  const std::pair<const char*, const char*> cases[] = {
      {"1073741824", "a body of 1073741824 bytes is announced; at most 4194304 are taken"},
      {"99999999999999999999999", "a body of 99999999999999999999999 bytes is announced"},
      {"-5", "Content-Length is '-5'; expected a number of bytes"},
      {"5x", "Content-Length is '5x'; expected a number of bytes"}};
  for (const auto& [length, message] : cases) {
    const ClientSocket client(server.port());
    client.send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", length));
    const std::string answer = client.receive_all();
    EXPECT_NE(answer.find(message), std::string::npos) << answer;
    EXPECT_TRUE(answer.starts_with(*length == '1' || *length == '9' ? "HTTP/1.1 413" : "HTTP/1.1 400")) << answer;
  }
}

// What such a body holds would be answered as a request of its own.
TEST(HttpServer, EndsAConnectionWhoseBodyIsNotRead) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  const std::string hidden = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string length = fmt::format("Content-Length: {}\r\n", hidden.size());
  const std::string whole = hidden, chunk = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", hidden.size(), hidden);
  const std::tuple<const char*, std::string, std::string, const char*> cases[] = {
      {"GET /health", length, whole, "200"},
      {"GET /health", "Transfer-Encoding: chunked\r\n", chunk, "200"},
      {"HEAD /health", length, whole, "200"},
      {"OPTIONS /health", length, whole, "404"},
      {"DELETE /health", length, whole, "405"},
      {"DELETE /health", "Transfer-Encoding: chunked\r\n", chunk, "405"},
      {"POST /tokenize", length + "Range: nonsense\r\n", whole, "416"},
      {"POST /tokenize", length + "Content-Length: 0\r\n", whole, "400"},
      {"POST /tokenize", length + "Transfer-Encoding: chunked\r\n", chunk, "400"},
      {"POST /tokenize", "Transfer-Encoding: gzip, chunked\r\n", chunk, "501"},
      {"POST /tokenize", length + "Content-Encoding: gzip\r\n", whole, "415"},
      {"POST /tokenize", length + "Content-Type: multipart/form-data; boundary=x\r\n", whole, "415"}};
  for (const auto& [line, headers, body, status] : cases) {
    const ClientSocket client(server.port());
    client.send(fmt::format("{} HTTP/1.1\r\nHost: localhost\r\n{}\r\n{}", line, headers, body));
    const std::string answer = client.receive_all();
    EXPECT_TRUE(answer.starts_with(std::string("HTTP/1.1 ") + status)) << line << " " << headers << answer;
    EXPECT_EQ(answer.find("\"object\":\"model\""), std::string::npos) << line << " " << headers << answer;
    EXPECT_EQ(answer.find("EXCEPTION_WHAT"), std::string::npos) << answer;
  }
}

TEST(HttpServer, SaysWhichBodiesItTakes) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  httplib::Client client("127.0.0.1", server.port());
  const auto error = [&](const httplib::Headers& headers, const char* type) {
    return client.Post("/tokenize", headers, "{}", type)->body;
  };
  EXPECT_NE(error({}, "multipart/form-data; boundary=x").find("supported is application/json"), std::string::npos);
  EXPECT_NE(error({{"Content-Encoding", "gzip"}}, "application/json")
                .find("Content-Encoding is 'gzip'; supported is identity"),
            std::string::npos);
  const auto of_two = error({{"Content-Length", "2"}, {"Transfer-Encoding", "chunked"}}, "application/json");
  EXPECT_NE(of_two.find("come 2 times; expected one of them, once"), std::string::npos) << of_two;
}

TEST(HttpServer, ARequestWithoutALengthHasNoBody) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  const ClientSocket client(server.port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string both = client.receive("\"ok\"");
  EXPECT_TRUE(both.starts_with("HTTP/1.1 400")) << both;
  EXPECT_NE(both.find(R"({"status":"ok"})"), std::string::npos) << both;
}

TEST(HttpServer, AnswersAreWholeWhateverRangeIsAsked) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  httplib::Client client("127.0.0.1", server.port());
  const auto answer = client.Get("/health", {{"Range", "bytes=1-3"}});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, R"({"status":"ok"})");
}

TEST(HttpServer, DropsAClientThatSendsAByteNowAndThen) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {.connections = 1, .request_time = 1s});
  const ClientSocket client(server.port());
  bool is_dropped = false;
  for (int i = 0; i < 200 && !is_dropped; ++i) is_dropped = !client.trickle(i == 0 ? "G" : "x", 50ms);
  EXPECT_TRUE(is_dropped);
  EXPECT_TRUE(answers_soon(server));
}

TEST(HttpServer, ConnectionsThatAskForNothingHoldNobodyUp) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {.connections = 2});
  std::vector<std::unique_ptr<ClientSocket>> idle;
  for (int i = 0; i < 100; ++i) idle.push_back(std::make_unique<ClientSocket>(server.port()));
  for (const auto& one : idle) {
    const std::string answer = one->receive_all();
    EXPECT_TRUE(answer.empty() || answer.find("no more are allowed") != std::string::npos) << answer;
  }
  EXPECT_TRUE(answers_soon(server));
}

TEST(HttpServer, TellsConnectionsThatAreTooMany) {
  FakeBackend backend;
  backend.holds = true;
  HttpServer server(backend, fake_model(), {.connections = 2});
  const ClientSocket first(server.port()), second(server.port());
  first.send(request_text(kStream));
  second.send(request_text(kStream));
  first.receive(R"("content":"o")");
  second.receive(R"("content":"o")");
  const ClientSocket third(server.port());
  third.send(request_text(kChat));
  const std::string answer = third.receive("}}");
  EXPECT_NE(answer.find("HTTP/1.1 503"), std::string::npos) << answer;
  EXPECT_NE(answer.find("2 connections are open, and no more are allowed"), std::string::npos) << answer;
  backend.release();
  first.receive("[DONE]");
}

TEST(HttpServer, TellsWhenTheEngineIsFull) {
  FakeBackend backend;
  backend.is_full = true;
  HttpServer server(backend, fake_model(), {});
  httplib::Client client("127.0.0.1", server.port());
  const auto answer = client.Post("/v1/chat/completions", kChat, "application/json");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->get_header_value("Retry-After"), "1");
}

TEST(HttpServer, LetsRequestsEndWhenItStops) {
  FakeBackend backend;
  backend.holds = true;
  HttpServer server(backend, fake_model(), {});
  const ClientSocket client(server.port());
  client.send(request_text(kStream));
  client.receive(R"("content":"o")");
  std::thread stops([&] { server.stop(); });
  backend.release();
  EXPECT_NE(client.receive("[DONE]").find("[DONE]"), std::string::npos);
  stops.join();
  EXPECT_FALSE(httplib::Client("127.0.0.1", server.port()).Get("/health"));
}

TEST(HttpServer, EndsRequestsThatDoNotEnd) {
  FakeBackend backend;
  backend.holds = true;
  HttpServer server(backend, fake_model(), {.drain = 0s});
  const ClientSocket client(server.port());
  client.send(request_text(kStream));
  client.receive(R"("content":"o")");
  const ClientSocket whole(server.port()), reader(server.port());
  whole.send(request_text(kChat));
  reader.send(request_text(kTexts, "/v1/embeddings"));
  EXPECT_TRUE(backend.wait_for_requests(2) && backend.wait_for_embeds(1));
  server.stop();
  EXPECT_NE(client.receive("[DONE]").find("the server stops"), std::string::npos);
  EXPECT_NE(whole.receive_all().find("the server stops"), std::string::npos);
  EXPECT_NE(reader.receive_all().find("the server stops"), std::string::npos);
  EXPECT_TRUE(backend.wait_for_cancel(1) && backend.wait_for_cancel(2));
}

TEST(HttpServer, SharesNoPort) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  EXPECT_THROW(HttpServer(backend, fake_model(), {.port = server.port()}), EnvironmentError);
}

TEST(HttpServer, AnswersBehindNonsense) {
  FakeBackend backend;
  HttpServer server(backend, fake_model(), {});
  for (const std::string& nonsense :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string(20000, 'x') + "\r\n\r\n",
        std::string("POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n"),
        std::string("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        std::string("GET /%00%ff/../.. HTTP/1.1\r\n\r\n")}) {
    ClientSocket client(server.port());
    client.send(nonsense);
  }
  EXPECT_TRUE(answers_soon(server));
}

}  // namespace
}  // namespace tutti::generate::serve
