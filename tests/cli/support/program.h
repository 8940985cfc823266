// Runs the tutti program in a folder of its own and looks at what it leaves.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::test {

struct Output {
  int status = 0;  // exit status, 128 + n for signal n
  std::string out, err;
};

// A fresh folder, removed with the object; the program's caches are shared by all tests of one run.
class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path write(const std::string& name, const std::string& contents) const;
  std::string read(const std::string& name) const;

  // Runs `tutti ARGUMENTS` here, behind `shell` (variables or limits, as a shell writes them).
  Output tutti(const std::string& arguments, const std::string& shell = "") const;
  // Runs a command of the shell here, such as a copy of the program.
  Output run(const std::string& command) const;
  // Starts the program without waiting, behind `shell` too; the process id.
  int start(const std::string& arguments, const std::string& shell = "") const;
  // Waits for a started process; its status as in Output.
  static int wait(int pid);

  // One value per step of runs/<run>/metrics.jsonl, as text.
  std::vector<std::string> metric(const std::string& run, const std::string& key) const;
  std::string digest(const std::string& run) const;

 private:
  std::filesystem::path folder_;
};

// The ranks that a launcher has started and that run, in the order of their starts: its children but the keeper.
std::vector<int> ranks_of(int launcher);

// English-looking sentences from a seeded generator, as jsonl; the same bytes everywhere.
std::string synthetic_corpus(uint64_t seed, int documents);

}  // namespace tutti::test
