// What a package runs for one combination of sizes: the steps of a compiled function, and the memory they work on.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/control_body.h"
#include "tutti/plan/step.h"

namespace tutti::deploy {

// Memory that exists before a call.
struct PlanSource {
  enum class Kind : uint8_t {
    argument,  // dense
    constant,
    state,  // memory that stays between calls
  };
  Kind kind = Kind::argument;
  int32_t index = 0;
};

struct Plan;

// Control flow of a plan: parts that run by themselves. See graph::ControlBody, whose graphs are plans here.
struct PlanControl {
  struct Part {
    std::string name;
    std::vector<graph::ControlBody::Feed> feeds;  // the arguments of its plan
  };
  graph::ControlBody::Kind kind = graph::ControlBody::Kind::check;
  std::string text;
  int32_t carried = 0, walked = 0;
  int64_t steps = 0;
  std::vector<Part> parts;
  std::vector<Plan> plans;  // of the parts
};

struct Plan {
  std::vector<graph::Buffer> buffers;  // `source` of a given one counts the sources
  std::vector<PlanSource> sources;
  std::vector<graph::Step> steps;
  std::vector<graph::Value> results;
  // What KernelStep::reporter counts: the op that fails when the kernel reports an error, with its place.
  std::vector<std::string> reporters;
  std::vector<PlanControl> controls = {};  // what CallStep::node counts; -1: a call of an op
};

// Bytes of the memory that plans are given.
struct PlanMemory {
  std::vector<int64_t> arguments, constants, state;
  std::vector<bool> written;  // per argument: whether it may be written; state always may, constants never
};

// Calls visit(source) for memory that steps of the plan write, maybe several times for one source.
template <class Visit>
void for_each_written_source(const Plan& plan, Visit visit) {
  const auto look = [&](int32_t buffer) {
    const graph::Buffer& b = plan.buffers[static_cast<size_t>(buffer)];
    if (b.kind == graph::Buffer::Kind::given) visit(plan.sources[static_cast<size_t>(b.source)]);
  };
  const auto look_at = [&](const graph::KernelStep& kernel) {
    for (size_t k = kernel.spec.inputs.size(); k < kernel.operands.size(); ++k) look(kernel.operands[k].buffer);
  };
  for (const graph::Step& step : plan.steps) {
    if (const auto* kernel = std::get_if<graph::KernelStep>(&step)) look_at(*kernel);
    if (const auto* batch = std::get_if<graph::BatchStep>(&step)) {
      for (const graph::KernelStep& kernel : batch->kernels) look_at(kernel);
    }
    const auto* call = std::get_if<graph::CallStep>(&step);
    if (call == nullptr || call->check_only) continue;
    for (const graph::Value& v : call->outputs) look(v.buffer);
    if (call->epilogue) look_at(call->epilogue->kernel);
  }
}

// Throws PackageError unless every step stays within its buffers and is called as its op and its kernel expect.
void check_plan(const Plan& plan, const PlanMemory& memory);

}  // namespace tutti::deploy
