#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "tutti/comm/recorder/diagnosis.h"

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

}  // namespace

void add_trace(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("trace", "Look into what ranks recorded");
  verb->require_subcommand(1);
  struct Flags {
    std::vector<std::string> files;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* why = verb->add_subcommand(
      "why", "Say which rank is missing where, from the flight recorder dumps of several ranks; exit status 0: no rank waits, 3: see the text");
  why->add_option("dumps", flags->files, "Files written on a failure or on SIGUSR1, one per rank (TUTTI_FLIGHT_RECORDER_DUMP<rank>)")->required();
  why->add_flag("--json", flags->json, "One object: healthy, text, findings, ranks, missing_dumps");
  why->callback([flags, &action] { action = [flags] { return run_why(flags->files, flags->json); }; });
}

}  // namespace tutti::cli
