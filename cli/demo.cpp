// `tutti demo bits`: what Tutti promises, shown to somebody who has just built it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>

#include "bench/layouts_bench.h"
#include "cli/command.h"
#include "cli/end_on_signal.h"
#include "cli/runs_folder.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/train/report/metrics.h"

namespace tutti::cli {
namespace {

namespace fs = std::filesystem;
using bench::Layout;
using bench::LayoutResult;

// A run of the demonstration: a row of `tutti bench layouts`, and what it is in words.
struct DemoRun {
  const char* words;
  Layout layout;
};

// Text to learn: sentences whose words follow each other as a small generator says, the same on every machine.
void write_demo_text(const fs::path& path) {
  constexpr const char* kWords[] = {"the",   "rank",   "tree",  "adds", "every",  "leaf", "in",   "one",
                                    "order", "so",     "a",     "sum",  "has",    "its",  "bits", "on",
                                    "any",   "layout", "while", "four", "shards", "wait", "for",  "others"};
  std::ofstream out(path);
  uint32_t state = 1;
  for (int sentence = 0; sentence < 8000; ++sentence) {
    for (int word = 0; word < 7; ++word) {
      state = state * 1664525 + 1013904223;
      out << kWords[(state >> 16) % std::size(kWords)] << (word < 6 ? " " : ".\n");
    }
  }
  TUTTI_CHECK_ENV(out.flush(), "cannot write {}", path.string());
}

std::string write_demo_configuration(const fs::path& folder) {
  const fs::path text = folder / "text.txt", path = folder / "demo.toml";
  write_demo_text(text);
  std::ofstream out(path);
  out << "[model]\nflavor = \"tiny-tp4\"\n[data]\npaths = ['" << text.string()
      << "']\ntokenizer = \"byte\"\nsequence_length = 256\n[training]\nglobal_batch_tokens = 4096\n"
         "[optimizer]\nlr = 4e-3\n";
  TUTTI_CHECK_ENV(out.flush(), "cannot write {}", path.string());
  return path.string();
}

std::vector<DemoRun> demo_runs() {
  const auto engines = comm::transport_engines();
  const bool has_gloo = std::any_of(engines.begin(), engines.end(),
                                    [](const auto* engine) { return engine->name == std::string("gloo"); });
  std::vector<DemoRun> runs{
      {"one rank with one thread", {.name = bench::kReference, .flags = {"-n", "1", "--runtime.threads=1"}}},
      {has_gloo ? "three ranks that talk over TCP (gloo)" : "three ranks that share memory",
       {.name = "three-ranks",
        .flags = {"-n", "3", "--runtime.threads=1",
                  has_gloo ? "--runtime.transport=gloo" : "--runtime.transport=shm"}}},
      {"four ranks that divide parameters, gradients and optimizer state; one of them is killed,\n"
       "   and two ranks that divide the matrix products go on from the last checkpoint",
       {.name = "killed-then-two-ranks",
        .flags = {"-n", "4", "--runtime.threads=1", "--parallelism.data_parallel_shard_degree=4"},
        .resumed_with = {"-n", "2", "--runtime.threads=1", "--parallelism.tensor_parallel_degree=2"},
        .loses_a_rank = true}},
      {"one rank with two threads, its step compiled",
       {.name = "compiled", .flags = {"-n", "1", "--runtime.threads=2", "--training.compile=true"}}},
      {"for comparison, other sums: the batch in 4 parts in the place of 8",
       {.name = "control",
        .flags = {"-n", "1", "--runtime.threads=1", "--numerics.virtual_shards=4"},
        .is_control = true}},
  };
  return runs;
}

void print_run(const LayoutResult& result, const LayoutResult* base) {
  const std::vector<train::StepRecord> records = train::read_metrics(result.run / "metrics.jsonl");
  fmt::print("   loss {:.4f} -> {:.4f}; the last one, in all its bits: {}\n", records.front().loss, records.back().loss,
             result.loss_hex);
  const train::RunDiff& diff = result.diff;
  if (base == nullptr) fmt::print("   the run that the others are compared with\n\n");
  else if (diff.same_bits())
    fmt::print("   {} losses, {} gradient norms and {} tensors: every bit is that of the first run\n\n",
               diff.steps.size(), diff.steps.size(), diff.tensors);
  else if (diff.number)
    fmt::print("   differs from step {} on ({}: {} and not {})\n\n", diff.number->step, diff.number->what,
               diff.number->b, diff.number->a);
  else
    fmt::print("   its losses are equal, but {} of {} tensors differ at step {}, such as {}\n\n", diff.differing.size(),
               diff.tensors, diff.differing[0].step, diff.differing[0].name);
  std::fflush(stdout);
}

int show_bits(const std::string& keep) {
  RunsFolder folder(keep, "tutti-demo");
  const EndOnSignal end(folder);
  const auto begin = std::chrono::steady_clock::now();
  const bench::LayoutsProblem problem{.config = write_demo_configuration(folder.path()), .overrides = {}, .steps = 16};
  fmt::print("A small language model is trained for {} steps, each time on other ranks.\n\n", problem.steps);
  if (std::fflush(stdout) != 0) return 1;  // status_after_output() says why
  std::vector<LayoutResult> results;
  bool is_kept_promise = true;
  int number = 0;
  for (const DemoRun& run : demo_runs()) {
    fmt::print("{}. {}\n", ++number, run.words);
    std::fflush(stdout);
    const LayoutResult* base = results.empty() ? nullptr : &results.front();
    LayoutResult result = bench::run_layout(problem, run.layout, folder.path(), base);
    print_run(result, base);
    is_kept_promise = is_kept_promise && (base == nullptr || result.diff.same_bits() != run.layout.is_control);
    results.push_back(std::move(result));
  }
  if (!is_kept_promise) {
    fmt::print(
        "This is not what Tutti promises. Please report it with the output of `tutti env`; `tutti demo bits --keep "
        "FOLDER` keeps the runs for `tutti diff`.\n");
    return 1;
  }
  fmt::print(
      "Where sums follow the layout, a run on three ranks is another run than one on two, and whether a change of the\n"
      "cluster or a fault moved the loss cannot be told. Here the order of every sum belongs to the model and the "
      "batch,\n"
      "so that layouts, threads and interruptions leave no trace; the last run shows that the comparison would find "
      "one.\n"
      "How: docs/numerics.md. Your own configuration on 50 layouts: `tutti bench layouts CONFIG --all`. ({:.0f} s)\n",
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (!keep.empty()) fmt::print("The runs are in {}: try `tutti diff` on two of them.\n", folder.path().string());
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("demo", "Show what Tutti does, without any preparation");
  verb->require_subcommand(1);
  CLI::App* sub = verb->add_subcommand(
      "bits",
      "Train a small model on several layouts, one of which loses a rank and goes on in another, and compare every "
      "bit; "
      "exit status 1 when one differs. Takes about a minute on two cores and leaves nothing behind");
  auto keep = std::make_shared<std::string>();
  sub->add_option("--keep", *keep, "An empty folder for the runs, which stay there");
  sub->callback([keep, &action] { action = [keep] { return show_bits(*keep); }; });
}

}  // namespace tutti::cli
