#include "tutti/generate/serve/exchange.h"

#include <algorithm>

#include "tutti/generate/serve/api_error.h"

namespace tutti::generate::serve {
namespace {

// How often an answer looks whether its client is still there.
constexpr std::chrono::milliseconds kBetweenLooks{100};

std::string reason_of(Finish finish) {
  switch (finish) {
    case Finish::end:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::deadline:
      return "timeout";
    case Finish::cancelled:
      return "cancelled";
    default:
      return "error";
  }
}

}  // namespace

Embeddings Backend::embed(const std::vector<Prompt>&, const std::function<void()>&) {
  throw bad_request(
      "the model that is served writes texts and makes no embeddings; serve an encoder for these, such as "
      "all-MiniLM-L6-v2",
      "not_supported");
}

Exchange::Exchange(Backend& backend, const ServedModel& model, ExchangePlan plan)
    : backend_(backend), model_(model), plan_(std::move(plan)) {
  try {
    for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt)
      for (int64_t choice = 0; choice < plan_.settings.n; ++choice) submit(prompt, choice);
  } catch (const UsageError& error) {
    cancel_all();
    throw bad_request(error.what());
  } catch (...) {
    cancel_all();
    throw;
  }
}

Exchange::~Exchange() { cancel_all(); }

void Exchange::cancel_all() {
  for (const auto& text : texts_)
    if (!text->is_done) backend_.cancel(text->id);
}

Request Exchange::request_for(size_t prompt, int64_t choice) const {
  const TextSettings& settings = plan_.settings;
  const std::vector<int32_t>& ids = plan_.prompts[prompt];
  if (ids.empty()) throw bad_request("a prompt has no tokens", "empty_prompt");
  const int64_t room = model_.context - std::ssize(ids);
  if (room < 1)
    throw bad_request(
        fmt::format("the prompt has {} tokens; the model takes {} with the text", ids.size(), model_.context),
        "context_length_exceeded");
  Request request{.prompt = ids, .sampling = settings.sampling(model_.defaults)};
  const auto serial = static_cast<uint64_t>(static_cast<int64_t>(prompt) * settings.n + choice);
  request.sampling.seed = settings.seed.value_or(plan_.seed) + serial;
  request.max_tokens = std::min(settings.max_tokens.value_or(room), room);
  request.min_tokens = std::min(settings.min_tokens, request.max_tokens);
  if (!settings.ignores_ends) request.ends = model_.ends;
  request.suppressed = model_.suppressed;
  request.top_log_probabilities = settings.top_tokens;
  request.deadline = plan_.deadline;
  return request;
}

void Exchange::submit(size_t prompt, int64_t choice) {
  Request request = request_for(prompt, choice);
  const size_t place = texts_.size();
  std::vector<std::string> stops = plan_.settings.stops;
  stops.insert(stops.end(), model_.stops.begin(), model_.stops.end());
  auto text = std::make_unique<Text>(Text{.choice = {.index = static_cast<int64_t>(place)},
                                          .stream = TextStream(*model_.tokenizer, std::move(stops))});
  text->choice.tells_tokens = plan_.settings.log_probabilities;
  if (!plan_.echoes.empty()) text->choice.text = plan_.echoes[prompt];
  text->choice.offset = std::ssize(text->choice.text);
  text->id = backend_.submit(std::move(request), [inbox = inbox_, place](const Event& event) {
    const std::lock_guard lock(inbox->mutex);
    inbox->events.emplace_back(place, event);
    inbox->changed.notify_one();
  });
  texts_.push_back(std::move(text));
}

std::deque<std::pair<size_t, Event>> Exchange::take_events(std::chrono::milliseconds patience) {
  std::unique_lock lock(inbox_->mutex);
  inbox_->changed.wait_for(lock, patience, [&] { return !inbox_->events.empty(); });
  return std::exchange(inbox_->events, {});
}

void Exchange::end(Text& text, const std::string& reason) {
  text.choice.text += text.stream.finish();
  text.reason = reason;
  text.is_done = true;
}

void Exchange::take(Text& text, const Event& event) {
  if (text.is_done) return;
  if (event.token) {
    ++text.tokens;
    text.choice.text += text.stream.feed(event.token->id);
    if (plan_.settings.log_probabilities) {
      const auto bytes = [&](int32_t id) { return std::string(model_.tokenizer->token_bytes(id)); };
      ToldToken told{.bytes = bytes(event.token->id), .log_probability = event.token->log_probability};
      for (const TokenChance& chance : event.token->top)
        told.top.emplace_back(bytes(chance.id), chance.log_probability);
      text.choice.tokens.push_back(std::move(told));
    }
  }
  if (text.stream.is_stopped()) {
    end(text, "stop");
    if (event.finish == Finish::no) backend_.cancel(text.id);
  } else if (event.finish != Finish::no) {
    if (event.finish == Finish::failed) failure_ = event.error;
    end(text, reason_of(event.finish));
  }
}

Usage Exchange::usage() const {
  Usage usage;
  for (const std::vector<int32_t>& prompt : plan_.prompts) usage.prompt_tokens += std::ssize(prompt);
  for (const auto& text : texts_) usage.completion_tokens += text->tokens;
  return usage;
}

void Exchange::check_failure() const {
  if (!failure_.empty()) throw ApiError(500, "server_error", "engine_failed", failure_);
  if (plan_.is_aborted != nullptr && *plan_.is_aborted) throw overloaded("the server stops");
}

std::string Exchange::answer(const std::function<bool()>& client_is_there) {
  using Clock = std::chrono::steady_clock;
  const auto is_done = [](const auto& text) { return text->is_done; };
  for (Clock::time_point looked = Clock::now(); !std::all_of(texts_.begin(), texts_.end(), is_done);) {
    for (const auto& [place, event] : take_events(kBetweenLooks)) take(*texts_[place], event);
    check_failure();
    if (Clock::now() - looked < kBetweenLooks) continue;
    if (!client_is_there()) throw client_left();
    looked = Clock::now();
  }
  std::vector<Choice> choices;
  for (const auto& text : texts_) {
    choices.push_back(text->choice);
    choices.back().finish_reason = text->reason;
  }
  return answer_json(plan_.head, choices, usage());
}

// What has come of a text since the last chunk. Tokens of which no text has come yet wait for it, so that each chunk
// has the tokens of its text.
std::string Exchange::chunks_of(Text& text) {
  Choice& choice = text.choice;
  std::string events;
  if (choice.text.empty() && !text.is_done) return events;
  if (!choice.text.empty() || !choice.tokens.empty()) events += server_sent_event(chunk_json(plan_.head, choice));
  for (const ToldToken& token : choice.tokens) choice.offset += std::ssize(token.bytes);
  choice.text.clear();
  choice.tokens.clear();
  if (!text.is_done) return events;
  return events +
         server_sent_event(chunk_json(plan_.head, {.index = choice.index, .text = {}, .finish_reason = text.reason}));
}

std::optional<std::string> Exchange::next_events(std::chrono::milliseconds patience) {
  if (has_ended_) return std::nullopt;
  std::string events;
  const bool is_first = !std::exchange(has_begun_, true);
  if (is_first && plan_.head.is_chat)
    for (const auto& text : texts_) events += server_sent_event(role_chunk_json(plan_.head, text->choice.index));
  for (const auto& [place, event] : take_events(is_first ? std::chrono::milliseconds(0) : patience)) {
    Text& text = *texts_[place];
    if (text.is_done) continue;
    take(text, event);
    events += chunks_of(text);
  }
  try {
    check_failure();
  } catch (const ApiError& error) {
    has_ended_ = true;
    return events + server_sent_event(error_json(error)) + std::string(kLastEvent);
  }
  if (!std::all_of(texts_.begin(), texts_.end(), [](const auto& text) { return text->is_done; })) return events;
  has_ended_ = true;
  if (plan_.settings.include_usage) events += server_sent_event(usage_chunk_json(plan_.head, usage()));
  return events + std::string(kLastEvent);
}

}  // namespace tutti::generate::serve
