#include "tutti/train/survival/survivors.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::train {
namespace {

// A process that waits for its end.
pid_t start_other() {
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  return pid;
}

void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

Survivors survivors_of(const std::shared_ptr<comm::JobFile>& job) {
  Survivors s;
  s.job = job;
  s.team = job->team();
  s.members = job->members(s.team);
  std::vector<pid_t> pids;
  for (const comm::TeamMember& m : s.members) pids.push_back(m.pid);
  s.liveness = std::make_unique<comm::Liveness>(std::move(pids));
  return s;
}

TEST(Survivors, AReplacementThatJoinsIsNoLoss) {
  const pid_t other = start_other(), third = start_other();
  const std::shared_ptr<comm::JobFile> job = comm::JobFile::create(3);
  job->publish_team({{0, getpid()}, {1, other}});
  const Survivors team = survivors_of(job);
  EXPECT_FALSE(team.is_replaced());
  EXPECT_FALSE(team.has_lost_one());
  job->publish_team({{0, getpid()}, {1, other}, {2, third}});
  EXPECT_TRUE(team.is_replaced());
  EXPECT_FALSE(team.has_lost_one()) << "all who began the step are there";
  job->publish_team({{0, getpid()}, {2, third}});
  EXPECT_TRUE(team.has_lost_one()) << "the launcher knows it first";
  end(other);
  end(third);
}

TEST(Survivors, ADeathIsALossBeforeTheLauncherSaysSo) {
  const pid_t other = start_other();
  const std::shared_ptr<comm::JobFile> job = comm::JobFile::create(2);
  job->publish_team({{0, getpid()}, {1, other}});
  const Survivors team = survivors_of(job);
  EXPECT_FALSE(team.has_lost_one());
  end(other);
  EXPECT_TRUE(team.has_lost_one());
}

}  // namespace
}  // namespace tutti::train
