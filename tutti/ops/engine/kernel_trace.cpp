#include "tutti/ops/engine/kernel_trace.h"

#include <exception>
#include <utility>

#include "tutti/codegen/cpu_target.h"
#include "tutti/core/hash.h"

namespace tutti {
namespace {

// Unique and readable: "add_1f0c77a2b3d4".
std::string id_of(std::string_view name, std::string_view all_that_counts) {
  return fmt::format("{}_{:012x}", name, hash64(all_that_counts) >> 16);
}

}  // namespace

const TraceKernel& describe_generated(const OpDef& op, const codegen::KernelSpec& spec) {
  return intern_kernel({.kernel_id = id_of(op.name, spec.key()),
                        .ops = {{.name = op.name}},
                        .choice = fmt::format("generated {}", codegen::name_of(codegen::cpu_target()))});
}

const TraceKernel& KernelTrace::describe_extern(const OpDef& op, const std::string& choice) {
  return intern_kernel({.kernel_id = id_of(op.name, choice), .ops = {{.name = op.name}}, .choice = choice});
}

void KernelTrace::begin(const OpCall& call, const TraceKernel* compiled) noexcept {
  call_ = &call;
  compiled_ = compiled;
  outer_ = std::exchange(noted, nullptr);
  begin_ns_ = trace_now_ns();
}

// Facts are looked up after the run, so that the time of the kernel is its own.
void KernelTrace::end() noexcept {
  const int64_t end_ns = trace_now_ns();
  const TraceKernel* kernel = std::exchange(noted, outer_);
  const bool is_extern = call_->op.kernel != nullptr;
  // What an extern kernel's own parts noted is not its choice.
  if (kernel != nullptr && is_extern && kernel->info.ops[0].name != call_->op.name) kernel = nullptr;
  if (kernel == nullptr && !is_extern) return;  // there was no element to compute
  try {
    if (kernel == nullptr) kernel = &describe_extern(call_->op, "hand-written");
    Cost cost = cost_of(*call_);
    if (compiled_ != nullptr) {
      KernelInfo all = compiled_->info;
      all.choice = kernel->info.choice + "; " + all.choice;
      kernel = &intern_kernel(all);
      cost = {all.flops, all.bytes};
    }
    TraceRecorder::record({.category = is_extern ? TraceCategory::extern_call : TraceCategory::kernel,
                           .name = kernel->info.kernel_id.c_str(),
                           .begin_ns = begin_ns_,
                           .end_ns = end_ns,
                           .kernel = kernel,
                           .bytes = cost.bytes,
                           .flops = cost.flops});
  } catch (const std::exception&) {
    // Memory is short, or a cost has no answer for this call: the op's own event stands all the same.
  }
}

}  // namespace tutti
