// Engine: continues many texts at once with one model.
//
//   Engine engine(*model, *tokenizer, {.context = 2048});
//   engine.submit({.prompt = tokenizer->encode("Once upon a time"), .max_tokens = 50});
//   while (engine.has_work())
//     for (const Event& event : engine.step()) ...
//
// Requests come and go between steps. Each step runs one batch: a token of each running request, and as much of the
// prompts as the batch has room for. Keys and values lie in pages (paged_cache.h). When no page is left, the youngest
// request is put back, and reads its tokens again when there is room.
//
// Logits, log-probabilities and drawn tokens of a request have the bits of one forward of the model over its tokens, as
// the trainer runs it: they do not depend on other requests, on how its tokens were cut into batches, on pages that it
// shares, or on threads (numerics contract, N10).
//
// submit, cancel, wait and the counters may be called by any thread, step by one at a time.
//
// Several ranks run one engine where they divide the model. Either all of them make the same calls, or the first of
// `led` takes the requests and makes the steps, and the others follow().
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tutti/generate/paged_cache.h"
#include "tutti/generate/request.h"
#include "tutti/generate/step_calls.h"
#include "tutti/io/tokenizer.h"
#include "tutti/models/language_model.h"

namespace tutti {
struct CompileStatistics;
}
namespace tutti::comm {
class ProcessGroup;
}
namespace tutti::dist {
class DeviceMesh;
using Mesh = std::shared_ptr<const DeviceMesh>;
}  // namespace tutti::dist

namespace tutti::generate {

class BatchForward;
class PackagedForward;

struct EngineOptions {
  int64_t context = 2048;      // tokens of a text; at most the positions that the model was made for
  int64_t max_requests = 16;   // that run at once
  int64_t batch_tokens = 512;  // of a step
  // Tokens of prompts in a step in which others write, who wait for it; 0: as many as the step has room for.
  int64_t interleaved_tokens = 128;
  int64_t cache_bytes = int64_t{1} << 30;
  // Cached keys and values are codes of this dtype, i8 or f8e4m3fn, which take about a quarter of f32's memory and
  // change the results, to the same bits in any batch and layout; none: numbers of the dtype in which the model
  // computes.
  std::optional<DType> cache_dtype = {};
  bool shares_prefixes = true;  // requests use the pages of others that begin alike
  models::ForwardOptions forward = {};
  bool compile = false;  // forwards, on all ranks or none; the bits are the same
  // What runs in the place of the model's forwards (packaged_forward.h): the model may then be without weights. The
  // cache is the package's, and no request asks for log-probabilities of its prompt.
  std::shared_ptr<PackagedForward> packaged = {};
  dist::Mesh mesh = {};  // of the ranks that divide the model; null: one
  // Ranks of which the first takes the requests; it must outlive the engine. Null: all make the same calls, and
  // requests have no deadlines and are not cancelled.
  comm::ProcessGroup* led = nullptr;
};

class Engine {
 public:
  // The model must outlive the engine, which puts it into evaluation mode. Only `ids`, in ascending order, are drawn:
  // those of tokens, since a vocabulary may have gaps, and a model rows for none of its tokens.
  // The context is shorter than asked for where the cache holds less. UsageError for sizes that are not positive, and
  // for a cache that holds no page or another dtype.
  Engine(models::LanguageModel& model, std::vector<int32_t> ids, const EngineOptions& options);
  // The ids are those that the tokenizer has.
  Engine(models::LanguageModel& model, const Tokenizer& tokenizer, const EngineOptions& options);
  ~Engine();

  // UsageError for a request that cannot run: an empty prompt, one longer than context and cache allow, ids that the
  // model does not have, settings as validate() refuses them; on a rank that follows.
  RequestId submit(Request request);
  // The request ends with the next step, if it has not ended.
  void cancel(RequestId id);

  // Runs a batch; its events, which are valid until the next step. An error of one request ends that request, an error
  // of the batch ends all that were running; both come as events. What the group of led ranks throws when it passes the
  // calls, such as PeerError for a rank that has died, is thrown.
  const std::vector<Event>& step();
  // Whether this is the first of led ranks. It makes a step at least every few seconds, also without work, for the
  // others wait for it, as long as their group allows.
  bool leads() const;
  // On the other led ranks: makes the steps of the first one until that calls end_following(). Throws as step() does.
  void follow();
  // On the first of led ranks, after the last step.
  void end_following();
  bool has_work() const;
  // Waits until there is work, or until the time has passed; whether there is work.
  bool wait(std::chrono::milliseconds time) const;

  struct Counters {
    int64_t waiting = 0, running = 0;
    int64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0;  // since the engine was made
    int64_t put_back = 0;
    int64_t pages = 0, free_pages = 0, cache_bytes = 0;
  };
  Counters counters() const;

  // Tokens of a text: those of the options, or as many as the cache holds.
  int64_t context() const { return context_; }
  PagedCache& cache() { return *cache_; }  // for tests
  // Tells nothing but zeros where forwards are not compiled.
  CompileStatistics compile_statistics() const;

 private:
  struct Running;
  struct Part;   // tokens of a running request in a batch
  struct Batch;  // what a step makes; its memory stays for the next one

  StepCalls calls();
  void take_submitted();
  void schedule();
  void put_back(std::list<Running>::iterator request);
  void run();
  void draw(const Tensor& logits);
  void add_token(Running& request, GeneratedToken token);
  std::vector<TokenChance> most_likely(const Tensor& logits, int64_t row, const Running& running) const;
  void end(Running& request, Finish finish, std::string error = {});

  models::LanguageModel& model_;
  const EngineOptions options_;
  int64_t context_ = 0;
  std::vector<int32_t> ids_;  // of tokens
  std::unique_ptr<nn::EvalScope> evaluating_;
  std::unique_ptr<PagedCache> cache_;
  std::unique_ptr<BatchForward> forward_;

  mutable std::mutex mutex_;  // of what follows until the next comment
  mutable std::condition_variable changed_;
  std::deque<std::pair<RequestId, Request>> submitted_;
  std::vector<RequestId> cancelled_;
  RequestId last_ = 0;
  Counters counters_;

  // These belong to the thread that calls step.
  std::deque<Running> waiting_;
  std::list<Running> running_;  // the oldest first
  std::unique_ptr<Batch> batch_;
  bool ends_ = false;  // those that follow
};

}  // namespace tutti::generate
