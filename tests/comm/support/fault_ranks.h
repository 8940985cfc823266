// Scenarios in which ranks die, leave or come late, played over any transport: by threads of the test, by processes
// that the test starts, or by those of mpirun (tools/fault_program.cpp).
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

// One rank's side of a scenario.
class FaultRank {
 public:
  FaultRank(ProcessGroup& world, std::string argument, const std::string& folder);
  ProcessGroup& world;
  const std::string argument;
  // Tells the test; what a rank said before it is killed arrives.
  void say(const std::string& key, const std::string& value) const;
  // Says which class of error `call` throws (`<key>.class`, "" when none), its text, and how long the call took
  // (`.ms`).
  void say_outcome(const std::string& key, const std::function<void()>& call) const;

 private:
  const std::string path_;
};

// UsageError lists the scenarios there are.
void play(const std::string& scenario, FaultRank& rank);

// The lines that one rank has said.
class Told {
 public:
  explicit Told(std::map<std::string, std::string> said) : said_(std::move(said)) {}
  // "" when it has not been said.
  std::string operator[](const std::string& key) const;
  double number(const std::string& key) const;
  // "rank 2 (pid 4711 on host7)".
  std::string name(int rank) const;

 private:
  std::map<std::string, std::string> said_;
};

struct Played {
  std::vector<Told> ranks;
  std::string output;  // of the processes
};
// Four ranks play a scenario; returns when all have ended. Two ranks each share a host where the transport is hier.
inline constexpr int kFaultRanks = 4;
Played play_over(const std::string& transport, const std::string& scenario, const std::string& argument = "");
// The same by an mpirun that is not told to go on when a rank dies.
Played play_under_plain_mpirun(const std::string& scenario, const std::string& argument);

// The program of a rank: joins the world whose store is served at `port`, and plays.
void play_as_process(const std::string& transport, const std::string& scenario, const std::string& argument,
                     const std::string& folder, int port, int rank);

// The rows of the scenario "deadlines", in which the last rank does not come: the call, and the milliseconds it is
// given.
struct Deadline {
  std::string row;
  double ms;
};
std::vector<Deadline> deadlines();

// Descriptors by which the world watches its peers, opened when it first waits for a slow one.
inline constexpr int kWatchedPeers = 2 * kFaultRanks;

// ---- the rows of the suite, and the transports that have them

// A row that a transport cannot have, and why.
struct MissingRow {
  const char* transport;
  const char* row;
  const char* reason;
};
const std::vector<MissingRow>& missing_rows();
// The transports of this build that have the row.
std::vector<std::string> transports_with(const std::string& row);

}  // namespace tutti::comm
