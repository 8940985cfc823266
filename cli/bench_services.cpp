// `tutti bench services`: measures in this process, then starts ranks that make groups.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/services_bench.h"
#include "cli/command.h"
#include "tutti/comm/groups.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/job/rendezvous/launch_variables.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::cli {

void add_bench_services(CLI::App& bench, Action& action, int argc, char** argv);

namespace {

struct ServiceFlags {
  int clients = 2000, groups = 1000, ranks = 4;
  bool json = false;
  std::vector<std::string> command_line;
};

void print(const bench::ServiceResult& r, bool json) {
  if (json) {
    const nlohmann::ordered_json line = {{"service", r.service}, {"count", r.count},   {"of", r.of},
                                         {"ranks", r.ranks},     {"min_ns", r.min_ns}, {"median_ns", r.median_ns}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("%-22s %9lld %-8s %5d %16.1f %16.1f\n", r.service.c_str(), static_cast<long long>(r.count),
                r.of.c_str(), r.ranks, r.min_ns, r.median_ns);
  }
  std::fflush(stdout);
}

int run_as_rank(const ServiceFlags& flags, const comm::LaunchPlace& place) {
  comm::tie_to_launcher();
  RankContext context({.rank = place.rank, .world_size = place.world_size, .threads = 1});
  const RankContext::Scope scope(context);
  const auto world = comm::init_process_group();
  bench::bench_new_group(*world, flags.groups, [&](const bench::ServiceResult& r) { print(r, flags.json); });
  world->barrier();
  comm::destroy_process_group();
  return 0;
}

int run(const ServiceFlags& flags) {
  if (const auto place = comm::read_launch_place()) return run_as_rank(flags, *place);
  if (!flags.json)
    std::printf("%-22s %9s %-8s %5s %16s %16s\n", "service", "count", "of", "ranks", "min_ns", "median_ns");
  std::fflush(stdout);
  const auto report = [&](const bench::ServiceResult& r) { print(r, flags.json); };
  bench::bench_recorder(report);
  bench::bench_store(report);
  bench::bench_store_clients(flags.clients, report);
  return comm::launch_local({.ranks = flags.ranks, .argv = flags.command_line, .environment = {"TUTTI_THREADS=1"}});
}

}  // namespace

void add_bench_services(CLI::App& bench, Action& action, int argc, char** argv) {
  auto flags = std::make_shared<ServiceFlags>();
  flags->command_line.assign(argv, argv + argc);
  CLI::App* verb = bench.add_subcommand(
      "services", "What a job costs around its collectives: store, flight recorder, making groups");
  verb->add_option("--clients", flags->clients, "Clients of the store that connect at once")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  verb->add_option("--groups", flags->groups, "Groups made one after another")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  verb->add_option("-n,--ranks", flags->ranks, "Processes that make them")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->add_flag("--json", flags->json,
                 "One object per line: service, count, of, ranks, min_ns, median_ns (of all `count` together)");
  verb->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace tutti::cli
