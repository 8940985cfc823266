#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "cli/command.h"
#include "tutti/core/error.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/runtime/host.h"

namespace tutti::cli {
namespace {

struct LaunchFlags {
  std::string ranks = "1";
  std::string nodes = "1";
  int node_rank = 0;
  bool node_rank_given = false;
  std::string endpoint;
  int join_timeout = 300;
  int max_restarts = 0;
  bool survive_rank_loss = false;
  std::string log_dir;
  bool tee = false;
  std::string run_id;
  bool as_rank = false;
  std::vector<std::string> program;
};

constexpr int kMostRanks = 4096;

int number(const std::string& flag, std::string_view text, int most, const std::string& expected) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TUTTI_CHECK(error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= most,
              "{} is '{}'; expected {}", flag, text, expected);
  return value;
}

int ranks_of(const LaunchFlags& flags) {
  if (flags.ranks == "auto" || flags.ranks == "cpu") return usable_cores();
  return number("-n", flags.ranks, kMostRanks,
                fmt::format("1 to {}, or auto or cpu for one rank per core", kMostRanks));
}

comm::NodeOptions nodes_of(const LaunchFlags& flags) {
  const std::string expected =
      fmt::format("a number of nodes, or the least and the most: 2 or 2:4, up to {}", kMostRanks);
  const size_t colon = flags.nodes.find(':');
  comm::NodeOptions nodes;
  nodes.min_nodes = number("--nnodes", std::string_view(flags.nodes).substr(0, colon), kMostRanks, expected);
  nodes.max_nodes = colon == std::string::npos
                        ? nodes.min_nodes
                        : number("--nnodes", std::string_view(flags.nodes).substr(colon + 1), kMostRanks, expected);
  TUTTI_CHECK(nodes.min_nodes <= nodes.max_nodes, "--nnodes is {}: the least number of nodes is above the most",
              flags.nodes);
  nodes.node_rank = flags.node_rank;
  nodes.join = std::chrono::seconds(flags.join_timeout);
  TUTTI_CHECK(nodes.max_nodes == 1 || (flags.node_rank_given && !flags.endpoint.empty()),
              "--nnodes {} needs --node-rank, 0 to {}, and --rdzv-endpoint HOST:PORT, a free port of the host of node "
              "0, which is the same for all nodes",
              flags.nodes, nodes.max_nodes - 1);
  TUTTI_CHECK(nodes.node_rank < nodes.max_nodes, "--node-rank is {}, but --nnodes {} leaves 0 to {}", nodes.node_rank,
              flags.nodes, nodes.max_nodes - 1);
  if (flags.endpoint.empty()) return nodes;
  const size_t port = flags.endpoint.rfind(':');
  const std::string_view digits = port == std::string::npos ? "" : std::string_view(flags.endpoint).substr(port + 1);
  const std::string wants =
      "HOST:PORT with a port from 1 to 65535" +
      std::string(nodes.max_nodes == 1 ? ", or 0 for one that is free" : " that is free on the host of node 0");
  nodes.host = flags.endpoint.substr(0, port);
  if (nodes.host.starts_with('[') && nodes.host.ends_with(']'))
    nodes.host = nodes.host.substr(1, nodes.host.size() - 2);
  const bool any_port = digits == "0" && nodes.max_nodes == 1;
  TUTTI_CHECK(!nodes.host.empty() && !digits.empty(), "--rdzv-endpoint is '{}'; expected {}", flags.endpoint, wants);
  nodes.port = any_port ? 0 : number("the port of --rdzv-endpoint", digits, 65535, wants);
  return nodes;
}

// Said once here, instead of by every rank.
void check_program(const std::string& name) {
  const auto can_run = [](const std::string& path) {
    std::error_code none;
    return access(path.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(path, none);
  };
  if (name.find('/') != std::string::npos) {
    TUTTI_CHECK(std::filesystem::exists(name), "there is no program '{}'", name);
    TUTTI_CHECK(can_run(name), "'{}' cannot be run; is it a program, and executable (chmod +x)?", name);
    return;
  }
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "/usr/bin:/bin";
  for (size_t begin = 0, end; begin <= folders.size(); begin = end + 1) {
    end = std::min(folders.find(':', begin), folders.size());
    if (can_run(folders.substr(begin, end - begin) + "/" + name)) return;
  }
  const std::string hint = can_run(name) ? fmt::format("; for the one in this folder write ./{}", name) : "";
  throw UsageError(fmt::format("there is no program '{}' in PATH{}", name, hint));
}

// This process becomes the program. The kernel kills it when the launcher goes, whatever the program does about
// signals; a program of Tutti ties itself again, and more gently.
int become(std::vector<std::string>& program) {
  comm::tie_to_launcher(SIGKILL);
  std::vector<char*> argv;
  for (std::string& word : program) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::signal(SIGXFSZ, SIG_DFL);  // ignored since main()
  execvp(argv[0], argv.data());
  throw EnvironmentError(fmt::format("cannot start '{}': {}", program[0], detail::errno_text(errno)));
}

int run_launch(LaunchFlags flags) {
  if (flags.as_rank) return become(flags.program);
  TUTTI_CHECK(!flags.tee || !flags.log_dir.empty(),
              "--tee shows the output that goes to files as well; give --log-dir DIR, or leave out --tee");
  comm::LaunchOptions options{.ranks = ranks_of(flags),
                              .all_prefixed = true,
                              .announce = true,
                              .log_dir = flags.log_dir,
                              .tee = flags.tee,
                              .max_restarts = flags.max_restarts,
                              .survive_rank_loss = flags.survive_rank_loss,
                              .run_id = flags.run_id,
                              .nodes = nodes_of(flags)};
  check_program(flags.program[0]);
  options.argv = {"tutti", "launch", "--as-rank", "--"};
  options.argv.insert(options.argv.end(), flags.program.begin(), flags.program.end());
  return comm::launch_local(options);
}

}  // namespace

void add_launch(CLI::App& app, Action& action, int& argc, char** argv) {
  auto flags = std::make_shared<LaunchFlags>();
  bool behind_dashes = false;
  if (argc > 1 && std::string_view(argv[1]) == "launch") {
    for (int i = 2; i < argc && !behind_dashes; ++i) {
      behind_dashes = std::string_view(argv[i]) == "--";
      if (behind_dashes) flags->program.assign(argv + i + 1, argv + std::exchange(argc, i));
    }
  }
  CLI::App* verb = app.add_subcommand(
      "launch", "Start the ranks of any program, here or on several hosts: tutti launch -n 4 -- PROGRAM ARGUMENTS");
  verb->add_option("-n,--nproc-per-node", flags->ranks,
                   "Ranks to start here: a number, or auto or cpu for one per core")
      ->capture_default_str();
  verb->add_option("--nnodes", flags->nodes, "Nodes: a number, or the least and the most as 2:4")
      ->capture_default_str();
  verb->add_option("--node-rank", flags->node_rank, "Number of this node, from 0; node 0 serves the endpoint")
      ->check(CLI::NonNegativeNumber);
  verb->add_option(
      "--rdzv-endpoint", flags->endpoint,
      "HOST:PORT where the nodes meet; several hosts need a job key in TUTTI_JOB_KEY or TUTTI_JOB_KEY_FILE");
  verb->add_option("--rdzv-timeout", flags->join_timeout, "Seconds for the nodes to come")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  verb->add_option("--max-restarts", flags->max_restarts, "How often all ranks are started again after one has failed")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->add_flag("--survive-rank-loss", flags->survive_rank_loss,
                 "A rank that a signal kills does not end the others: for tutti train with training.survive_rank_loss; "
                 "--max-restarts "
                 "then counts replacements, too");
  verb->add_option("--log-dir", flags->log_dir,
                   "Write what ranks say to DIR/<restart>/rank<r>.out and .err instead of here");
  verb->add_flag("--tee", flags->tee, "With --log-dir: also here");
  verb->add_option("--run-id", flags->run_id, "Name of the job, told to the ranks as TORCHELASTIC_RUN_ID");
  verb->add_flag("--as-rank", flags->as_rank)->group("");  // how the launcher starts a rank
  verb->prefix_command();  // what the launcher does not know begins the program's command line
  verb->callback([flags, verb, behind_dashes, &action] {
    const std::vector<std::string> rest = verb->remaining();
    if (!rest.empty() && (behind_dashes || rest[0].starts_with("-"))) throw CLI::ExtrasError("launch", rest);
    if (!behind_dashes) flags->program = rest;
    if (flags->program.empty()) throw CLI::RequiredError("The program to start, behind --,");
    flags->node_rank_given = verb->count("--node-rank") > 0;
    action = [flags] { return run_launch(*flags); };
  });
}

}  // namespace tutti::cli
