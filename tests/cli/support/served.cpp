#include "tests/cli/support/served.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "tests/cli/support/published.h"
#include "tests/cli/support/tiny_run.h"
#include "tests/support/client_socket.h"

namespace tutti::test {
namespace {

using tutti::testing::ClientSocket;

bool waits_until(const std::function<bool()>& condition) {
  for (int tries = 0; tries < 400; ++tries) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return condition();
}

std::string post_text(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// Sends `text`, again when the server has too many connections at the moment, of which clients that vanished may hold
// some; `receive` reads the answer.
template <class Receive>
std::string answer_to(int port, const std::string& text, Receive receive) {
  for (int tries = 0;; ++tries) {
    const ClientSocket client(port);
    client.send(text);
    std::string answer = receive(client);
    if (tries == 500 || !answer.starts_with("HTTP/1.1 503")) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}
std::string whole_answer_to(int port, const std::string& text) {
  return answer_to(port, text, [](const ClientSocket& client) { return client.receive_all(); });
}
std::string status_line(int port, const std::string& text) {
  const std::string answer = whole_answer_to(port, text);
  return answer.substr(0, answer.find("\r\n"));
}

std::string completion(int64_t serial, const std::string& more) {
  return R"({"prompt": "the old river )" + std::to_string(serial % 7) + R"(", "ignore_eos": true, )" + more + "}";
}

using Sender = void (*)(int port, int64_t serial);
const Sender kSenders[] = {
    [](int port, int64_t serial) {
      EXPECT_EQ(status_line(port, post_text("/v1/completions", completion(serial, R"("max_tokens": 5)"))),
                "HTTP/1.1 200 OK");
    },
    [](int port, int64_t serial) {
      const std::string text = post_text("/v1/completions", completion(serial, R"("max_tokens": 9, "stream": true)"));
      EXPECT_NE(whole_answer_to(port, text).find("data: [DONE]"), std::string::npos);
    },
    // The client vanishes behind the first tokens.
    [](int port, int64_t serial) {
      const std::string text = post_text("/v1/completions", completion(serial, R"("stream": true)"));
      const auto begin = [](const ClientSocket& client) { return client.receive("data: "); };
      EXPECT_NE(answer_to(port, text, begin).find("200 OK"), std::string::npos);
    },
    [](int port, int64_t serial) {
      EXPECT_EQ(status_line(port, post_text("/v1/completions",
                                            completion(serial, R"("max_tokens": 4, "n": 4, "logprobs": 2)"))),
                "HTTP/1.1 200 OK");
    },
    [](int port, int64_t) {
      const std::string body = R"({"prompt": ")" + std::string(40000, 'a') + "\"}";
      EXPECT_EQ(status_line(port, post_text("/v1/completions", body)), "HTTP/1.1 400 Bad Request");
    },
    [](int port, int64_t) {
      EXPECT_EQ(status_line(port, post_text("/v1/completions", R"({"prompt": )")), "HTTP/1.1 400 Bad Request");
      EXPECT_EQ(status_line(port, post_text("/v1/embeddings", R"({"input": "a"})")), "HTTP/1.1 400 Bad Request");
      EXPECT_EQ(status_line(port, post_text("/v1/nothing", "{}")), "HTTP/1.1 404 Not Found");
    },
    [](int port, int64_t) {
      EXPECT_EQ(status_line(port, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"),
                "HTTP/1.1 413 Payload Too Large");
    },
    [](int port, int64_t) {
      EXPECT_EQ(status_line(port, post_text("/tokenize", R"({"prompt": "the old river"})")), "HTTP/1.1 200 OK");
    },
    [](int port, int64_t) { const ClientSocket silent(port); },
    [](int port, int64_t) { ClientSocket(port).send("POST /v1/completions HTTP/1.1\r\nContent-Le"); }};

}  // namespace

Served::Served(const std::string& flags, void (*prepare)(const Workplace&)) {
  write_tiny_run(work_);
  write_published_decoder(work_);
  if (prepare != nullptr) prepare(work_);
  std::filesystem::remove(work_.folder() / "out.txt");  // of what prepare() has run
  pid_ = work_.start("serve published --port 0 " + flags);
  const auto line = [&] { return std::filesystem::exists(work_.folder() / "out.txt") ? work_.read("out.txt") : ""; };
  EXPECT_TRUE(waits_until([&] { return line().ends_with("\n"); })) << work_.read("err.txt");
  const std::string text = line();
  if (const size_t colon = text.rfind(':'); colon != std::string::npos) port_ = std::stoi(text.substr(colon + 1));
}

Served::~Served() {
  kill(pid_, SIGTERM);
  EXPECT_EQ(Workplace::wait(pid_), 0) << work_.read("err.txt");
}

double Served::metric(const std::string& name) const {
  const auto answer = httplib::Client("127.0.0.1", port_).Get("/metrics");
  if (!answer) return -1;
  const size_t at = answer->body.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(answer->body.substr(at + name.size() + 2));
}

bool Served::reaches(const std::string& name, double value) const {
  return waits_until([&] { return metric(name) == value; });
}

void Served::settle() const {
  EXPECT_TRUE(reaches("tutti_requests_running", 0));
  EXPECT_TRUE(reaches("tutti_requests_waiting", 0));
  EXPECT_TRUE(reaches("tutti_cache_pages_free", metric("tutti_cache_pages")));
}

int64_t Served::descriptors() const {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid_) + "/fd");
  return std::distance(begin(all), end(all));
}

int64_t Served::status(const std::string& key) const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
  for (std::string word; file >> word;) {
    if (word != key) continue;
    int64_t value = 0;
    file >> value;
    return value;
  }
  return -1;
}

void send_mixed_requests(const Served& server, int64_t count) {
  constexpr int64_t kClients = 8;
  std::vector<std::jthread> clients;
  for (int64_t client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (int64_t serial = client; serial < count; serial += kClients)
        kSenders[static_cast<size_t>(serial / kClients + client) % std::size(kSenders)](server.port(), serial);
    });
  }
}

}  // namespace tutti::test
