// Running a command of the shell, for tests of several processes.
#pragma once

#include <string>

namespace tutti::comm {

struct CommandResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string output;  // out and err together
};
CommandResult run_command(const std::string& command);
// A name in the folder for temporary files that nobody else has; the file is not there yet.
std::string fresh_path(const std::string& stem);

}  // namespace tutti::comm
