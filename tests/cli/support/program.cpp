#include "tests/cli/support/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

extern char** environ;

namespace tutti::test {
namespace fs = std::filesystem;
namespace {

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

int spawn_shell(const std::string& command) {
  const char* argv[] = {"bash", "-c", command.c_str(), nullptr};
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, "bash", nullptr, nullptr, const_cast<char**>(argv), environ);
  EXPECT_EQ(failed, 0);
  return pid;
}

}  // namespace

Workplace::Workplace() {
  std::string pattern = (fs::temp_directory_path() / "tutti-cli-XXXXXX").string();
  folder_ = mkdtemp(pattern.data());
}

Workplace::~Workplace() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

fs::path Workplace::write(const std::string& name, const std::string& contents) const {
  std::ofstream(folder_ / name, std::ios::binary) << contents;
  return folder_ / name;
}

std::string Workplace::read(const std::string& name) const { return read_file(folder_ / name); }

Output Workplace::tutti(const std::string& arguments, const std::string& shell) const {
  return run(shell + " exec " TUTTI_BINARY_DIR "/tutti " + arguments);
}

Output Workplace::run(const std::string& command) const {
  Output output;
  output.status = wait(spawn_shell("cd '" + folder_.string() +
                                   "'; export OMPI_MCA_orte_tmpdir_base=\"$PWD\" TUTTI_CACHE_DIR=" TUTTI_BINARY_DIR
                                   "/test-cache; " +
                                   command + " > out.txt 2> err.txt"));
  output.out = read("out.txt");
  output.err = read("err.txt");
  return output;
}

int Workplace::start(const std::string& arguments, const std::string& shell) const {
  return spawn_shell("cd '" + folder_.string() +
                     "'; export OMPI_MCA_orte_tmpdir_base=\"$PWD\" TUTTI_CACHE_DIR=" TUTTI_BINARY_DIR "/test-cache; " +
                     shell + " exec " TUTTI_BINARY_DIR "/tutti " + arguments + " > out.txt 2> err.txt");
}

int Workplace::wait(int pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status_of(status);
}

std::vector<std::string> Workplace::metric(const std::string& run, const std::string& key) const {
  std::vector<std::string> values;
  std::istringstream lines(read("runs/" + run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    values.push_back(record.at(key).is_string() ? record.at(key).get<std::string>() : record.at(key).dump());
  }
  return values;
}

std::vector<int> ranks_of(int launcher) {
  const std::string proc = "/proc/" + std::to_string(launcher);
  std::ifstream file(proc + "/task/" + std::to_string(launcher) + "/children");
  std::vector<int> ranks;
  for (int child; file >> child;) {
    if (read_file("/proc/" + std::to_string(child) + "/comm") != "tutti-keeper\n") ranks.push_back(child);
  }
  return ranks;
}

std::string Workplace::digest(const std::string& run) const {
  const Output output = tutti("checkpoint ls runs/" + run + " --digest");
  EXPECT_EQ(output.status, 0) << output.err;
  return output.out;
}

std::string synthetic_corpus(uint64_t seed, int documents) {
  static const char* const words[] = {"the",   "a",     "river", "stone", "old",  "bright", "word",  "means", "that",
                                      "which", "small", "light", "of",    "and",  "in",     "to",    "used",  "made",
                                      "house", "sound", "bird",  "water", "slow", "turns",  "under", "over"};
  uint64_t state = seed;
  const auto next = [&](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
  };
  std::string corpus;
  for (int d = 0; d < documents; ++d) {
    std::string text;
    for (uint64_t sentence = 3 + next(5); sentence > 0; --sentence) {
      for (uint64_t n = 4 + next(9); n > 0; --n)
        text += std::string(words[next(std::size(words))]) + (n == 1 ? ". " : " ");
    }
    corpus += nlohmann::json{{"text", text}}.dump() + "\n";
  }
  return corpus;
}

}  // namespace tutti::test
