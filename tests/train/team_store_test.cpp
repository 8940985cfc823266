#include "tutti/train/survival/team_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tutti/job/store/hash_store.h"
#include "tutti/train/survival/survivors.h"

namespace tutti::train {
namespace {

using namespace std::chrono_literals;

struct Meeting {
  std::atomic<bool> is_over{false};
  std::shared_ptr<TeamStore> store =
      std::make_shared<TeamStore>("team/1", std::make_shared<comm::HashStore>(), [this] { return is_over.load(); });
};

TEST(TeamStore, IsAStoreWhileTheTeamLasts) {
  Meeting meeting;
  meeting.store->set("a", "1");
  EXPECT_EQ(meeting.store->get("a"), "1");
  EXPECT_TRUE(meeting.store->check({"a"}));
  EXPECT_EQ(meeting.store->multi_get({"a"}), std::vector<std::string>{"1"});
  EXPECT_EQ(meeting.store->underlying()->get("team/1/a"), "1");
  EXPECT_THROW(meeting.store->wait({"b"}, 10ms), comm::StoreTimeout);
}

TEST(TeamStore, EndsEveryWaitWhenTheTeamIsOver) {
  for (int way = 0; way < 4; ++way) {
    Meeting meeting;
    std::jthread end([&] {
      std::this_thread::sleep_for(20ms);
      meeting.is_over = true;
    });
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(({
                   if (way == 0) meeting.store->wait({"never"});
                   if (way == 1) meeting.store->get("never");
                   if (way == 2) meeting.store->multi_get({"never"});
                   if (way == 3) meeting.store->barrier("never", 2);
                 }),
                 TeamIsOver);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
    EXPECT_THROW(meeting.store->check({"a"}), TeamIsOver);
    EXPECT_THROW(meeting.store->clone()->check({"a"}), TeamIsOver);
    // Whoever waits elsewhere asks by the way, also through a part of the store.
    comm::PrefixStore part("part", meeting.store);
    EXPECT_THROW(part.look(), TeamIsOver);
  }
}

TEST(TeamStore, CountsARankThatComesToABarrierAgainOnce) {
  Meeting meeting;
  EXPECT_THROW(meeting.store->barrier("b", 2, 10ms), comm::StoreTimeout);
  EXPECT_THROW(meeting.store->barrier("b", 2, 120ms), comm::StoreTimeout);
  std::jthread other([&] { meeting.store->barrier("b", 2, 30s); });
  meeting.store->barrier("b", 2, 30s);
}

}  // namespace
}  // namespace tutti::train
