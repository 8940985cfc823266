// The C interface over StepProfile.
#include "tutti/deploy/tutti_profile.h"

#include "tutti/deploy/c_interface.h"
#include "tutti/runtime/trace/trace_event.h"

namespace c_interface = tutti::deploy::c_interface;
using tutti::deploy::StepObserver;
using tutti::deploy::StepTime;

namespace {

const char* names_of(const tutti::KernelInfo& kernel) {
  std::string names;
  for (const tutti::KernelOp& op : kernel.ops) names += (names.empty() ? "" : ",") + op.name;
  return tutti::intern_trace_name(names);
}

}  // namespace

tutti_code tutti_package_set_profile(tutti_package* package, tutti_step_callback callback, void* context) {
  return c_interface::guarded([&] {
    auto& opened = c_interface::package_to_change(package);
    if (callback == nullptr) return opened.set_observer(nullptr);
    opened.set_observer(std::make_shared<const StepObserver>([callback, context](const StepTime& step) {
      const tutti_step filled = {sizeof filled,         step.kernel.kernel_id.c_str(),
                                 names_of(step.kernel), step.line,
                                 step.begin_ns,         step.nanoseconds};
      callback(&filled, context);
    }));
  });
}
