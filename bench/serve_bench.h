// `tutti bench serve`: clients that stream completions from an HTTP server, and how long they wait.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::bench {

struct ServeProblem {
  std::string url;  // of a running server, such as http://127.0.0.1:8000
  std::string api_key = {};
  std::vector<int> clients = {1, 4, 16};  // at once
  int64_t requests = 8;                   // of each client, one after another
  int64_t prompt_words = 100;
  int64_t max_tokens = 64;  // of each text, which ends there
};

// Middle and worst hundredth of measured times.
struct Waits {
  double p50_ms = 0, p99_ms = 0;
};
// The waits among `ms`; zeros of none.
Waits waits_of(std::vector<double> ms);

struct ServeRow {
  int clients = 0;
  int64_t requests = 0, errors = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0;  // of all requests, as the server counts them
  double requests_per_s = 0, tokens_per_s = 0;      // generated ones
  Waits first_token;                                // from the request to the first event with text
  Waits between_tokens;                             // between events with text, which mostly have a token each
  Waits whole;                                      // from the request to its last byte
  std::string error = {};                           // of a request that failed
};

// A row for each number of clients, which is told when it is measured. Texts are distinct, so that no request reads the
// prompt of another from the cache. A request that is not answered by a whole stream is an error. EnvironmentError when
// nobody answers at the address, UsageError for one that is not http://HOST:PORT.
void run_serve_bench(const ServeProblem& problem, const std::function<void(const ServeRow&)>& report);

}  // namespace tutti::bench
