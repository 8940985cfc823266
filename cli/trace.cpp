#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "tutti/core/error.h"
#include "tutti/diagnose/diagnosis.h"
#include "tutti/runtime/trace/trace_merge.h"

namespace tutti::cli {
namespace {

// Status 0: nothing is wrong; 3: something is, so that scripts can tell it from an error.
constexpr int kFoundStatus = 3;

int run_why(const std::vector<std::string>& files, bool json) {
  std::vector<comm::FlightDump> dumps;
  for (const std::string& file : files) dumps.push_back(comm::read_flight_dump_file(file));
  const comm::Diagnosis diagnosis = comm::diagnose(dumps);
  std::printf("%s\n", json ? comm::to_json(diagnosis).c_str() : diagnosis.text.c_str());
  return diagnosis.healthy() ? 0 : kFoundStatus;
}

int run_merge(const std::string& out, const std::vector<std::string>& files, bool json) {
  const TraceMergeReport report = merge_traces(out, files);
  if (json) {
    nlohmann::json ranks = nlohmann::json::array();
    for (const TraceMergeReport::Rank& rank : report.ranks) {
      ranks.push_back({{"rank", rank.rank},
                       {"file", rank.file},
                       {"clock_offset_ns", rank.offset.ns},
                       {"aligned_by", name_of(rank.offset.by)},
                       {"matching_collectives", rank.offset.matches}});
    }
    const nlohmann::json all{{"file", out},
                             {"events", report.events},
                             {"collectives", report.collectives},
                             {"arrows", report.arrows},
                             {"ranks", ranks}};
    std::printf("%s\n", all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  }
  for (const TraceMergeReport::Rank& rank : report.ranks) {
    const bool shared = rank.offset.by == ClockOffset::By::collectives;
    std::printf("rank %d  %s  clock %+.3f us by %s%s\n", rank.rank, rank.file.c_str(),
                static_cast<double>(rank.offset.ns) / 1e3, name_of(rank.offset.by),
                shared ? fmt::format(" ({})", rank.offset.matches).c_str() : "");
  }
  std::printf("%s: %lld events, %lld matching collectives, %lld arrows; open it in https://ui.perfetto.dev\n",
              out.c_str(), static_cast<long long>(report.events), static_cast<long long>(report.collectives),
              static_cast<long long>(report.arrows));
  return 0;
}

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("trace", "Look into what ranks recorded");
  verb->require_subcommand(1);
  struct Flags {
    std::vector<std::string> files;
    bool json = false;
    std::string out;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* why = verb->add_subcommand("why",
                                       "Say which rank is missing where, from the flight recorder dumps of several "
                                       "ranks; exit status 0: no rank waits, 3: see the text");
  why->add_option("dumps", flags->files,
                  "Files written on a failure or on SIGUSR1, one per rank (TUTTI_FLIGHT_RECORDER_DUMP<rank>)")
      ->required();
  why->add_flag("--json", flags->json, "One object: healthy, text, findings, ranks, missing_dumps");
  why->callback([flags, &action] { action = [flags] { return run_why(flags->files, flags->json); }; });

  CLI::App* merge = verb->add_subcommand(
      "merge", "Put the traces of several ranks into one file: clocks aligned, arrows between matching collectives");
  merge->add_option("out", flags->out, "The file to write; Perfetto (https://ui.perfetto.dev) opens it")->required();
  merge
      ->add_option("traces", flags->files,
                   "One file per rank: runs/NAME/trace/rank-*.json, or what tutti::Profiler wrote")
      ->required();
  merge->add_flag("--json", flags->json,
                  "One object: file, events, collectives, arrows, ranks (rank, file, clock_offset_ns, aligned_by, "
                  "matching_collectives)");
  merge->callback([flags, &action] { action = [flags] { return run_merge(flags->out, flags->files, flags->json); }; });
}

}  // namespace tutti::cli
