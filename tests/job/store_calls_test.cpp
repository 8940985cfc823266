// Every call, the same on every store.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/job/support/temporary_folder.h"
#include "tutti/job/store/file_store.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/key_proof.h"
#include "tutti/job/store/prefix_store.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

struct HashMaker {
  std::shared_ptr<Store> store = std::make_shared<HashStore>();
};
struct FileMaker {
  TemporaryFolder folder;
  std::shared_ptr<Store> store = std::make_shared<FileStore>(folder.file("store"));
};
struct TcpMaker {
  TcpStoreServer server{{.job_key = ""}};
  std::shared_ptr<Store> store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port(), .job_key = ""});
};
struct TcpWithKeyMaker {
  const std::string key = make_job_key();
  TcpStoreServer server{{.bind_address = "127.0.0.1", .job_key = key}};
  std::shared_ptr<Store> store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port(), .job_key = key});
};
struct PrefixOfHashMaker {
  std::shared_ptr<Store> store = std::make_shared<PrefixStore>("part", std::make_shared<HashStore>());
};
struct PrefixOfTcpMaker : TcpMaker {
  PrefixOfTcpMaker() {
    store->set("outside", "1");
    store = std::make_shared<PrefixStore>("part", store);
  }
};

template <class Maker>
class StoreCalls : public testing::Test {
 protected:
  Maker maker_;
  Store& store_ = *maker_.store;
};
using Makers = testing::Types<HashMaker, FileMaker, TcpMaker, TcpWithKeyMaker, PrefixOfHashMaker, PrefixOfTcpMaker>;
TYPED_TEST_SUITE(StoreCalls, Makers);

template <class E, class Fn>
std::string message_of(const Fn& fn) {
  try {
    fn();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TYPED_TEST(StoreCalls, ValuesAreBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  this->store_.set(bytes, bytes);
  EXPECT_EQ(this->store_.get(bytes), bytes);
  this->store_.set("empty", "");
  EXPECT_EQ(this->store_.get("empty"), "");
  this->store_.set("empty", "not any more");
  EXPECT_EQ(this->store_.get("empty"), "not any more");
}

TYPED_TEST(StoreCalls, LargeValuesComeBackWhole) {
  const std::string large(9'000'001, 'x');
  this->store_.set("large", large);
  EXPECT_EQ(this->store_.get("large"), large);
}

TYPED_TEST(StoreCalls, AddCountsAndStoresText) {
  EXPECT_EQ(this->store_.add("n", 5), 5);
  EXPECT_EQ(this->store_.add("n", -7), -2);
  EXPECT_EQ(this->store_.get("n"), "-2");
  this->store_.set("n", std::to_string(INT64_MAX));
  EXPECT_NE(message_of<UsageError>([&] { this->store_.add("n", 1); }).find("leaves the range of int64"),
            std::string::npos);
  this->store_.set("n", "five");
  EXPECT_NE(message_of<UsageError>([&] { this->store_.add("n", 1); }).find("'five' is not a decimal int64"),
            std::string::npos);
  EXPECT_EQ(this->store_.get("n"), "five");
}

TYPED_TEST(StoreCalls, CompareSetStoresOnlyWhereTheValueIsExpected) {
  EXPECT_EQ(this->store_.compare_set("k", "a", "b"), "a");
  EXPECT_FALSE(this->store_.check({"k"}));
  EXPECT_EQ(this->store_.compare_set("k", "", "b"), "b");
  EXPECT_EQ(this->store_.compare_set("k", "a", "c"), "b");
  EXPECT_EQ(this->store_.compare_set("k", "b", "c"), "c");
  EXPECT_EQ(this->store_.get("k"), "c");
}

TYPED_TEST(StoreCalls, KeysAreCountedListedAndDeleted) {
  EXPECT_EQ(this->store_.list_keys(), Store::Keys{});
  this->store_.multi_set({"b/2", "a/1", "b/1"}, {"x", "y", "z"});
  EXPECT_EQ(this->store_.list_keys(), (Store::Keys{"a/1", "b/1", "b/2"}));
  EXPECT_EQ(this->store_.list_keys("b/"), (Store::Keys{"b/1", "b/2"}));
  EXPECT_TRUE(this->store_.delete_key("b/1"));
  EXPECT_FALSE(this->store_.delete_key("b/1"));
  EXPECT_TRUE(this->store_.check({"a/1", "b/2"}));
  EXPECT_FALSE(this->store_.check({"a/1", "b/1"}));
}

TYPED_TEST(StoreCalls, NumKeysCountsOwnKeysOnly) {
  const int64_t before = this->store_.num_keys();
  this->store_.multi_set({"a", "b"}, {"", ""});
  EXPECT_EQ(this->store_.num_keys(), before + 2);
}

TYPED_TEST(StoreCalls, AppendMakesAndGrows) {
  this->store_.append("log", "one ");
  this->store_.append("log", "two");
  EXPECT_EQ(this->store_.get("log"), "one two");
}

TYPED_TEST(StoreCalls, MultiGetKeepsTheOrderOfTheKeys) {
  this->store_.multi_set({"a", "b"}, {"1", "2"});
  EXPECT_EQ(this->store_.multi_get({"b", "a", "b"}), (std::vector<std::string>{"2", "1", "2"}));
  EXPECT_EQ(this->store_.multi_get({}), std::vector<std::string>{});
  EXPECT_NE(message_of<UsageError>([&] { this->store_.multi_set({"a", "b"}, {"1"}); }).find("2 keys and 1 values"),
            std::string::npos);
}

TYPED_TEST(StoreCalls, GetWaitsForAnotherHandle) {
  auto other = this->store_.clone();
  auto value = std::async(std::launch::async, [&] { return other->multi_get({"first", "second"}); });
  this->store_.set("second", "2");
  this->store_.set("first", "1");
  EXPECT_EQ(value.get(), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(other->get("first"), "1");
}

TYPED_TEST(StoreCalls, DeadlinesNameWhatIsMissing) {
  this->store_.set("here", "");
  const auto begin = std::chrono::steady_clock::now();
  const std::string text =
      message_of<StoreTimeout>([&] { this->store_.wait({"here", "there", "and\nthere"}, milliseconds(50)); });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(50));
  EXPECT_NE(text.find("wait waited 0.050 s, and 2 of 3 keys are still missing: '"), std::string::npos) << text;
  EXPECT_NE(text.find("there', '"), std::string::npos) << text;
  EXPECT_NE(text.find("and\\x0athere'"), std::string::npos) << text;
  EXPECT_NE(text.find(this->store_.address()), std::string::npos) << text;
  EXPECT_THROW(this->store_.get("there", milliseconds(0)), StoreTimeout);
  EXPECT_EQ(this->store_.get("here", milliseconds(0)), "");
}

TYPED_TEST(StoreCalls, TheTimeoutOfTheStoreCounts) {
  EXPECT_EQ(this->store_.timeout(), kDefaultStoreTimeout);
  this->store_.set_timeout(milliseconds(20));
  EXPECT_THROW(this->store_.get("never"), StoreTimeout);
  EXPECT_EQ(this->store_.clone()->timeout(), milliseconds(20));
  EXPECT_THROW(this->store_.set_timeout(milliseconds(-1)), UsageError);
  EXPECT_THROW(this->store_.get("never", milliseconds(-1)), UsageError);
}

TYPED_TEST(StoreCalls, LimitsAreChecked) {
  EXPECT_THROW(this->store_.set("", "x"), UsageError);
  EXPECT_THROW(this->store_.set(std::string(kMaxStoreKeyBytes + 1, 'k'), "x"), UsageError);
  EXPECT_THROW(this->store_.wait({"ok", std::string(kMaxStoreKeyBytes + 1, 'k')}), UsageError);
  const std::string text =
      message_of<UsageError>([&] { this->store_.set("big", std::string(kMaxStoreValueBytes + 1, 'v')); });
  EXPECT_NE(text.find("67108865 bytes, the limit is 67108864"), std::string::npos) << text;
  EXPECT_FALSE(this->store_.check({"big"}));
}

TYPED_TEST(StoreCalls, QueuesKeepTheirOrderWhereThereAreAny) {
  if (!this->store_.has(StoreCapability::kQueues)) {
    EXPECT_NE(message_of<UsageError>([&] { this->store_.queue_push("q", "x"); }).find("has no queues"),
              std::string::npos);
    EXPECT_THROW(this->store_.queue_pop("q"), UsageError);
    EXPECT_THROW(this->store_.queue_len("q"), UsageError);
    return;
  }
  EXPECT_EQ(this->store_.queue_pop("q", false), std::nullopt);
  this->store_.queue_push("q", "1");
  this->store_.queue_push("q", "");
  EXPECT_EQ(this->store_.queue_len("q"), 2);
  EXPECT_FALSE(this->store_.check({"q"}));
  EXPECT_EQ(this->store_.queue_pop("q"), "1");
  EXPECT_EQ(this->store_.queue_pop("q"), "");
  EXPECT_EQ(this->store_.queue_len("q"), 0);
  const std::string text = message_of<StoreTimeout>([&] { this->store_.queue_pop("q", true, milliseconds(20)); });
  EXPECT_NE(text.find("is still empty"), std::string::npos) << text;
  auto other = this->store_.clone();
  auto value = std::async(std::launch::async, [&] { return other->queue_pop("q"); });
  this->store_.queue_push("q", "late");
  EXPECT_EQ(value.get(), "late");
  this->store_.queue_push("q", "x");
  EXPECT_TRUE(this->store_.delete_key("q"));
  EXPECT_EQ(this->store_.queue_len("q"), 0);
}

TYPED_TEST(StoreCalls, BarrierReleasesAllWhenTheLastComesAgainAndAgain) {
  constexpr int kCallers = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < kCallers; ++i) {
    threads.emplace_back([store = this->store_.clone()] {
      for (int round = 1; round <= 5; ++round) {
        store->add("came", 1);
        store->barrier("b", kCallers);
        EXPECT_GE(store->add("came", 0), kCallers * round);
        store->barrier("b", kCallers);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(this->store_.get("came"), "20");
}

TYPED_TEST(StoreCalls, WhoGivesUpAtABarrierIsNotCounted) {
  const std::string text = message_of<StoreTimeout>([&] { this->store_.barrier("b", 2, milliseconds(30)); });
  EXPECT_NE(text.find("waited 0.030 s, and 1 of 2 callers have come"), std::string::npos) << text;
  EXPECT_THROW(this->store_.barrier("b", 2, milliseconds(0)), StoreTimeout);
  auto other = this->store_.clone();
  auto first = std::async(std::launch::async, [&] { other->barrier("b", 2); });
  this->store_.barrier("b", 2);
  first.get();
  EXPECT_THROW(this->store_.barrier("b", 0), UsageError);
}

TYPED_TEST(StoreCalls, BarriersOfDifferentSizesAreAnError) {
  auto other = this->store_.clone();
  // Whoever comes second is told; the other one goes on waiting.
  auto first = std::async(std::launch::async, [&]() -> std::string {
    try {
      other->barrier("b", 2);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  });
  std::string text;
  while (text.empty() && first.wait_for(milliseconds(0)) != std::future_status::ready) {
    try {
      this->store_.barrier("b", 3, milliseconds(0));
    } catch (const StoreTimeout&) {
      // The other one has not come yet.
    } catch (const UsageError& error) {
      text = error.what();
      this->store_.barrier("b", 2);
    }
  }
  text += first.get();
  EXPECT_NE(text.find("callers there wait for"), std::string::npos) << text;
}

TYPED_TEST(StoreCalls, AddsOfManyThreadsAreAllCounted) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([store = this->store_.clone()] {
      for (int k = 0; k < 50; ++k) store->add("n", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(this->store_.get("n"), "200");
}

TEST(PrefixStore, KeysCarryThePrefixAndNoMore) {
  auto inner = std::make_shared<HashStore>(std::chrono::milliseconds(40));
  PrefixStore outer("a", std::make_shared<PrefixStore>("b", inner));
  EXPECT_EQ(outer.timeout(), std::chrono::milliseconds(40));
  outer.set("k", "v");
  EXPECT_EQ(inner->get("b/a/k"), "v");
  EXPECT_EQ(outer.list_keys(), Store::Keys{"k"});
  EXPECT_EQ(outer.num_keys(), 1);
  EXPECT_THROW(PrefixStore("", inner), UsageError);
  EXPECT_THROW(PrefixStore("a", nullptr), UsageError);
}

}  // namespace
}  // namespace tutti::comm
