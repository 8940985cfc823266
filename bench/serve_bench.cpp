#include "bench/serve_bench.h"

#include <httplib.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "bench/measure.h"
#include "tutti/core/error.h"
#include "tutti/core/philox.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::bench {
namespace {

struct ServerAddress {
  std::string host;
  int port = 80;
};

ServerAddress address_of(const std::string& url) {
  std::string_view rest(url);
  constexpr std::string_view kScheme = "http://";
  TUTTI_CHECK(rest.starts_with(kScheme), "bench serve: {}: only http is spoken; expected http://HOST:PORT", url);
  rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  ServerAddress address;
  const size_t colon = rest.ends_with(']') ? std::string_view::npos : rest.rfind(':');
  bool is_right = true;
  if (colon != std::string_view::npos) {
    const std::string_view port = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    is_right = error == std::errc() && end == port.data() + port.size() && address.port > 0 && address.port < 65536;
  }
  address.host = rest.substr(0, colon);
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  is_right = is_right && !address.host.empty() && address.host.find_first_of("/?#@[]") == std::string::npos;
  TUTTI_CHECK(is_right, "bench serve: {} is no address of a server; expected http://HOST:PORT", url);
  return address;
}

// Why nobody answers there, which httplib does not say; "" when somebody does.
std::string why_unreachable(const ServerAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (problem != 0) return gai_strerror(problem);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string reason;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    const bool is_there = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0;
    reason = is_there ? "" : std::strerror(errno);
    if (fd >= 0) close(fd);
    if (is_there) break;
  }
  return reason;
}

double now_ms() { return now_us(MeasuredTime::wall) * 1e-3; }

std::string random_words(int64_t count, uint32_t stream) {
  static constexpr const char* kWords[] = {"river", "old",   "stone", "walks", "under",  "bright",  "quiet", "house",
                                           "seven", "birds", "carry", "water", "toward", "evening", "and",   "the"};
  std::string words;
  for (int64_t i = 0; i < count; ++i) {
    const auto block = philox4x32({static_cast<uint32_t>(i), stream, 0, 0}, philox_key(23));
    words += kWords[block[0] % std::size(kWords)];
    words += ' ';
  }
  return words;
}

std::string body_of(const ServeProblem& problem, uint32_t serial) {
  JsonWriter json;
  json.object().member("prompt", random_words(problem.prompt_words, serial)).member("max_tokens", problem.max_tokens);
  json.member("ignore_eos", true).member("stream", true).member("seed", static_cast<int64_t>(serial));
  json.key("stream_options").object().member("include_usage", true).end().end();
  return json.take();
}

// The events of one stream and when they came.
struct Streamed {
  double begin = now_ms(), end = 0;
  std::vector<double> texts = {};  // when text came
  int64_t prompt_tokens = 0, generated_tokens = 0;
  bool is_whole = false;
  std::string error = {};
  std::string pending = {};

  void take(std::string_view bytes) {
    pending += bytes;
    constexpr std::string_view kData = "data: ";
    for (size_t end_of_event; (end_of_event = pending.find("\n\n")) != std::string::npos;) {
      const std::string event = pending.substr(0, end_of_event);
      pending.erase(0, end_of_event + 2);
      if (event.starts_with(kData)) take_event(event.substr(kData.size()));
    }
  }

 private:
  void take_event(const std::string& text) {
    if (text == "[DONE]") {
      is_whole = true;
      return;
    }
    const JsonDocument json(text, {.name = "event"});
    const JsonValue top = json.top();
    if (const auto failure = top.find_set("error")) error = failure->at("message").string();
    if (const auto usage = top.find_set("usage")) {
      prompt_tokens = usage->at("prompt_tokens").whole();
      generated_tokens = usage->at("completion_tokens").whole();
    }
    const auto choices = top.find_set("choices");
    if (!choices) return;
    for (const auto& [_, choice] : *choices)
      if (!choice.at("text").text().empty()) texts.push_back(now_ms());
  }
};

Streamed ask(httplib::Client& client, const ServeProblem& problem, uint32_t serial) {
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers.emplace("Content-Type", "application/json");
  if (!problem.api_key.empty()) request.headers.emplace("Authorization", "Bearer " + problem.api_key);
  request.body = body_of(problem, serial);
  Streamed streamed;
  std::string refusal;
  request.response_handler = [&](const httplib::Response& response) {
    if (response.status != 200) refusal = fmt::format("HTTP status {}", response.status);
    return true;
  };
  request.content_receiver = [&](const char* data, size_t nbytes, uint64_t, uint64_t) {
    if (!refusal.empty()) {
      if (refusal.size() < 1000) refusal.append(": ").append(data, nbytes);
      return true;
    }
    try {
      streamed.take({data, nbytes});
    } catch (const std::exception& error) {
      streamed.error = fmt::format("the stream is not one of completions: {}", error.what());
    }
    return streamed.error.empty();
  };
  const httplib::Result result = client.send(request);
  streamed.end = now_ms();
  if (!streamed.error.empty()) return streamed;
  if (!result) streamed.error = httplib::to_string(result.error());
  else if (!refusal.empty()) streamed.error = refusal;
  else if (!streamed.is_whole) streamed.error = "the stream broke off";
  return streamed;
}

ServeRow row_of(int clients, const std::vector<std::vector<Streamed>>& of_clients, double seconds) {
  ServeRow row{.clients = clients};
  std::vector<double> first, between, whole;
  for (const std::vector<Streamed>& all : of_clients) {
    for (const Streamed& one : all) {
      ++row.requests;
      if (!one.error.empty()) {
        ++row.errors;
        row.error = one.error;
        continue;
      }
      row.prompt_tokens += one.prompt_tokens;
      row.generated_tokens += one.generated_tokens;
      if (!one.texts.empty()) first.push_back(one.texts.front() - one.begin);
      for (size_t i = 1; i < one.texts.size(); ++i) between.push_back(one.texts[i] - one.texts[i - 1]);
      whole.push_back(one.end - one.begin);
    }
  }
  row.requests_per_s = static_cast<double>(row.requests - row.errors) / seconds;
  row.tokens_per_s = static_cast<double>(row.generated_tokens) / seconds;
  row.first_token = waits_of(std::move(first));
  row.between_tokens = waits_of(std::move(between));
  row.whole = waits_of(std::move(whole));
  return row;
}

}  // namespace

Waits waits_of(std::vector<double> ms) {
  if (ms.empty()) return {};
  std::sort(ms.begin(), ms.end());
  const auto quantile = [&](double q) {
    return ms[static_cast<size_t>(std::ceil(q * static_cast<double>(ms.size()))) - 1];
  };
  return {quantile(0.5), quantile(0.99)};
}

void run_serve_bench(const ServeProblem& problem, const std::function<void(const ServeRow&)>& report) {
  const ServerAddress address = address_of(problem.url);
  const auto connect = [&] {
    auto client = std::make_unique<httplib::Client>(address.host, address.port);
    client->set_keep_alive(true);
    client->set_tcp_nodelay(true);
    client->set_read_timeout(std::chrono::minutes(10));
    return client;
  };
  uint32_t serial = 0;
  const Streamed warm = ask(*connect(), problem, serial++);
  const std::string reason = warm.error.empty() ? "" : why_unreachable(address);
  TUTTI_CHECK_ENV(warm.error.empty(), "bench serve: {} does not answer: {}", problem.url,
                  reason.empty() ? warm.error : reason);
  for (const int clients : problem.clients) {
    std::vector<std::vector<Streamed>> streamed(static_cast<size_t>(clients));
    const double begin = now_ms();
    std::vector<std::jthread> threads;
    for (std::vector<Streamed>& own : streamed) {
      threads.emplace_back([&, first = serial] {
        const auto client = connect();
        for (int64_t r = 0; r < problem.requests; ++r)
          own.push_back(ask(*client, problem, first + static_cast<uint32_t>(r)));
      });
      serial += static_cast<uint32_t>(problem.requests);
    }
    threads.clear();
    report(row_of(clients, streamed, (now_ms() - begin) * 1e-3));
  }
}

}  // namespace tutti::bench
