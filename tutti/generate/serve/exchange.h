// One request for texts: its prompts in the engine, and its answer, whole or as a stream.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tutti/generate/serve/api_answer.h"
#include "tutti/generate/serve/api_request.h"
#include "tutti/generate/serve/backend.h"
#include "tutti/generate/serve/text_stream.h"

namespace tutti::generate::serve {

// What is to be generated: settings.n texts for each prompt.
struct ExchangePlan {
  AnswerHead head;
  TextSettings settings;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> echoes;  // what the texts begin with, by prompt; empty: nothing
  uint64_t seed = 1;                // of the first text, when the request has none; the others follow
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::shared_ptr<const std::atomic<bool>> is_aborted;  // ends the exchange; nullptr: nothing does
};

// For one thread. Ends what runs when it goes.
class Exchange {
 public:
  // Submits all texts. ApiError when a prompt is too long, or the backend refuses; then none runs.
  Exchange(Backend& backend, const ServedModel& model, ExchangePlan plan);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Waits until all texts have ended. ApiError 500 when one failed, 503 when the exchange is aborted, 499 when the
  // client has left, for which it looks ten times a second.
  std::string answer(const std::function<bool()>& client_is_there);
  // Server-Sent Events that came within `patience`, perhaps ""; nothing after the last one, which is [DONE].
  std::optional<std::string> next_events(std::chrono::milliseconds patience);

 private:
  struct Text {
    RequestId id = 0;
    Choice choice;  // of an answer, or since the last chunk
    TextStream stream;
    int64_t tokens = 0;
    std::string reason;  // for which it ended
    bool is_done = false;
  };
  // Shared with the sinks, which may be called after the exchange has gone.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<size_t, Event>> events;
  };

  void submit(size_t prompt, int64_t choice);
  Request request_for(size_t prompt, int64_t choice) const;
  std::deque<std::pair<size_t, Event>> take_events(std::chrono::milliseconds patience);
  void take(Text& text, const Event& event);
  void end(Text& text, const std::string& reason);
  void cancel_all();
  void check_failure() const;
  std::string chunks_of(Text& text);
  Usage usage() const;

  Backend& backend_;
  const ServedModel& model_;
  ExchangePlan plan_;
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::vector<std::unique_ptr<Text>> texts_;
  std::string failure_;
  bool has_begun_ = false;  // of a stream
  bool has_ended_ = false;
};

}  // namespace tutti::generate::serve
