// The engine behind many threads.
#include "tutti/generate/serve/engine_backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <stdexcept>

#include "tests/generate/support/tiny_decoders.h"
#include "tutti/generate/serve/api_error.h"

namespace tutti::generate::serve {
namespace {

// Gathers the events of one request.
struct Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int32_t> tokens;
  Finish finish = Finish::no;

  EventSink sink() {
    return [this](const Event& event) {
      const std::lock_guard lock(mutex);
      if (event.token) tokens.push_back(event.token->id);
      finish = event.finish;
      changed.notify_all();
    };
  }
  bool wait_for(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), condition);
  }
  bool wait() {
    return wait_for([&] { return finish != Finish::no; });
  }
};

Request request_of(int number) {
  Request request{.sampling = {.seed = static_cast<uint64_t>(number)}, .max_tokens = 5 + number % 7};
  for (int i = 0; i < 20 + number; ++i) request.prompt.push_back(i < 16 ? i : (i * number) % 256);
  return request;
}

struct Served {
  ByteTokenizer tokenizer;
  std::unique_ptr<models::Decoder> model = make_tiny("dense");
  Engine engine{*model, tokenizer, {.context = 300, .max_requests = 3, .batch_tokens = 24}};
};

TEST(EngineBackend, GivesEachThreadTheTextOfItsRequest) {
  std::vector<std::vector<int32_t>> alone;
  for (int number = 0; number < 12; ++number) {
    Served served;
    EngineBackend backend(served.engine, 100);
    Inbox inbox;
    backend.submit(request_of(number), inbox.sink());
    ASSERT_TRUE(inbox.wait());
    alone.push_back(inbox.tokens);
  }
  Served served;
  EngineBackend backend(served.engine, 100);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int number = t; number < 12; number += 4) {
        Inbox inbox, gone;
        const RequestId id = backend.submit(request_of(50), gone.sink());
        backend.submit(request_of(number), inbox.sink());
        backend.cancel(id);
        EXPECT_TRUE(inbox.wait());
        EXPECT_TRUE(gone.wait());
        EXPECT_EQ(inbox.tokens, alone[static_cast<size_t>(number)]) << number;
        for (const Metric& metric : backend.metrics()) EXPECT_GE(metric.value, 0) << metric.name;
      }
    });
  }
  threads.clear();
  EXPECT_FALSE(served.engine.has_work());
  EXPECT_EQ(served.engine.counters().free_pages, served.engine.counters().pages);
}

TEST(EngineBackend, RefusesMoreThanTheQueueHolds) {
  Served served;
  Inbox inboxes[20];
  std::string message;
  {
    EngineBackend backend(served.engine, 2);
    Request endless{.prompt = {1}, .max_tokens = 299};
    for (Inbox& inbox : inboxes) {
      try {
        backend.submit(endless, inbox.sink());
      } catch (const ApiError& error) {
        EXPECT_EQ(error.status(), 503);
        message = error.what();
        break;
      }
    }
    EXPECT_EQ(message, "2 requests are waiting already; try again later");
  }
  // What had been taken is told that it was cancelled, or has ended.
  EXPECT_NE(inboxes[0].finish, Finish::no);
}

TEST(EngineBackend, TakesNoRequestsWhenItHasStopped) {
  Served served;
  EngineBackend backend(served.engine, 2);
  backend.stop();
  backend.stop();
  EXPECT_EQ(backend.failure(), "");
  try {
    backend.submit({.prompt = {1}}, [](const Event&) {});
    ADD_FAILURE() << "a request is taken";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 503);
    EXPECT_STREQ(error.what(), "the server stops");
  }
}

TEST(EngineBackend, AnExceptionWithoutAMessageIsAFailure) {
  Served served;
  std::atomic<int> failures = 0;
  Inbox inbox;
  std::string told;
  EngineBackend backend(served.engine, 2, [&] { ++failures; });
  backend.submit({.prompt = {1}, .max_tokens = 200}, [&, sink = inbox.sink()](const Event& event) {
    if (event.finish == Finish::no) throw std::runtime_error("");
    told = event.error;
    sink(event);
  });
  ASSERT_TRUE(inbox.wait());
  EXPECT_EQ(inbox.finish, Finish::failed);
  EXPECT_EQ(told, "the engine ended by an exception without a message");
  EXPECT_EQ(backend.failure(), told);
  backend.stop();
  EXPECT_EQ(failures, 1);
}

TEST(EngineBackend, EndsWhatRunsWhenItGoes) {
  Served served;
  Inbox inbox;
  {
    EngineBackend backend(served.engine, 10);
    backend.submit({.prompt = {1, 2, 3}, .max_tokens = 290}, inbox.sink());
    EXPECT_TRUE(inbox.wait_for([&] { return inbox.tokens.size() > 3; }));
  }
  EXPECT_TRUE(inbox.finish == Finish::cancelled || inbox.finish == Finish::length);
}

}  // namespace
}  // namespace tutti::generate::serve
