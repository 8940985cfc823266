#include "tutti/job/host/job_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

UniqueFd copy_of(const JobFile& file) { return UniqueFd(dup(file.fd())); }

TEST(JobFile, TellsRanksTheTeamsAndDeathsThatTheLauncherWrote) {
  const auto launcher = JobFile::create(3);
  const auto rank = JobFile::open(copy_of(*launcher));
  EXPECT_EQ(rank->seats(), 3);
  EXPECT_EQ(rank->team(), 0u);
  launcher->publish_team({{0, 10}, {1, 11}, {2, 12}});
  launcher->note_death({1, 11}, 9);
  launcher->publish_team({{0, 10}, {2, 12}});
  EXPECT_EQ(rank->team(), 2u);
  EXPECT_EQ(rank->members(1).size(), 3u);
  EXPECT_EQ(rank->members(2), (std::vector<TeamMember>{{0, 10}, {2, 12}}));
  EXPECT_TRUE(rank->members(3).empty());
  ASSERT_EQ(rank->deaths().size(), 1u);
  EXPECT_EQ(rank->deaths()[0].pid, 11);
  EXPECT_EQ(rank->deaths()[0].signal, 9);
  EXPECT_LE(rank->deaths()[0].at_ns, monotonic_ns());
  EXPECT_FALSE(launcher->is_ready(1));
  rank->set_ready(1, 13);
  EXPECT_TRUE(launcher->is_ready(1));
  launcher->expect_replacement(1);
  EXPECT_FALSE(launcher->is_ready(1)) << "13 has been lost";
  rank->set_ready(1, 14);
  EXPECT_TRUE(launcher->is_ready(1));
  for (int i = 0; i < 100; ++i) launcher->publish_team({{0, 10}});
  EXPECT_TRUE(rank->members(2).empty()) << "its record was written anew";
  EXPECT_EQ(rank->members(102).size(), 1u);
  EXPECT_FALSE(rank->has_ended());
  launcher->end_job();
  EXPECT_TRUE(rank->has_ended());
}

TEST(JobFile, SharesStateThatStaysWhenARankIsGone) {
  const auto launcher = JobFile::create(2);
  {
    const auto rank = JobFile::open(copy_of(*launcher));
    rank->map_state(100'000)[99'999] = std::byte{7};
  }
  const auto next = JobFile::open(copy_of(*launcher));
  EXPECT_EQ(next->map_state(100'000)[99'999], std::byte{7});
  EXPECT_EQ(next->map_state(100'000)[0], std::byte{0});
  EXPECT_EQ(next->text(), "");
  launcher->leave_text("for those who join");
  EXPECT_EQ(next->text(), "for those who join");
  EXPECT_NE(message_of([&] { next->map_state(200'000); }).find("100000 bytes, and 200000 are wanted"),
            std::string::npos);
}

TEST(JobFile, RefusesWhatIsNoJob) {
  EXPECT_NE(message_of([] { JobFile::create(65); }).find("65 ranks"), std::string::npos);
  try {
    JobFile::open(UniqueFd(open("/dev/null", O_RDONLY)));
    FAIL() << "no error";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("is not the memory of a job"), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::comm
