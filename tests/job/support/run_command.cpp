#include "tests/job/support/run_command.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace tutti::comm {

CommandResult run_command(const std::string& command) {
  CommandResult result;
  // Each mpirun gets a folder of its own: those that begin at the same moment fight over the one that they would share.
  const std::string folder = fresh_path("ompi");
  std::filesystem::create_directory(folder);
  std::string settings = "export OMPI_MCA_orte_tmpdir_base='" + folder + "'; ";
  // Open MPI unloads its components before a rank ends, so LeakSanitizer cannot tell that what they keep is theirs.
  if (command.find("mpirun") != std::string::npos) settings += "export ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\"; ";
  FILE* pipe = popen((settings + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.output.append(buffer, n);
  const int status = pclose(pipe);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string fresh_path(const std::string& stem) {
  static std::atomic<int> counter = 0;
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder ? folder : "/tmp") + "/" + stem + "." + std::to_string(getpid()) + "." +
         std::to_string(counter++);
}

}  // namespace tutti::comm
