// A replacement of a lost rank that cannot be started, for whatever reason, is reported, and the other ranks go on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "tests/job/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/job/launch/launcher.h"

namespace tutti::comm {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000 && !holds(); ++i) usleep(10'000);
  return holds();
}

// A launcher in a process of its own. Its ranks write their pids, and end well when the file `go` is there.
struct SurvivingJob {
  explicit SurvivingJob(const std::string& when_started_again) {
    std::ofstream(program()) << "#!/bin/sh\n"
                             << "test $TORCHELASTIC_RESTART_COUNT = 0 || { " << when_started_again << "; }\n"
                             << "echo $$ > " << folder.file("pid") << ".$RANK.new; mv " << folder.file("pid")
                             << ".$RANK.new " << folder.file("pid") << ".$RANK\n"
                             << "while ! test -e " << folder.file("go") << "; do sleep 0.02; done\n";
    std::filesystem::permissions(program(), std::filesystem::perms::owner_all);
    launcher = fork();
    if (launcher != 0) return;
    const int err = open(folder.file("err").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (err < 0 || dup2(err, STDERR_FILENO) < 0) _exit(99);
    close(err);
    try {
      _exit(launch_local({.ranks = 3,
                          .program = program(),
                          .argv = {"rank"},
                          .all_prefixed = true,
                          .announce = true,
                          .max_restarts = 1,
                          .survive_rank_loss = true}));
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
  }
  std::string program() const { return folder.file("rank.sh"); }
  std::string err() const { return text_of(folder.file("err")); }
  bool says(const std::string& part) const { return err().find(part) != std::string::npos; }
  pid_t rank(int r) const { return std::atoi(text_of(folder.file("pid") + "." + std::to_string(r)).c_str()); }
  // The ranks run, and the launcher has done all it does to start them: a rank may be faster.
  bool has_started() const {
    return wait_until([&] { return rank(0) > 0 && rank(1) > 0 && rank(2) > 0 && says("rank 2: pid "); });
  }
  int finish() const {
    std::ofstream(folder.file("go")) << "\n";
    int status = 0;
    EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  TemporaryFolder folder;
  pid_t launcher = -1;
};

void limit(pid_t pid, decltype(RLIMIT_NOFILE) what, rlim_t most) {
  rlimit old{};
  ASSERT_EQ(prlimit(pid, what, nullptr, &old), 0);
  const rlimit low{.rlim_cur = most, .rlim_max = old.rlim_max};
  ASSERT_EQ(prlimit(pid, what, &low, nullptr), 0);
}

TEST(Replacement, ThatCannotBeStartedIsReportedAndTheOthersGoOn) {
  struct Case {
    std::string name, when_started_again;
    std::function<void(const SurvivingJob&)> hinder;
    std::string message;
  };
  const auto nothing = [](const SurvivingJob&) {};
  const Case cases[] = {
      {"no descriptors", "exit 0", [](const SurvivingJob& job) { limit(job.launcher, RLIMIT_NOFILE, 3); },
       "tutti: rank 1 is not started again: cannot make a pipe for rank 1: Too many open files; the other ranks go on "
       "without it"},
      {"no memory", "exit 0", [](const SurvivingJob& job) { limit(job.launcher, RLIMIT_AS, 1 << 20); },
       "tutti: rank 1 is not started again: cannot start rank 1 ("},
      {"no program", "exit 0", [](const SurvivingJob& job) { std::filesystem::remove(job.program()); },
       "rank.sh): No such file or directory; the other ranks go on without it"},
      // The shells that run the old program keep it open.
      {"no interpreter", "exit 0",
       [](const SurvivingJob& job) {
         std::ofstream(job.folder.file("new")) << "#!/no/such/interpreter\n";
         std::filesystem::permissions(job.folder.file("new"), std::filesystem::perms::owner_all);
         std::filesystem::rename(job.folder.file("new"), job.program());
       },
       "rank.sh): No such file or directory; the other ranks go on without it"},
      {"no permission", "exit 0",
       [](const SurvivingJob& job) { std::filesystem::permissions(job.program(), std::filesystem::perms::owner_read); },
       "rank.sh): Permission denied; the other ranks go on without it"},
      {"it ends at once", "echo the reason >&2; exit 127", nothing,
       ") exited with status 127 before it had joined the others; 2 ranks go on without it\n    the reason\n"},
      {"it aborts", "kill -ABRT $$", nothing,
       ") was killed by SIGABRT before it had joined the others; 2 ranks go on without it\n"},
  };
  for (const Case& c : cases) {
    const SurvivingJob job(c.when_started_again);
    ASSERT_TRUE(job.has_started()) << c.name << ": " << job.err();
    c.hinder(job);
    kill(job.rank(1), SIGKILL);
    EXPECT_TRUE(wait_until([&] { return job.says(c.message); })) << c.name << ": " << job.err();
    EXPECT_EQ(job.finish(), 0) << c.name << ": " << job.err();
  }
}

// Then nobody is there to go on.
TEST(Replacement, ThatCannotBeStartedForTheLastRankEndsTheJob) {
  const SurvivingJob job("exit 0");
  ASSERT_TRUE(job.has_started()) << job.err();
  limit(job.launcher, RLIMIT_NOFILE, 3);
  kill(job.launcher, SIGSTOP);
  for (const int r : {0, 1, 2}) kill(job.rank(r), SIGKILL);
  kill(job.launcher, SIGCONT);
  EXPECT_NE(job.finish(), 0) << job.err();
}

}  // namespace
}  // namespace tutti::comm
