// A backend without a model: says the bytes of a text, token by token.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/generate/serve/api_error.h"
#include "tutti/generate/serve/backend.h"
#include "tutti/io/byte_tokenizer.h"

namespace tutti::testing {

class FakeBackend : public generate::serve::Backend {
 public:
  explicit FakeBackend(std::string its_text = "Hello") : text(std::move(its_text)) {}
  ~FakeBackend() override {
    {
      const std::lock_guard lock(mutex_);
      is_released_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string text;
  bool holds = false;    // after the text, until the request is cancelled or release() is called
  bool is_full = false;  // requests are refused
  std::string failure;   // with which requests end

  generate::RequestId submit(generate::Request request, generate::serve::EventSink sink) override {
    if (is_full) throw generate::serve::overloaded("too many requests wait");
    const std::lock_guard lock(mutex_);
    const generate::RequestId id = requests.size() + 1;
    requests.push_back(request);
    threads_.emplace_back([this, id, request = std::move(request), sink = std::move(sink)] { say(id, request, sink); });
    return id;
  }

  void cancel(generate::RequestId id) override {
    const std::lock_guard lock(mutex_);
    cancelled[id] = true;
    changed_.notify_all();
  }

  generate::serve::Embeddings embed(const std::vector<generate::serve::Prompt>& texts,
                                    const std::function<void()>& check_wanted) override {
    generate::serve::Embeddings embeddings;
    std::unique_lock lock(mutex_);
    ++embeds;
    changed_.notify_all();
    const auto one_ends = std::shared_ptr<void>(nullptr, [&](void*) {
      --embeds;
      changed_.notify_all();
    });
    do {
      check_wanted();
    } while (holds && !changed_.wait_for(lock, std::chrono::milliseconds(10), [&] { return is_released_; }));
    for (const generate::serve::Prompt& text : texts) {
      const auto tokens = std::visit([](const auto& each) { return std::ssize(each); }, text);
      embeddings.vectors.push_back({static_cast<float>(tokens), 0.5F});
      embeddings.tokens += tokens;
    }
    return embeddings;
  }

  std::vector<generate::serve::Metric> metrics() const override { return {{"tutti_fake", "A number", 3, false}}; }

  void release() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    changed_.notify_all();
  }
  bool wait_for_cancel(generate::RequestId id) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return cancelled[id]; });
  }
  bool wait_for_requests(size_t count) {
    for (int i = 0; i < 2000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (requests.size() >= count) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // Until so many lists are being embedded.
  bool wait_for_embeds(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return embeds == count; });
  }

  int embeds = 0;
  std::vector<generate::Request> requests;
  std::map<generate::RequestId, bool> cancelled;

 private:
  void say(generate::RequestId id, const generate::Request& request, const generate::serve::EventSink& sink) {
    int64_t count = 0;
    for (const char byte : text) {
      if (count++ == request.max_tokens) return sink({.request = id, .finish = generate::Finish::length});
      const auto token = static_cast<int32_t>(static_cast<unsigned char>(byte));
      generate::GeneratedToken said{.id = token, .log_probability = -0.5F};
      for (int64_t i = 0; i < request.top_log_probabilities; ++i) said.top.push_back({'a', -1.0F});
      sink({.request = id, .token = said});
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !holds || is_released_ || cancelled[id]; });
    const auto finish = cancelled[id]      ? generate::Finish::cancelled
                        : !failure.empty() ? generate::Finish::failed
                                           : generate::Finish::end;
    lock.unlock();
    sink({.request = id, .finish = finish, .error = failure});
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  bool is_released_ = false;
};

// What FakeBackend serves.
inline generate::serve::ServedModel fake_model() {
  static const ByteTokenizer tokenizer;
  generate::serve::ServedModel model{
      .name = "fake", .tokenizer = &tokenizer, .ends = {*tokenizer.eos_id()}, .context = 64};
  model.chat.templates.emplace_back(
      "default", ChatTemplate::parse("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
                                     "{% if add_generation_prompt %}assistant:{% endif %}{{ tools | tojson if tools }}",
                                     "fake"));
  return model;
}

}  // namespace tutti::testing
