#include "tutti/train/sentence_backend.h"

#include <memory>

#include "tutti/generate/serve/api_error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::train {

using generate::serve::Embeddings;
using generate::serve::Prompt;

SentenceBackend::SentenceBackend(const SentenceModel& model) : model_(model), rank_(RankContext::current()) {}

generate::RequestId SentenceBackend::submit(generate::Request, generate::serve::EventSink) {
  throw generate::serve::bad_request("an encoder writes no texts; ask it for embeddings", "not_supported");
}

Embeddings SentenceBackend::embed(const std::vector<Prompt>& texts, const std::function<void()>& check_wanted) {
  Embeddings embeddings;
  for (size_t i = 0; i < texts.size(); ++i) {
    try {
      const auto* words = std::get_if<std::string>(&texts[i]);
      const std::vector<int32_t> ids =
          words != nullptr ? model_.encode(*words) : std::get<std::vector<int32_t>>(texts[i]);
      embeddings.vectors.push_back(embed_in_turn(ids, check_wanted));
      embeddings.tokens += std::ssize(ids);
    } catch (const UsageError& error) {
      throw generate::serve::bad_request(fmt::format("input[{}]: {}", i, error.what()));
    }
  }
  return embeddings;
}

std::vector<float> SentenceBackend::embed_in_turn(std::span<const int32_t> ids,
                                                  const std::function<void()>& check_wanted) {
  {
    std::unique_lock lock(mutex_);
    const uint64_t turn = taken_++;
    changed_.wait(lock, [&] { return served_ == turn; });
  }
  const auto end_turn = std::shared_ptr<void>(nullptr, [this](void*) {
    const std::lock_guard lock(mutex_);
    ++served_;
    changed_.notify_all();
  });
  check_wanted();  // after the wait, so that those that are no longer wanted let the others through at once
  const RankContext::Scope scope(rank_);
  std::vector<float> vector = model_.embed(ids);
  const std::lock_guard lock(mutex_);
  ++texts_;
  tokens_ += std::ssize(ids);
  return vector;
}

std::vector<generate::serve::Metric> SentenceBackend::metrics() const {
  const std::lock_guard lock(mutex_);
  return {{"tutti_embeddings_total", "Texts that were embedded.", static_cast<double>(texts_), true},
          {"tutti_prompt_tokens_total", "Tokens of these texts.", static_cast<double>(tokens_), true}};
}

generate::serve::ServedModel served_sentences(const SentenceModel& model) {
  return {.name = model.name(), .tokenizer = &model.tokenizer(), .context = model.longest(), .writes_texts = false};
}

}  // namespace tutti::train
