// Ranks that outlive each other, and whose launcher, which says who goes on, has ended.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/job/host/job_file.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/store/tcp_store_server.h"
#include "tutti/train/survival/survivors.h"

namespace tutti::train {
namespace {

// The rank has a seat and no team yet; its launcher ends meanwhile.
TEST(LostLauncher, ARankThatWaitsForATeamSaysSoAndHowToGoOn) {
  const std::shared_ptr<comm::JobFile> job = comm::JobFile::create(2);
  const pid_t launcher = fork();
  if (launcher == 0) {
    pause();
    _exit(0);
  }
  comm::TcpStoreServer server({.job_key = ""});
  int said[2];
  ASSERT_EQ(pipe(said), 0);
  const pid_t rank = fork();
  if (rank == 0) {
    alarm(60);
    std::vector<std::string> variables = comm::rank_variables(
        {.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2, .store_port = server.port()});
    variables.push_back(job->variable());
    variables.push_back("TUTTI_LAUNCHER_PID=" + std::to_string(launcher));
    for (const std::string& variable : variables)
      setenv(variable.substr(0, variable.find('=')).c_str(), variable.substr(variable.find('=') + 1).c_str(), 1);
    unsetenv("TUTTI_JOB_KEY");
    std::string text = "no error";
    try {
      train_with_survivors({}, {}, {.seat = 1});
    } catch (const EnvironmentError& error) {
      text = error.what();
    }
    _exit(write(said[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(said[1]);
  while (!job->is_ready(1) && waitpid(rank, nullptr, WNOHANG) == 0) usleep(1000);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  char text[4096] = {};
  EXPECT_GT(read(said[0], text, sizeof text - 1), 0);
  close(said[0]);
  waitpid(rank, nullptr, 0);
  EXPECT_EQ(
      std::string(text),
      "the launcher of these ranks (pid " + std::to_string(launcher) +
          ") has ended, and only it can say which ranks go on; the same command goes on from the last checkpoint");
}

}  // namespace
}  // namespace tutti::train
