// `tutti bench comm`: starts ranks, measures collectives between them, or compares transports bit by bit.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "bench/comm_bench.h"
#include "bench/comm_tune.h"
#include "bench/delayed_transport.h"
#include "bench/input_buffers_bench.h"
#include "bench/overlap_bench.h"
#include "bench/redistribution_costs.h"
#include "cli/command.h"
#include "cli/runs_folder.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/job/rendezvous/launch_variables.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::cli {

void add_bench_comm(CLI::App& bench, Action& action, int argc, char** argv);

namespace {

struct CommFlags {
  int ranks = 2;
  std::vector<std::string> transports = {"shm"};
  std::vector<std::string> ops = bench::comm_ops();
  std::vector<int64_t> bytes = {8, 1 << 10, 32 << 10, 1 << 20, 16 << 20, 64 << 20};
  std::string buffers = "plain";
  bool json = false, verify = false, overlap = false;
  std::vector<std::string> steps = bench::overlap_steps();
  int repeats = 15;
  std::vector<int64_t> input_buffers = {};
  int64_t delay_us = 0;
  double delay_gbps = 0;
  std::string digests_to;
  std::string tune_to;
  std::string costs_to;
  std::vector<std::string> command_line;
};

void print(const bench::CommResult& r, bool json) {
  const char* buffers = r.what.symmetric ? "symmetric" : "plain";
  if (json) {
    const nlohmann::ordered_json line = {
        {"op", r.what.op},          {"bytes", r.bytes},         {"asked_bytes", r.what.bytes},
        {"ranks", r.ranks},         {"transport", r.transport}, {"buffers", buffers},
        {"min_us", r.min_us},       {"median_us", r.median_us}, {"p99_us", r.p99_us},
        {"algbw_gbs", r.algbw_gbs}, {"busbw_gbs", r.busbw_gbs}, {"wrong", r.wrong}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%12lld %12lld %8s %20s %6s %10s %12.2f %10.2f %10.2f %8.2f %8.2f %7lld\n",
                static_cast<long long>(r.bytes), static_cast<long long>(r.bytes / 4), "float", r.what.op.c_str(),
                r.transport.c_str(), buffers, r.min_us, r.median_us, r.p99_us, r.algbw_gbs, r.busbw_gbs,
                static_cast<long long>(r.wrong));
  }
  std::fflush(stdout);
}

// Every rank runs it; rank 0 prints. Exit status 1 when a result was wrong.
int measure_all(comm::ProcessGroup& group, const CommFlags& flags) {
  int64_t wrong = 0;
  if (group.rank() == 0 && !flags.json) {
    std::printf("%12s %12s %8s %20s %6s %10s %12s %10s %10s %8s %8s %7s\n", "size", "count", "type", "op", "via",
                "buffers", "min(us)", "median(us)", "p99(us)", "algbw", "busbw", "#wrong");
  }
  for (const std::string& op : flags.ops) {
    for (const int64_t bytes : op == "barrier" ? std::vector<int64_t>{0} : flags.bytes) {
      const bench::CommResult result =
          bench::run_comm_case(group, {.op = op, .bytes = bytes, .symmetric = flags.buffers == "symmetric"});
      if (group.rank() == 0) print(result, flags.json);
      wrong += result.wrong;
    }
  }
  return wrong > 0 ? 1 : 0;
}

void print(const bench::OverlapResult& r, bool json) {
  if (json) {
    const nlohmann::ordered_json line = {{"step", r.step},
                                         {"ranks", r.ranks},
                                         {"transport", r.transport},
                                         {"progress_thread", r.progress_thread},
                                         {"compute_us", r.compute_us},
                                         {"apart_us", r.apart_us},
                                         {"overlapped_us", r.overlapped_us},
                                         {"hidden", r.hidden()}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%-12s %6d %8s %8s %14.0f %12.0f %15.0f %8.2f\n", r.step.c_str(), r.ranks, r.transport.c_str(),
                r.progress_thread ? "yes" : "no", r.compute_us, r.apart_us, r.overlapped_us, r.hidden());
  }
  std::fflush(stdout);
}

void measure_input_buffers(comm::ProcessGroup& group, const CommFlags& flags) {
  const std::vector<bench::InputBuffersResult> results =
      bench::run_input_buffers_case(group, flags.input_buffers, flags.repeats);
  if (group.rank() != 0) return;
  if (!flags.json)
    std::printf("%8s %6s %8s %10s %8s %12s %8s %12s %16s\n", "buffers", "ranks", "via", "buckets", "early", "step(us)",
                "waits", "waited(us)", "at the end(us)");
  for (const bench::InputBuffersResult& r : results) {
    if (flags.json) {
      const nlohmann::ordered_json line = {
          {"buffers", r.buffers}, {"ranks", r.ranks},         {"transport", r.transport},
          {"buckets", r.buckets}, {"early", r.early},         {"step_us", r.step_us},
          {"waits", r.waits},     {"waited_us", r.waited_us}, {"waited_at_end_us", r.waited_at_end_us}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%8lld %6d %8s %10zu %8zu %12.0f %8zu %12.0f %16.0f\n", static_cast<long long>(r.buffers), r.ranks,
                  r.transport.c_str(), r.buckets, r.early, r.step_us, r.waits, r.waited_us, r.waited_at_end_us);
    }
  }
  std::fflush(stdout);
}

void measure_overlap(comm::ProcessGroup& on_host, const CommFlags& flags) {
  const bench::Link link{.latency = std::chrono::microseconds(flags.delay_us), .gbps = flags.delay_gbps};
  const std::shared_ptr<comm::ProcessGroup> delayed = link.delays() ? bench::delayed_group(on_host, link) : nullptr;
  comm::ProcessGroup& group = delayed ? *delayed : on_host;
  if (!flags.input_buffers.empty()) return measure_input_buffers(group, flags);
  if (group.rank() == 0 && !flags.json) {
    std::printf("%-12s %6s %8s %8s %14s %12s %15s %8s\n", "step", "ranks", "via", "thread", "compute(us)", "apart(us)",
                "overlapped(us)", "hidden");
  }
  for (const std::string& step : flags.steps) {
    for (const bool thread : {false, true}) {
      const bench::OverlapResult result = bench::run_overlap_case(group, step, thread, flags.repeats);
      if (group.rank() == 0) print(result, flags.json);
    }
  }
}

std::string key_of(const bench::CommDigest& d) {
  return fmt::format("{} {} {} {}", d.op, d.dtype, d.reduce.empty() ? "-" : d.reduce, d.elements);
}

void write_digests(comm::ProcessGroup& group, const std::string& path) {
  const std::vector<bench::CommDigest> digests = bench::comm_digests(group);
  if (group.rank() != 0) return;
  std::ofstream out(path);
  for (const bench::CommDigest& d : digests) out << fmt::format("{} {:014x}\n", key_of(d), d.digest);
}

void tune(comm::ProcessGroup& group, const std::string& path) {
  const comm::symm::TuningTable table = bench::tune_comm(group, true);
  if (group.rank() != 0) return;
  write_file_atomically(path, table.to_text());
  std::fprintf(stderr, "TUTTI_SYMM_TUNING=%s takes this table\n", path.c_str());
}

// Into a file of its own or one that has costs of other transports and numbers of ranks, which stay.
void write_costs(comm::ProcessGroup& group, const std::string& path) {
  const dist::MeasuredCosts found = bench::measure_costs(group, true);
  if (group.rank() != 0) return;
  dist::MeasuredCosts costs = std::filesystem::exists(path) ? dist::MeasuredCosts::read(path) : dist::MeasuredCosts();
  costs.set(found);
  write_file_atomically(path, costs.to_text());
  std::fprintf(stderr, "TUTTI_DTENSOR_COSTS=%s takes these costs\n", path.c_str());
}

int run_as_rank(const CommFlags& flags) {
  const auto place = comm::read_launch_place();
  // On one host hier would be shm: each half of the ranks passes for a host.
  if (!flags.digests_to.empty() && flags.transports[0] == "hier") {
    setenv("TUTTI_HOST_ID", std::to_string(place->rank * 2 / place->world_size).c_str(), 0);
  }
  comm::tie_to_launcher();
  RankContext context({.rank = place->rank, .world_size = place->world_size, .threads = 1});
  const RankContext::Scope scope(context);
  const auto group =
      comm::init_process_group({.group = {.name = "0", .description = "all ranks", .transport = flags.transports[0]}});
  int status = 0;
  if (!flags.digests_to.empty()) write_digests(*group, flags.digests_to);
  else if (!flags.tune_to.empty()) tune(*group, flags.tune_to);
  else if (!flags.costs_to.empty()) write_costs(*group, flags.costs_to);
  else if (flags.overlap) measure_overlap(*group, flags);
  else status = measure_all(*group, flags);
  group->barrier();
  comm::destroy_process_group();
  return status;
}

// One word of a shell's command line.
std::string in_quotes(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Runs this program's ranks over one transport; what they do is said by `arguments`.
int start_ranks(const std::string& transport, int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {"tutti", "bench", "comm", "--transport", transport};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  if (transport != "mpi") return comm::launch_local({.ranks = ranks, .argv = argv, .environment = {"TUTTI_THREADS=1"}});
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  TUTTI_CHECK_ENV(length > 0, "cannot find this program's own path");
  std::string command = fmt::format("mpirun {} --oversubscribe -n {} {}", geteuid() == 0 ? "--allow-run-as-root" : "",
                                    ranks, in_quotes(std::string(self, static_cast<size_t>(length))));
  for (size_t i = 1; i < argv.size(); ++i) command += " " + in_quotes(argv[i]);
  const int status = std::system(command.c_str());
  TUTTI_CHECK_ENV(status != -1 && !(WIFEXITED(status) && WEXITSTATUS(status) == 127),
                  "transport mpi: mpirun cannot be started; is it in PATH? (Debian: apt install openmpi-bin)");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

using Digests = std::map<std::string, std::string>;

Digests digests_over(const std::string& transport, int ranks) {
  const RunsFolder folder("", "tutti-digests");
  const std::string path = (folder.path() / "digests").string();
  if (transport == "threads") {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) { write_digests(group, path); }, {.transport = "threads"});
  } else {
    const int status = start_ranks(transport, ranks, {"--digests-to", path});
    TUTTI_CHECK_ENV(status == 0, "transport {} with {} ranks ended with status {}", transport, ranks, status);
  }
  Digests digests;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    digests[line.substr(0, line.rfind(' '))] = line.substr(line.rfind(' ') + 1);
  TUTTI_CHECK_ENV(!digests.empty(), "transport {} with {} ranks wrote no digests", transport, ranks);
  return digests;
}

// Equal output bits over all transports and world sizes up to `ranks`.
int verify(const CommFlags& flags) {
  int64_t differing = 0;
  for (int ranks = 1; ranks <= flags.ranks; ++ranks) {
    const Digests first = digests_over(flags.transports[0], ranks);
    for (size_t t = 0; t < flags.transports.size(); ++t) {
      const Digests other = t == 0 ? first : digests_over(flags.transports[t], ranks);
      int64_t unequal = 0;
      for (const auto& [key, digest] : first) {
        const auto found = other.find(key);
        const bool equal = found != other.end() && found->second == digest;
        unequal += !equal;
        if (equal) continue;
        std::fprintf(stderr, "%s over %s with %d ranks: %s, over %s: %s\n", key.c_str(), flags.transports[0].c_str(),
                     ranks, digest.c_str(), flags.transports[t].c_str(),
                     found == other.end() ? "missing" : found->second.c_str());
      }
      differing += unequal + (other.size() != first.size());
      if (flags.json) {
        const nlohmann::ordered_json line = {
            {"transport", flags.transports[t]}, {"ranks", ranks}, {"digests", other.size()}, {"differing", unequal}};
        std::printf("%s\n", line.dump().c_str());
      } else {
        std::printf("%-8s %d ranks: %zu digests, %lld differ from %s\n", flags.transports[t].c_str(), ranks,
                    other.size(), static_cast<long long>(unequal), flags.transports[0].c_str());
      }
      std::fflush(stdout);
    }
  }
  return differing > 0 ? 1 : 0;
}

// "cpu:shm,cuda:nccl", as TUTTI_TRANSPORT may say: host tensors are what is measured here.
std::vector<std::string> of_host_tensors(const std::vector<std::string>& transports) {
  std::vector<std::string> names;
  for (const std::string& name : transports) {
    if (name.starts_with("cpu:")) names.push_back(name.substr(4));
    else if (!name.starts_with("cuda:")) names.push_back(name);
  }
  return names.empty() ? CommFlags().transports : names;
}

int run(CommFlags flags) {
  flags.transports = of_host_tensors(flags.transports);
  std::vector<std::string> known;
  for (const comm::TransportInfo& info : comm::known_transports()) known.push_back(info.name);
  for (const std::string& name : flags.transports) {
    TUTTI_CHECK(std::find(known.begin(), known.end(), name) != known.end(), "{}",
                unknown_name_message("transport", name, known));
  }
  for (const std::string& op : flags.ops) {
    TUTTI_CHECK(std::find(bench::comm_ops().begin(), bench::comm_ops().end(), op) != bench::comm_ops().end(), "{}",
                unknown_name_message("collective", op, bench::comm_ops()));
  }
  if (comm::read_launch_place()) return run_as_rank(flags);
  if (flags.verify) return verify(flags);
  TUTTI_CHECK(flags.tune_to.empty() || flags.transports[0] == "shm",
              "--tune measures processes that share memory: --transport shm");
  TUTTI_CHECK(flags.transports.size() == 1, "{} transports given; only --verify compares several",
              flags.transports.size());
  if (flags.transports[0] == "threads" && flags.tune_to.empty()) {
    int status = 0;
    comm::run_ranks(flags.ranks,
                    [&](comm::ProcessGroup& group) {
                      if (!flags.costs_to.empty()) return write_costs(group, flags.costs_to);
                      if (flags.overlap) return measure_overlap(group, flags);
                      const int own = measure_all(group, flags);
                      if (group.rank() == 0) status = own;
                    },
                    {.transport = "threads"});
    return status;
  }
  if (flags.transports[0] == "mpi") {
    return start_ranks("mpi", flags.ranks,
                       std::vector<std::string>(flags.command_line.begin() + 3, flags.command_line.end()));
  }
  return comm::launch_local({.ranks = flags.ranks, .argv = flags.command_line, .environment = {"TUTTI_THREADS=1"}});
}

}  // namespace

void add_bench_comm(CLI::App& bench, Action& action, int argc, char** argv) {
  auto flags = std::make_shared<CommFlags>();
  flags->command_line.assign(argv, argv + argc);
  CLI::App* verb = bench.add_subcommand("comm", "Collectives between local ranks, in the terms of nccl-tests");
  verb->add_option("-n,--ranks", flags->ranks, "Ranks; with --verify: world sizes from 1 to this")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->add_option("--transport", flags->transports, "shm, threads, gloo, mpi, hier; with --verify several, by commas")
      ->delimiter(',')
      ->envname("TUTTI_TRANSPORT")
      ->capture_default_str();
  verb->add_option("--op", flags->ops, "Collectives, by commas")->delimiter(',')->capture_default_str();
  verb->add_option("--bytes", flags->bytes,
                   "Sizes as in nccl-tests, by commas; rounded to whole floats, equally many per rank")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 34))
      ->capture_default_str();
  verb->add_option("--buffers", flags->buffers, "plain or symmetric memory")
      ->check(CLI::IsMember({"plain", "symmetric"}))
      ->capture_default_str();
  verb->add_flag("--verify", flags->verify,
                 "Compare the output bits of every op, dtype, reduce op and size over the transports; exit status 1 "
                 "when any differ");
  CLI::Option* overlap = verb->add_flag(
      "--overlap", flags->overlap,
      "Measure how much of the time of communication is hidden behind computation, with and without a progress thread");
  for (const char* other : {"--op", "--bytes", "--buffers", "--verify"}) overlap->excludes(other);
  verb->add_option("--step", flags->steps, "For --overlap: the steps to measure, by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(bench::overlap_steps()))
      ->capture_default_str()
      ->needs(overlap);
  verb->add_option("--repeats", flags->repeats, "For --overlap: how often each step is taken in each way")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->needs(overlap);
  verb->add_option("--input-buffers", flags->input_buffers,
                   "For --overlap: measure steps of the quickstart with so many buckets of gradients on their way at "
                   "once, by commas, in turns")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->needs(overlap)
      ->excludes("--step");
  verb->add_option("--delay-us", flags->delay_us,
                   "For --overlap: microseconds that each round takes at least, as over a network")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str()
      ->needs(overlap);
  verb->add_option(
          "--delay-gbps", flags->delay_gbps,
          "For --overlap: the rate in 10^9 bytes per second at which a rank receives; 0: that of the transport")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->needs(overlap);
  verb->add_option(
      "--tune", flags->tune_to,
      "Measure which algorithms of symmetric memory are the fastest here and write the table to this file");
  verb->add_option(
          "--costs", flags->costs_to,
          "Measure what redistributions of distributed tensors cost over this transport and add it to this file")
      ->excludes(overlap);
  verb->add_option("--digests-to", flags->digests_to, "For --verify: where a rank writes its digests")->group("");
  verb->add_flag(
      "--json", flags->json,
      "One object per line: op, bytes (moved), asked_bytes, ranks, transport, buffers, min_us, median_us, p99_us, "
      "algbw_gbs, busbw_gbs, wrong (--verify: transport, ranks, digests, differing; --overlap: step, ranks, transport, "
      "progress_thread, compute_us, apart_us, overlapped_us, hidden; --input-buffers: buffers, ranks, transport, "
      "buckets, early, step_us, waits, waited_us, waited_at_end_us)");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace tutti::cli
