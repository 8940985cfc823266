// What the HTTP interface needs of an engine and its model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/generate/request.h"
#include "tutti/generate/serve/api_answer.h"
#include "tutti/generate/serve/api_request.h"
#include "tutti/io/chat_template/published_chat.h"
#include "tutti/io/tokenizer.h"

namespace tutti::generate::serve {

struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;  // must outlive the server
  PublishedChat chat = {};
  std::vector<int32_t> ends = {};        // ids that end a text
  std::vector<int32_t> suppressed = {};  // ids that are never drawn
  std::vector<std::string> stops = {};   // end a text beside those of a request, and are not part of it
  SamplingOptions defaults = {};         // for what a request does not say
  int64_t context = 0;                   // tokens of prompt and text together
  bool writes_texts = true;              // an encoder does not: it only embeds
};

// The vectors of texts, and of how many tokens they were made.
struct Embeddings {
  std::vector<std::vector<float>> vectors;
  int64_t tokens = 0;
};

// Called with each event of a request, by a thread of the backend; must not block.
using EventSink = std::function<void(const Event&)>;

// May be called by any thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // Begins a request. `sink` gets its events, perhaps before this returns; the last one has a finish, after which the
  // sink is dropped. UsageError for requests that cannot run; ApiError 503 (overloaded()) when too many wait.
  virtual RequestId submit(Request request, EventSink sink) = 0;
  // Ends a request that may have ended.
  virtual void cancel(RequestId id) = 0;
  // A vector for each text, or list of ids, which are tokens. ApiError where the model makes none. Between texts it
  // calls `check_wanted`, which throws the ApiError by which the request ends early.
  virtual Embeddings embed(const std::vector<Prompt>& texts, const std::function<void()>& check_wanted);
  // Numbers for /metrics; their names begin with "tutti_".
  virtual std::vector<Metric> metrics() const { return {}; }
};

}  // namespace tutti::generate::serve
