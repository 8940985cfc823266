// Faults of clients and of the engine, met by the server as a process: others go on, and nothing stays held.
#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "tests/cli/support/served.h"
#include "tests/support/client_socket.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

using tutti::testing::ClientSocket;

// The text of a completion, or what came instead.
std::string text_of(int port, const std::string& body) {
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(60);
  const auto answer = client.Post("/v1/completions", body, "application/json");
  if (!answer || answer->status != 200) return answer ? answer->body : "no answer";
  const JsonDocument json(answer->body, {.name = "answer"});
  return (*json.top().at("choices").begin()).value.at("text").string();
}

std::string post_text(const std::string& body) {
  return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

constexpr const char* kShort = R"({"prompt": "the old river", "max_tokens": 4, "seed": 1})";

// A thousand that ask for a text and one in ten of them for nothing.
TEST(ServeFaults, AThousandConnectionsAreAnsweredOrTold) {
  const Served server("--connections 8");
  const std::string expected = text_of(server.port(), kShort);
  std::vector<std::unique_ptr<ClientSocket>> all;
  for (int i = 0; i < 1000; ++i) all.push_back(std::make_unique<ClientSocket>(server.port()));
  // The server may have told some already that they are too many.
  for (size_t i = 0; i < all.size(); ++i)
    if (i % 10 != 9) all[i]->offer(post_text(kShort));
  int answered = 0, told = 0;
  for (const auto& one : all) {
    const std::string answer = one->receive_all();
    answered += answer.starts_with("HTTP/1.1 200");
    told += answer.starts_with("HTTP/1.1 503") && answer.find("8 connections are open") != std::string::npos;
  }
  EXPECT_GE(answered, 1);
  EXPECT_GE(answered + told, 880);  // those that asked for nothing and got a place are closed without a word
  EXPECT_TRUE(server.reaches("tutti_requests_running", 0));
  EXPECT_EQ(text_of(server.port(), kShort), expected);
  EXPECT_LE(server.threads(), 8 + 16 + 16);
}

TEST(ServeFaults, BodiesOfAGigabyteAreRefusedWithoutMemory) {
  const Served server("");
  text_of(server.port(), kShort);
  const int64_t before = server.resident_kib();
  const ClientSocket announced(server.port());
  announced.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n");
  EXPECT_TRUE(announced.receive_all().starts_with("HTTP/1.1 413"));
  const std::string mebibyte(1 << 20, ' ');
  for (const char* head : {"Content-Length: 1073741824\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"}) {
    const ClientSocket sent(server.port());
    sent.send(std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n") + head);
    bool is_taken = true;
    for (int i = 0; i < 1024 && is_taken; ++i)
      is_taken = sent.offer(*head == 'T' ? "100000\r\n" + mebibyte + "\r\n" : mebibyte);
    EXPECT_FALSE(is_taken) << head;
    EXPECT_LE(server.resident_kib(), before + 16 * 1024) << head;
  }
  EXPECT_FALSE(text_of(server.port(), kShort).empty());
}

TEST(ServeFaults, ClientsThatReadNothingKeepNobodyWaiting) {
  const Served server("--connections 16");
  const std::string expected = text_of(server.port(), kShort);
  const std::string stream = R"({"prompt": "the old", "max_tokens": 3000, "stream": true, "ignore_eos": true})";
  std::vector<std::unique_ptr<ClientSocket>> slow;
  for (int i = 0; i < 7; ++i) {
    slow.push_back(std::make_unique<ClientSocket>(server.port()));
    slow.back()->send(post_text(stream));
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(text_of(server.port(), kShort), expected);
  slow.clear();
  EXPECT_TRUE(server.reaches("tutti_requests_running", 0));
  EXPECT_LT(server.metric("tutti_generated_tokens_total"), 7 * 3000);
}

TEST(ServeFaults, ClientsThatLeaveEndTheirTexts) {
  const Served server("--context 3000");
  for (const char* streams : {"true", "false"}) {
    const ClientSocket client(server.port());
    client.send(post_text(std::string(R"({"prompt": "the old", "ignore_eos": true, "stream": )") + streams + "}"));
    EXPECT_TRUE(server.reaches("tutti_requests_running", 1));
  }
  EXPECT_TRUE(server.reaches("tutti_requests_running", 0));
  EXPECT_LT(server.metric("tutti_generated_tokens_total"), 2 * 2990);
}

// Twelve texts of which the cache holds few at once: each is that of its request alone.
TEST(ServeFaults, AFullCachePutsRequestsBack) {
  const Served server("--cache-mbytes 1 --context 2000");
  const auto body = [](int seed) {
    return R"({"prompt": "river )" + std::to_string(seed) +
           R"( is old", "max_tokens": 800, "ignore_eos": true, "seed": )" + std::to_string(seed) + "}";
  };
  std::vector<std::string> alone, together(12);
  for (int seed = 0; seed < 12; ++seed) alone.push_back(text_of(server.port(), body(seed)));
  std::vector<std::jthread> clients;
  for (int seed = 0; seed < 12; ++seed)
    clients.emplace_back([&, seed] { together[static_cast<size_t>(seed)] = text_of(server.port(), body(seed)); });
  clients.clear();
  EXPECT_EQ(together, alone);
  for (const std::string& text : alone) EXPECT_EQ(text.find("\"error\""), std::string::npos) << text;
  EXPECT_GT(server.metric("tutti_put_back_total"), 0);
  EXPECT_TRUE(server.reaches("tutti_cache_pages_free", server.metric("tutti_cache_pages")));
}

// The weights of the last norm become NaN, so that no token can be drawn.
void damage_model(const Workplace& work) {
  const std::string name = (work.folder() / "published/model.safetensors").string();
  std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  std::string header(length, ' ');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const JsonDocument json(header, {.name = "header"});
  std::vector<int64_t> offsets;
  for (const auto& [_, offset] : json.top().at("model.norm.weight").at("data_offsets"))
    offsets.push_back(offset.whole());
  file.seekp(static_cast<std::streamoff>(8 + length) + offsets.at(0));
  for (int64_t at = offsets.at(0); at < offsets.at(1); at += 4) file.write("\0\0\xc0\x7f", 4);
}

TEST(ServeFaults, AnEngineThatFailsIsToldToItsClient) {
  const Served server("", damage_model);
  for (int i = 0; i < 3; ++i) {
    const std::string error = text_of(server.port(), kShort);
    EXPECT_NE(error.find("is NaN; the model has diverged or its file is damaged"), std::string::npos) << error;
    EXPECT_NE(error.find(R"("code":"engine_failed")"), std::string::npos) << error;
  }
  const ClientSocket stream(server.port());
  stream.send(post_text(R"({"prompt": "the old river", "stream": true})"));
  const std::string streamed = stream.receive_all();
  EXPECT_NE(streamed.find(R"("code":"engine_failed")"), std::string::npos) << streamed;
  EXPECT_TRUE(server.reaches("tutti_cache_pages_free", server.metric("tutti_cache_pages")));
}

// tests/nightly/serve_requests_test.cpp sends 10,000.
TEST(ServeFaults, RequestsOfAllKindsLeaveNothingBehind) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int64_t count = 1000, kib = int64_t{1} << 20;  // freed memory is kept, to find who uses it
#else
  constexpr int64_t count = 10000, kib = 8 << 10;
#endif
  const Served server("--connections 16 --context 512 --cache-mbytes 8 --max-requests 8");
  send_mixed_requests(server, count / 5);  // these bring its memory up
  server.settle();
  const int64_t descriptors = server.descriptors(), resident = server.resident_kib(), threads = server.threads();
  send_mixed_requests(server, count);
  server.settle();
  for (int tries = 0; tries < 200 && server.descriptors() > descriptors; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(server.descriptors(), descriptors);
  EXPECT_LE(server.threads(), 16 + 16 + 16);
  // A worker that had nothing to do before has memory of its own.
  const int64_t of_workers = 1024 * std::max<int64_t>(server.threads() - threads, 0);
  EXPECT_LE(server.resident_kib(), resident + kib + of_workers) << "before: " << resident;
}

}  // namespace
}  // namespace tutti::test
