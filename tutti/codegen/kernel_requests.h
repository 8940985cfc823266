// What the code of a thread asks of the kernel cache: for those who must know all kernels that a program can reach.
#pragma once

#include <map>
#include <string>

#include "tutti/codegen/kernel.h"
#include "tutti/codegen/target.h"
#include "tutti/runtime/inherited_flags.h"

namespace tutti::codegen {

// Collects the specifications of the kernels that this thread asks for while it lives. Code that keeps what it asked
// for, as the table of each thread for eager kernels does, asks once only: a new thread asks for all.
class KernelRequests {
 public:
  KernelRequests();
  ~KernelRequests();
  KernelRequests(const KernelRequests&) = delete;
  KernelRequests& operator=(const KernelRequests&) = delete;
  const std::map<std::string, KernelSpec>& specs() const { return specs_; }  // by key
  static void note(const KernelSpec& spec) {
    if (current != nullptr) [[unlikely]]
      current->add(spec);
  }

 private:
  void add(const KernelSpec& spec);
  static inline constinit thread_local KernelRequests* current = nullptr;
  std::map<std::string, KernelSpec> specs_;
  KernelRequests* const previous_;
};

// While it lives, a kernel that this thread or a worker of its parallel loops asks for and that is not in memory is an
// InternalError: they run what has been proved to need no other kernels.
class NoNewKernels {
 public:
  // Called before a kernel is read from disk or compiled.
  static void refuse(const std::string& name, Target target);

 private:
  const InheritedFlags::Scope is_on_{InheritedFlag::no_new_kernels};
};

}  // namespace tutti::codegen
