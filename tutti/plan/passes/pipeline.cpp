#include "tutti/plan/passes/pipeline.h"

#include <cstdlib>
#include <cstring>

#include "tutti/plan/dump.h"
#include "tutti/plan/passes/batch.h"
#include "tutti/plan/passes/bucket_collectives.h"
#include "tutti/plan/passes/join_products.h"
#include "tutti/plan/passes/make_steps.h"
#include "tutti/plan/passes/merge_equal.h"
#include "tutti/plan/passes/merge_siblings.h"
#include "tutti/plan/passes/pass_check.h"
#include "tutti/plan/passes/prologue.h"
#include "tutti/plan/passes/remove_unused.h"
#include "tutti/plan/passes/schedule_collectives.h"
#include "tutti/plan/provenance.h"

namespace tutti::graph {
namespace {

using Form = Pass::Form;

bool has_recomputed(const PassState& state) { return state.statistics.partition.recomputed > 0; }
bool wants_buckets(const PassState& state) { return state.options.collectives.bucket_bytes > 0; }
bool wants_joined_products(const PassState& state) { return state.options.collectives.join_products; }
bool wants_siblings(const PassState& state) { return state.options.siblings; }
bool wants_early_starts(const PassState& state) { return state.options.collectives.under_way_bytes > 0; }
bool wants_epilogues(const PassState& state) {
  return state.options.fuse.fuse && state.options.epilogues != Epilogues::off;
}
bool wants_prologues(const PassState& state) { return state.options.fuse.fuse && state.options.prologues; }
bool wants_batches(const PassState& state) { return state.options.batch; }

constexpr Pass kPasses[] = {
    {"merge_equal", Form::graph, merge_equal},
    {"remove_unused", Form::graph, remove_unused},
    {"partition", Form::graph, partition},
    {"remove_unused", Form::graph, remove_unused, has_recomputed},  // what only the backward read, which recomputes it
    {"bucket_collectives", Form::graph, bucket_collectives, wants_buckets},
    {"join_products", Form::graph, join_products, wants_joined_products},
    {"merge_siblings", Form::graph, merge_siblings, wants_siblings},
    {"schedule_collectives", Form::graph, schedule_collectives, wants_early_starts},
    {"name_lines", Form::graph, name_lines},
    {"fuse", Form::groups, fuse},
    {"attach_epilogues", Form::groups, attach_epilogues, wants_epilogues},
    {"attach_prologues", Form::groups, attach_prologues, wants_prologues},
    {"make_steps", Form::steps, make_steps},
    {"batch", Form::steps, batch, wants_batches},
};

std::string to_string(const PassState& state, Form form) {
  if (form == Form::graph) return to_string(state.graph);
  return form == Form::groups ? to_string(state.groups, state.graph) : to_string(state.steps);
}

void check_after(const Pass& pass, const PassState& state) {
  try {
    check(state.graph);
    if (pass.form == Form::groups) check_groups(state.graph, state.groups);
    if (pass.form == Form::steps) check_steps(state.graph, state.steps);
  } catch (const Error& error) {
    throw InternalError(fmt::format("after pass {} of {}: {}", pass.name, state.options.name, error.what()));
  }
}

}  // namespace

std::span<const Pass> pipeline() { return kPasses; }

bool checks_passes() {
  static const bool on = [] {
    const char* text = std::getenv("TUTTI_CHECK_PASSES");
    return text != nullptr && std::strcmp(text, "0") != 0 && *text != '\0';
  }();
  return on;
}

void run_passes(PassState& state, std::span<const Pass> passes, bool checked) {
  const std::string& name = state.options.name;
  std::vector<std::string> names;
  for (const Pass& pass : passes) names.push_back(pass.name);
  const auto asked_for = stages_asked_for(names);
  state.statistics.nodes = static_cast<int64_t>(state.graph.nodes.size());
  check(state.graph);
  dump_stage(name, "captured", [&] { return to_string(state.graph); });
  for (size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    if (pass.when == nullptr || pass.when(state)) {
      pass.run(state);
      if (checked) check_after(pass, state);
      if (asked_for.contains(pass.name)) dump_stage(name, pass.name, [&] { return to_string(state, pass.form); });
    }
    const bool is_last_of_form = i + 1 == passes.size() || passes[i + 1].form != pass.form;
    if (!is_last_of_form || pass.form == Form::groups) continue;
    dump_stage(name, pass.form == Form::graph ? "simplified" : "steps", [&] { return to_string(state, pass.form); });
  }
}

}  // namespace tutti::graph
