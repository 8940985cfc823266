#include "tests/comm/support/fault_ranks.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "tests/job/support/run_command.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::seconds kLimit{100};  // of a scenario on a machine that does much else

std::string path_of(const std::string& folder, int rank) { return fmt::format("{}/rank{}", folder, rank); }

std::string class_of(const std::exception& error) {
  if (dynamic_cast<const PeerError*>(&error)) return "PeerError";
  if (dynamic_cast<const TimeoutError*>(&error)) return "TimeoutError";
  if (dynamic_cast<const StoreTimeout*>(&error)) return "StoreTimeout";
  if (dynamic_cast<const UsageError*>(&error)) return "UsageError";
  if (dynamic_cast<const EnvironmentError*>(&error)) return "EnvironmentError";
  if (dynamic_cast<const InternalError*>(&error)) return "InternalError";
  return "std::exception";
}

// A folder for what the ranks say, and for the dumps of their flight recorders, which stay small: groups that have
// ended are remembered until the last of their calls has left the ring.
class Folder {
 public:
  Folder() : path_(fresh_path("tutti-faults")) {
    std::filesystem::create_directory(path_);
    setenv("TUTTI_FLIGHT_RECORDER_ENTRIES", "64", 1);
    setenv("TUTTI_FLIGHT_RECORDER_DUMP", (path_ + "/dump").c_str(), 1);
  }
  ~Folder() {
    unsetenv("TUTTI_FLIGHT_RECORDER_ENTRIES");
    unsetenv("TUTTI_FLIGHT_RECORDER_DUMP");
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  Played read(std::string output) const {
    Played played{.ranks = {}, .output = std::move(output)};
    for (int r = 0; r < kFaultRanks; ++r) {
      std::ifstream file(path_of(path_, r));
      std::map<std::string, std::string> said;
      for (std::string line; std::getline(file, line);)
        said[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
      played.ranks.emplace_back(std::move(said));
    }
    return played;
  }

 private:
  const std::string path_;
};

Played play_with_processes(const std::string& transport, const std::string& scenario, const std::string& argument,
                           const std::string& mpirun_flags) {
  const Folder folder;
  TcpStoreServer server({.bind_address = "127.0.0.1", .job_key = ""});
  const std::string program = fmt::format("{}/fault_program {} {} '{}' {} {}", TUTTI_BINARY_DIR, transport, scenario,
                                          argument, folder.path(), server.port());
  std::string command;
  if (transport == "mpi") {
    const char* root = geteuid() == 0 ? "--allow-run-as-root" : "";  // which must say that it means it
    command = fmt::format("timeout {} mpirun {} --oversubscribe {} -n {} {}", kLimit.count(), root, mpirun_flags,
                          kFaultRanks, program);
  } else {
    for (int r = 0; r < kFaultRanks; ++r) command += fmt::format("timeout {} {} {} & ", kLimit.count(), program, r);
    command = fmt::format("({}wait)", command);
  }
  return folder.read(run_command(command).output);
}

// An mpirun that lets the others go on when a rank has died.
constexpr const char* kGoOn = "--enable-recovery";
bool mpirun_goes_on() {
  static const bool does = run_command(fmt::format("timeout 60 mpirun {} --oversubscribe {} -n 1 true",
                                                   geteuid() == 0 ? "--allow-run-as-root" : "", kGoOn))
                               .exit_code == 0;
  return does;
}

}  // namespace

FaultRank::FaultRank(ProcessGroup& world_of_rank, std::string what, const std::string& folder)
    : world(world_of_rank), argument(std::move(what)), path_(path_of(folder, world_of_rank.world_rank())) {
  say("name", fmt::format("rank {} (pid {} on {})", world.rank(), getpid(), host_name()));
}

void FaultRank::say(const std::string& key, const std::string& value) const {
  std::string line = value;
  for (char& c : line) c = c == '\n' ? ' ' : c;
  std::ofstream(path_, std::ios::app) << key << '=' << line << std::endl;
}

void FaultRank::say_outcome(const std::string& key, const std::function<void()>& call) const {
  std::string kind, text;
  const auto start = std::chrono::steady_clock::now();
  try {
    call();
  } catch (const std::exception& error) {
    kind = class_of(error);
    text = error.what();
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  say(key + ".class", kind);
  say(key + ".text", text);
  say(key + ".ms", fmt::format("{}", took.count()));
}

std::string Told::operator[](const std::string& key) const {
  const auto found = said_.find(key);
  return found == said_.end() ? "" : found->second;
}

double Told::number(const std::string& key) const { return std::strtod((*this)[key].c_str(), nullptr); }

Played play_over(const std::string& transport, const std::string& scenario, const std::string& argument) {
  if (transport != "threads") return play_with_processes(transport, scenario, argument, mpirun_goes_on() ? kGoOn : "");
  const Folder folder;
  std::string output;
  try {
    run_ranks(kFaultRanks, [&](ProcessGroup& world) {
      FaultRank rank(world, argument, folder.path());
      play(scenario, rank);
    });
  } catch (const std::exception& error) {
    output = fmt::format("failed: {}", error.what());
  }
  return folder.read(output);
}

Played play_under_plain_mpirun(const std::string& scenario, const std::string& argument) {
  return play_with_processes("mpi", scenario, argument, "");
}

void play_as_process(const std::string& transport, const std::string& scenario, const std::string& argument,
                     const std::string& folder, int port, int rank) {
  if (transport == "hier") setenv("TUTTI_HOST_ID", fmt::format("host {}", rank / 2).c_str(), 1);
  setenv("TUTTI_TRANSPORT", transport.c_str(), 1);  // of the groups that scenarios make, too: the best one would be shm
  RankContext context({.rank = rank, .world_size = kFaultRanks, .threads = 1});
  const RankContext::Scope scope(context);
  const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = port, .job_key = ""});
  const auto world =
      init_process_group({.store = store,
                          .rank = rank,
                          .world_size = kFaultRanks,
                          .group = {.name = "0", .transport = transport, .timeout = std::chrono::minutes(1)}});
  FaultRank self(*world, argument, folder);
  play(scenario, self);
  destroy_process_group();
}

const std::vector<MissingRow>& missing_rows() {
  static const std::vector<MissingRow> rows = [] {
    std::vector<MissingRow> missing = {
        {"threads", "death", "SIGKILL ends the process, and with it all ranks"},
        {"threads", "shrink", "SIGKILL ends the process, and with it all ranks"},
        {"threads", "death while made", "SIGKILL ends the process, and with it all ranks"},
        {"threads", "death with the store", "SIGKILL ends the process, and with it all ranks"},
        {"mpi", "death while made",
         "every rank makes its side of a group on its own: a death is noticed in the first call, as in any"},
        {"mpi", "death with the store",
         "every rank makes its side of a group on its own: a death is noticed in the first call, as in any"},
        {"hier", "death with the store", "on other hosts nobody knows more than that the store is gone"},
    };
    if (!mpirun_goes_on()) {
      for (const char* row : {"death", "shrink"})
        missing.push_back({"mpi", row, "this mpirun has no flag --enable-recovery: it ends all ranks with the first"});
    }
    return missing;
  }();
  return rows;
}

std::vector<std::string> transports_with(const std::string& row) {
  std::vector<std::string> names;
  for (const TransportInfo& info : known_transports()) {
    bool has_row = info.available && info.name != "fake";  // which has no peers
    for (const MissingRow& missing : missing_rows()) has_row &= missing.transport != info.name || missing.row != row;
    if (has_row) names.push_back(info.name);
  }
  return names;
}

}  // namespace tutti::comm
