#include "tutti/generate/engine.h"

#include <algorithm>

#include "tutti/autograd/tape.h"
#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/generate/batch_forward.h"
#include "tutti/generate/packaged_forward.h"
#include "tutti/models/decoder_config.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/slice.h"

namespace tutti::generate {
namespace {

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < std::min(vocab, tokenizer.vocab_size()); ++id) {
    if (tokenizer.has_token(id)) ids.push_back(id);
  }
  return ids;
}

EngineOptions checked(const EngineOptions& given) {
  EngineOptions options = given;
  if (options.packaged != nullptr)
    options.batch_tokens = std::min(options.batch_tokens, options.packaged->cache_options().batch_tokens);
  TUTTI_CHECK(options.interleaved_tokens >= 0, "an engine of {} interleaved tokens; expected 0 or more",
              options.interleaved_tokens);
  TUTTI_CHECK(
      options.context > 0 && options.max_requests > 0 && options.batch_tokens >= options.max_requests,
      "an engine of {} tokens of context, {} requests and {} tokens in a batch{}; expected positive numbers, and "
      "a token in the batch for each request",
      options.context, options.max_requests, options.batch_tokens,
      options.batch_tokens == given.batch_tokens ? "" : ", as many as the package allows");
  TUTTI_CHECK(
      !options.cache_dtype || options.cache_dtype == DType::i8 || options.cache_dtype == DType::f8e4m3fn,
      "an engine with a cache of {}; expected i8 or f8e4m3fn, or none for the dtype in which the model computes",
      name_of(*options.cache_dtype));
  return options;
}

Tensor on_mesh(const Tensor& t, const dist::Mesh& mesh) {
  return mesh == nullptr ? t : dist::distribute_tensor(t, mesh, {}, {.src_data_rank = -1});
}

std::span<const float> row_of(const Tensor& rows, int64_t row) {
  const auto columns = static_cast<size_t>(rows.extent(1));
  return {rows.data<float>() + static_cast<size_t>(row) * columns, columns};
}

}  // namespace

struct Engine::Running {
  RequestId id;
  Request request;
  std::vector<int32_t> tokens;  // of the prompt, then generated ones
  size_t begin = 0;             // the first of them that the model still sees
  CachedSequence cached = {};
  std::vector<float> prompt_log_probabilities = {};
  Finish finish = Finish::no;

  std::span<const int32_t> seen() const { return std::span(tokens).subspan(begin); }
  int64_t prompt() const { return std::ssize(request.prompt); }
  int64_t generated() const { return std::ssize(tokens) - prompt(); }
  // Tokens whose keys are not in the cache, but for the last one when nothing follows it.
  int64_t left() const { return std::ssize(seen()) - cached.length - (request.max_tokens == 0 ? 1 : 0); }
};

struct Engine::Part {
  Running* running;
  int64_t count;
  // Behind it, the logits of the next token are known.
  bool reaches_end() const { return count == running->left(); }
};

struct Engine::Batch {
  struct Draw {
    Running* running;
    int64_t row;  // of the logits
  };

  std::vector<Event> events;
  std::vector<Part> parts;
  std::vector<BatchPart> cached;
  std::vector<int32_t> tokens, positions, first_keys;
  std::vector<int32_t> rows;      // whose logits are drawn from
  std::vector<int64_t> labelled;  // rows of prompts whose log-probabilities are asked for
  std::vector<int32_t> labels;    // the tokens behind them
  BatchInputs inputs;             // these as tensors
  std::vector<Draw> draws;
  std::vector<int32_t> drawn, forbidden;
  std::vector<Candidate> candidates;

  void clear() {
    events.clear();
    parts.clear();
    cached.clear();
    for (std::vector<int32_t>* ids : {&tokens, &positions, &first_keys, &rows, &labels, &drawn}) ids->clear();
    labelled.clear();
    draws.clear();
  }
};

Engine::Engine(models::LanguageModel& model, const Tokenizer& tokenizer, const EngineOptions& options)
    : Engine(model, ids_of(tokenizer, model.vocab_size()), options) {}

Engine::Engine(models::LanguageModel& model, std::vector<int32_t> ids, const EngineOptions& options)
    : model_(model),
      options_(checked(options)),
      ids_(std::move(ids)),
      evaluating_(std::make_unique<nn::EvalScope>(model)),
      batch_(std::make_unique<Batch>()) {
  const DType computes = model.named_parameters().front().parameter.use_dtype();
  TUTTI_CHECK(!options.cache_dtype || computes != DType::f64,
              "an engine with a cache of {} for a model in f64; codes stand for numbers in f32, so that the model must "
              "compute in f32, bf16 or f16",
              name_of(*options.cache_dtype));
  PagedCacheOptions cache{.dtype = options.cache_dtype.value_or(computes),
                          .bytes = options.cache_bytes,
                          .context = options.context,
                          .sequences = options.max_requests,
                          .batch_tokens = options.batch_tokens,
                          .ranks = options.mesh == nullptr ? 1 : options.mesh->size()};
  if (options.packaged != nullptr) {
    cache = options.packaged->cache_options();
    TUTTI_CHECK(
        options.mesh == nullptr && !options.compile && (!options.cache_dtype || options.cache_dtype == cache.dtype),
        "an engine of a packaged model runs on one rank, uncompiled, with the package's cache of {}",
        name_of(cache.dtype));
  }
  cache_ = std::make_unique<PagedCache>(model.config(), cache);
  context_ = std::min({options.context, cache_->longest(), cache.context});
  forward_ = std::make_unique<BatchForward>(model_, *cache_, options.forward, options.compile);
}

Engine::~Engine() = default;

CompileStatistics Engine::compile_statistics() const { return forward_->statistics(); }

// ---- from any thread ------------------------------------------------------------------------------------------------

RequestId Engine::submit(Request request) {
  TUTTI_CHECK(options_.led == nullptr || leads(),
              "rank {} follows rank 0, which takes the requests; submit this one there", options_.led->rank());
  const int64_t vocab = model_.vocab_size(), length = std::ssize(request.prompt);
  TUTTI_CHECK(length > 0, "there is no token to continue; give a prompt");
  TUTTI_CHECK(length <= context_ || request.slides, "the prompt has {} tokens; the context holds {}{}", length,
              context_, context_ < options_.context ? ", as many as the memory of the cache does" : "");
  for (const std::vector<int32_t>* ids : {&request.prompt, &request.ends, &request.suppressed}) {
    for (const int32_t id : *ids) TUTTI_CHECK(id >= 0 && id < vocab, "token {} is none of the model's {}", id, vocab);
  }
  TUTTI_CHECK(request.max_tokens >= 0 && request.min_tokens >= 0, "{} to {} tokens; expected 0 or more",
              request.min_tokens, request.max_tokens);
  TUTTI_CHECK(request.top_log_probabilities >= 0 && request.top_log_probabilities <= vocab,
              "log-probabilities of {} tokens; the model has {}", request.top_log_probabilities, vocab);
  TUTTI_CHECK(options_.packaged == nullptr || !request.prompt_log_probabilities,
              "a packaged model gives no log-probabilities of prompts");
  validate(request.sampling, vocab);
  const std::lock_guard lock(mutex_);
  submitted_.emplace_back(++last_, std::move(request));
  ++counters_.waiting;
  changed_.notify_all();
  return last_;
}

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
}

bool Engine::has_work() const {
  const std::lock_guard lock(mutex_);
  return counters_.waiting + counters_.running > 0;
}

bool Engine::wait(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return counters_.waiting + counters_.running > 0; });
}

Engine::Counters Engine::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

// ---- the step -------------------------------------------------------------------------------------------------------

const std::vector<Event>& Engine::step() {
  const NoGradScope no_grad;
  batch_->clear();
  take_submitted();
  schedule();
  try {
    if (!batch_->parts.empty()) run();
  } catch (const std::exception& error) {
    for (Running& running : running_) end(running, Finish::failed, error.what());
  }
  running_.remove_if([](const Running& r) { return r.finish != Finish::no; });
  const std::lock_guard lock(mutex_);
  counters_.running = std::ssize(running_);
  counters_.waiting = std::ssize(waiting_) + std::ssize(submitted_);
  counters_.pages = cache_->pages();
  counters_.free_pages = cache_->available();
  counters_.cache_bytes = cache_->bytes();
  return batch_->events;
}

bool Engine::leads() const { return options_.led != nullptr && options_.led->rank() == 0; }

void Engine::follow() {
  TUTTI_CHECK(options_.led != nullptr && !leads(), "nobody leads this engine; give it the ranks in EngineOptions::led");
  while (!ends_) step();
}

void Engine::end_following() {
  TUTTI_CHECK(leads(), "this engine leads no others");
  ends_ = true;
  step();
}

// What was asked since the last step, on the first of led ranks.
StepCalls Engine::calls() {
  StepCalls calls{.ends = ends_};
  if (options_.led == nullptr || leads()) {
    {
      const std::lock_guard lock(mutex_);
      calls.submitted.assign(std::move_iterator(submitted_.begin()), std::move_iterator(submitted_.end()));
      submitted_.clear();
      calls.cancelled.swap(cancelled_);
    }
    const auto now = std::chrono::steady_clock::now();
    const auto note_if_late = [&](RequestId id, const Request& request) {
      if (request.deadline && *request.deadline <= now) calls.late.push_back(id);
    };
    for (const Running& r : running_) note_if_late(r.id, r.request);
    for (const Running& r : waiting_) note_if_late(r.id, r.request);
    for (const auto& [id, request] : calls.submitted) note_if_late(id, request);
    if (options_.led != nullptr) options_.led->broadcast_bytes(bytes_of(calls), 0);
    return calls;
  }
  return step_calls_in(options_.led->broadcast_bytes({}, 0));
}

// Requests that have come, and those that end for another reason than their text.
void Engine::take_submitted() {
  StepCalls asked = calls();
  for (auto& [id, request] : asked.submitted) {
    waiting_.push_back({.id = id, .request = std::move(request), .tokens = {}});
    Running& last = waiting_.back();
    const int64_t most = std::min(last.request.max_tokens, context_);
    last.tokens.reserve(last.request.prompt.size() + static_cast<size_t>(most));
    last.tokens = last.request.prompt;
    if (std::ssize(last.tokens) > context_) last.begin = last.tokens.size() - static_cast<size_t>(context_);
  }
  ends_ = asked.ends;
  const auto is_in = [](const std::vector<RequestId>& ids, RequestId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  const auto end_if_due = [&](Running& r) {
    if (is_in(asked.cancelled, r.id)) end(r, Finish::cancelled);
    else if (r.left() == 0) end(r, Finish::length);
    else if (is_in(asked.late, r.id)) end(r, Finish::deadline);
    return r.finish != Finish::no;
  };
  running_.remove_if(end_if_due);
  std::erase_if(waiting_, end_if_due);
}

// Requests that write a token each come first, then prompts in the order of their requests.
void Engine::schedule() {
  std::vector<Part>& parts = batch_->parts;
  int64_t room = options_.batch_tokens;
  bool was_full = false;
  // Makes room in the cache for up to `count` more tokens, or puts the request back; returns for how many there is.
  const auto reserve = [&](std::list<Running>::iterator request, int64_t count) -> int64_t {
    while (!cache_->reserve(request->cached, request->cached.length + count)) {
      was_full = true;
      const auto youngest = std::prev(running_.end());
      if (youngest == running_.begin()) {
        if (count > 1) count /= 2;
        else return end(*request, Finish::failed, "the cache has no page left for one more token"), 0;
        continue;
      }
      std::erase_if(parts, [&](const Part& part) {
        if (part.running == &*youngest) room += part.count;
        return part.running == &*youngest;
      });
      const bool is_itself = youngest == request;
      put_back(youngest);
      if (is_itself) return 0;
    }
    return count;
  };
  const auto take = [&](bool writes) {
    for (auto request = running_.begin(); request != running_.end();) {
      const auto here = request++;
      if (here->finish != Finish::no || (here->left() == 1) != writes || room == 0) continue;
      const bool is_last = request == running_.end();
      const int64_t count = reserve(here, std::min(here->left(), room));
      if (count > 0) {
        parts.push_back({&*here, count});
        room -= count;
      }
      // Others at the end may have been put back meanwhile.
      if (is_last || was_full) request = count > 0 ? std::next(here) : running_.end();
    }
  };
  take(true);
  if (!parts.empty() && options_.interleaved_tokens > 0) room = std::min(room, options_.interleaved_tokens);
  take(false);
  while (!was_full && room > 0 && !waiting_.empty() && std::ssize(running_) < options_.max_requests) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const auto request = std::prev(running_.end());
    if (options_.shares_prefixes && !request->request.prompt_log_probabilities) {
      const int64_t reused = cache_->reuse(request->cached, request->seen());
      const std::lock_guard lock(mutex_);
      counters_.reused_tokens += reused;
    }
    const int64_t count = reserve(request, std::min(request->left(), room));
    if (count == 0) break;
    parts.push_back({&*request, count});
    room -= count;
  }
  // One token each first: the cache takes neighbours of that size together.
  const auto is_one = [](const Part& part) { return part.count == 1; };
  if (!std::is_partitioned(parts.begin(), parts.end(), is_one))
    std::stable_partition(parts.begin(), parts.end(), is_one);
}

void Engine::put_back(std::list<Running>::iterator request) {
  cache_->release(request->cached);
  waiting_.push_front(std::move(*request));
  running_.erase(request);
  const std::lock_guard lock(mutex_);
  ++counters_.put_back;
}

void Engine::run() {
  Batch& b = *batch_;
  for (const Part& part : b.parts) {
    const Running& r = *part.running;
    const int64_t first = r.cached.length, end = first + part.count;
    b.cached.push_back({&r.cached, first, part.count});
    for (int64_t at = first; at < end; ++at) {
      if (r.request.prompt_log_probabilities && at >= std::ssize(r.prompt_log_probabilities) && at + 1 < r.prompt()) {
        b.labelled.push_back(std::ssize(b.tokens));
        b.labels.push_back(r.tokens[static_cast<size_t>(at + 1)]);
      }
      b.tokens.push_back(r.seen()[static_cast<size_t>(at)]);
      b.positions.push_back(static_cast<int32_t>(at));
    }
    if (part.reaches_end() && r.request.max_tokens > 0)
      b.rows.push_back(static_cast<int32_t>(std::ssize(b.tokens) - 1));
  }
  b.first_keys.resize(b.tokens.size(), 0);
  cache_->describe(b.cached, b.inputs.cached);
  const auto give = [&](Tensor& input, const auto& values) {
    input = values.empty() ? Tensor() : on_mesh(Tensor::of(values), options_.mesh);
  };
  give(b.inputs.tokens, b.tokens);
  give(b.inputs.positions, b.positions);
  give(b.inputs.first_keys, b.first_keys);
  give(b.inputs.rows, b.rows);
  give(b.inputs.labelled, b.labelled);
  give(b.inputs.labels, b.labels);
  const auto [logits, losses] = options_.packaged != nullptr ? (*options_.packaged)(b.inputs) : (*forward_)(b.inputs);

  size_t next_label = 0;
  int64_t of_prompts = 0;

  int64_t first_row = 0;
  for (const Part& part : b.parts) {
    Running& r = *part.running;
    const bool reaches_end = part.reaches_end();
    if (r.cached.length < r.prompt()) of_prompts += part.count;
    for (int64_t at = r.cached.length; at < r.cached.length + part.count; ++at) {
      if (r.request.prompt_log_probabilities && at >= std::ssize(r.prompt_log_probabilities) && at + 1 < r.prompt())
        r.prompt_log_probabilities.push_back(-losses.data<float>()[next_label++]);
    }
    cache_->advance(r.cached, r.seen(), r.cached.length + part.count);
    if (!reaches_end) continue;
    if (r.request.max_tokens == 0) end(r, Finish::length);
    else b.draws.push_back({&r, first_row++});
  }
  draw(logits);
  const std::lock_guard lock(mutex_);
  counters_.prompt_tokens += of_prompts;
}

// Draws a token from each of these rows of logits; those of one request fail alone.
void Engine::draw(const Tensor& logits) {
  Batch& b = *batch_;
  if (b.draws.empty()) return;
  for (const auto& [running, row] : b.draws) {
    Running& r = *running;
    b.drawn.push_back(0);
    b.forbidden.assign(r.request.suppressed.begin(), r.request.suppressed.end());
    if (r.generated() < r.request.min_tokens)
      b.forbidden.insert(b.forbidden.end(), r.request.ends.begin(), r.request.ends.end());
    try {
      b.drawn.back() =
          draw_token(row_of(logits, row), ids_, r.request.sampling, {r.tokens, r.prompt(), b.forbidden}, b.candidates);
    } catch (const UsageError& error) {
      end(r, Finish::failed, error.what());
    }
  }
  const Tensor losses = cross_entropy(logits, Tensor::of(b.drawn));
  for (const auto& [running, row] : b.draws) {
    if (running->finish != Finish::no) continue;
    const int32_t id = b.drawn[static_cast<size_t>(row)];
    add_token(*running, {id, -losses.data<float>()[row], most_likely(logits, row, *running)});
  }
}

void Engine::add_token(Running& r, GeneratedToken token) {
  const Request& q = r.request;
  std::vector<Event>& events = batch_->events;
  if (std::find(q.ends.begin(), q.ends.end(), token.id) != q.ends.end()) return end(r, Finish::end);
  r.tokens.push_back(token.id);
  events.push_back({.request = r.id, .token = std::move(token)});
  if (r.generated() == 1) events.back().prompt_log_probabilities = r.prompt_log_probabilities;
  {
    const std::lock_guard lock(mutex_);
    ++counters_.generated_tokens;
  }
  if (r.generated() == q.max_tokens || (!q.slides && std::ssize(r.seen()) > context_)) {
    events.back().finish = r.finish = Finish::length;
    cache_->release(r.cached);
  } else if (std::ssize(r.seen()) > context_) {
    cache_->release(r.cached);
    r.begin = r.tokens.size() - static_cast<size_t>(context_);
  }
}

// The most likely tokens of a row with their log-probabilities.
std::vector<TokenChance> Engine::most_likely(const Tensor& logits, int64_t row, const Running& running) const {
  const int64_t count = std::min(running.request.top_log_probabilities, std::ssize(ids_));
  if (count == 0) return {};
  const auto values = row_of(logits, row);
  std::vector<int32_t> ids = ids_;
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  ids.resize(static_cast<size_t>(count));
  const Tensor losses = cross_entropy(expand(narrow(logits, 0, row, 1), {count, logits.extent(1)}), Tensor::of(ids));
  std::vector<TokenChance> top;
  for (int64_t i = 0; i < count; ++i) top.push_back({ids[static_cast<size_t>(i)], -losses.data<float>()[i]});
  return top;
}

void Engine::end(Running& r, Finish finish, std::string error) {
  if (r.finish != Finish::no) return;
  r.finish = finish;
  cache_->release(r.cached);
  batch_->events.push_back({.request = r.id, .finish = finish, .error = std::move(error)});
  if (r.generated() == 0) batch_->events.back().prompt_log_probabilities = r.prompt_log_probabilities;
}

}  // namespace tutti::generate
