#include "tutti/devices/mock/mock_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {
namespace {

class MockStreamTest : public ::testing::Test {
 protected:
  MockStream stream{0}, other{0};
  std::string trace;
  std::function<void()> append(char c) {
    return [this, c] { trace += c; };
  }
};

TEST_F(MockStreamTest, WorkIsLateAndInOrder) {
  stream.submit(append('a'));
  stream.submit(append('b'));
  EXPECT_EQ(trace, "");
  EXPECT_EQ(stream.pending(), 2);
  EXPECT_TRUE(stream.run_next());
  EXPECT_EQ(trace, "a");
  stream.synchronize();
  EXPECT_EQ(trace, "ab");
  EXPECT_FALSE(stream.run_next());
}

TEST_F(MockStreamTest, AnEventCoversWhatCameBeforeIt) {
  stream.submit(append('a'));
  const auto event = stream.record();
  stream.submit(append('b'));
  EXPECT_FALSE(event->is_done());
  event->wait();
  EXPECT_TRUE(event->is_done());
  EXPECT_EQ(trace, "a");
}

TEST_F(MockStreamTest, AnEventOfAnEmptyStreamIsDone) { EXPECT_TRUE(stream.record()->is_done()); }

TEST_F(MockStreamTest, StreamsAreOrderedByEvents) {
  stream.submit(append('a'));
  other.submit(append('b'));
  other.wait_for(stream.record());
  other.submit(append('c'));
  other.synchronize();
  EXPECT_EQ(trace, "bac");
}

TEST_F(MockStreamTest, WhatWorkCapturesLivesUntilItHasRun) {
  auto token = std::make_shared<int>(0);
  stream.submit([token] {});
  EXPECT_EQ(token.use_count(), 2);
  stream.synchronize();
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(MockStreamTest, LaterWorkRunsAfterAFailure) {
  stream.submit([] { throw EnvironmentError("broken"); });
  stream.submit(append('b'));
  const auto event = stream.record();
  EXPECT_THROW(event->wait(), EnvironmentError);
  EXPECT_EQ(trace, "b");
  EXPECT_NO_THROW(event->wait());
}

TEST_F(MockStreamTest, WorkThatWaitsForItselfIsAnError) {
  stream.submit([this] { stream.synchronize(); });
  EXPECT_THROW(stream.synchronize(), UsageError);
}

TEST_F(MockStreamTest, AnEventOutlivesItsStream) {
  auto brief = std::make_unique<MockStream>(0);
  brief->submit(append('a'));
  const auto event = brief->record();
  brief.reset();
  EXPECT_TRUE(event->is_done());
  EXPECT_EQ(trace, "a");
}

TEST_F(MockStreamTest, ManyThreadsMayWaitForOneEvent) {
  for (int i = 0; i < 200; ++i) stream.submit(append('x'));
  const auto event = stream.record();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { event->wait(); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(trace, std::string(200, 'x'));
}

}  // namespace
}  // namespace tutti
