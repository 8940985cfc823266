// An encoder behind the HTTP interface.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "tutti/generate/serve/backend.h"
#include "tutti/train/sentence_model.h"

namespace tutti {
class RankContext;
}

namespace tutti::train {

// Embeds texts as SentenceModel does, one at a time in the order in which they come, so that a long list lets the texts
// of others through, and writes none. May be called by any thread; computes as the rank (RankContext) of the thread
// that made it. The model must outlive it.
class SentenceBackend final : public generate::serve::Backend {
 public:
  explicit SentenceBackend(const SentenceModel& model);

  generate::RequestId submit(generate::Request request, generate::serve::EventSink sink) override;
  void cancel(generate::RequestId) override {}
  // Lists of ids have their frame, [CLS] and [SEP]. ApiError 400, which names the place of the text in the list.
  generate::serve::Embeddings embed(const std::vector<generate::serve::Prompt>& texts,
                                    const std::function<void()>& check_wanted) override;
  std::vector<generate::serve::Metric> metrics() const override;

 private:
  std::vector<float> embed_in_turn(std::span<const int32_t> ids, const std::function<void()>& check_wanted);

  const SentenceModel& model_;
  RankContext& rank_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t taken_ = 0, served_ = 0;  // turns
  int64_t texts_ = 0, tokens_ = 0;
};

// The model as HttpServer serves it. It must outlive what is returned.
generate::serve::ServedModel served_sentences(const SentenceModel& model);

}  // namespace tutti::train
