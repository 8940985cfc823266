// Package: a compiled function in a file, which runs without the compiler.
//
// A package is native code, to be trusted as a program is. What is checked when it is opened finds damage and what does
// not fit together, before any of it runs.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/deploy/manifest.h"
#include "tutti/deploy/package_state.h"
#include "tutti/deploy/packaged_code.h"
#include "tutti/deploy/plan_runner.h"
#include "tutti/deploy/step_time.h"
#include "tutti/deploy/word_formulas.h"

namespace tutti {
class RankContext;
}

namespace tutti::deploy {

struct BoundGroup;
struct NewConstant;
class PackageConstants;
class RankGroup;

// The section of plans.
struct PackagedPlans {
  std::vector<std::string> texts;
  std::vector<std::string> kernel_keys;  // of all plans
  std::string formulas;                  // encode_formulas() of the plans' words

  std::string to_bytes() const;
  static PackagedPlans of_bytes(std::string_view bytes);
};

// May be used by any number of threads at once.
class Package {
 public:
  enum class Purpose : uint8_t {
    run,
    look,  // no code is mapped, and the processor may lack what the code needs; run() is an error
  };
  // Checks the file and maps its code. threads: that calls use, the caller's among them; 0: those of the caller's rank.
  // PackageError.
  static std::shared_ptr<Package> open(const std::string& path, Purpose purpose = Purpose::run, int threads = 0);
  ~Package();

  const Manifest& manifest() const { return manifest_; }
  const SectionFile& file() const { return *file_; }
  std::span<const PackagedKernel> kernels() const { return kernels_; }
  std::string_view provenance() const;
  WordFormulas::Counts formula_counts() const { return formulas_->counts(); }

  // The sizes of the results for arguments of these sizes. UsageError where they are not as declared.
  std::vector<Extents> output_extents(std::span<const Extents> inputs) const;
  // into: empty, or per result a dense tensor at the start of its storage, which then holds it. Arguments that the
  // function writes are written in place, and must not overlap other ones. UsageError where arguments are not as
  // declared or the function has state, and what ops throw.
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::span<const Tensor> into = {}) const;
  // A state with the values of the file.
  std::shared_ptr<PackageState> new_state() const;
  // The same with the state of a function that has one: its tensors are read and changed. When an op fails they are
  // left as a call of the function would leave them: what precedes the op is done, and nothing that follows it. When
  // arguments are refused nothing is changed.
  std::vector<Tensor> run(PackageState& state, std::span<const Tensor> inputs, std::span<const Tensor> into = {}) const;

  // Replaces constants that the package names, while others may run: see PackageConstants::set.
  void set_constants(std::span<const NewConstant> values);
  // Gives the function the groups that it communicates in, in the order of the manifest, for the calls that begin from
  // now on: see bind_groups. All ranks then make the same calls in the same order.
  void set_groups(std::span<const std::shared_ptr<RankGroup>> groups);
  // Calls that begin from now on pass the times of their steps to `observer`, on their own thread, when they have ended
  // without an error; null: they do not. Waits for calls that have begun with the observer before, so that no observer
  // may call it.
  void set_observer(std::shared_ptr<const StepObserver> observer);

  // The plan for one combination of sizes, checked.
  Plan plan_at(int64_t point) const;
  // Reads and checks the plans of all combinations; runs nothing.
  void check_all_plans() const;

 private:
  Package();
  void check_manifest(const std::string& path) const;
  void check_complete(const std::string& path, codegen::CpuTarget level) const;
  void check_ops(const Plan& plan) const;
  void check_group(const graph::CallStep& call) const;
  void bind_constants();
  std::vector<Tensor> run_on(std::span<const Tensor> state, std::span<const Tensor> inputs,
                             std::span<const Tensor> into) const;
  std::shared_ptr<const PlanRunner> runner_at(int64_t point) const;
  std::shared_ptr<const StepObserver> observer() const;
  std::shared_ptr<const std::vector<BoundGroup>> groups() const;

  std::unique_ptr<RankContext> context_;  // null: that of the caller
  std::shared_ptr<const SectionFile> file_;
  Manifest manifest_;
  std::vector<PackagedKernel> kernels_;
  std::map<std::string, codegen::Kernel> code_;  // of this processor, by key
  PackagedPlans plans_;
  std::unique_ptr<const WordFormulas> formulas_;
  std::unique_ptr<PackageConstants> constants_;
  Purpose purpose_ = Purpose::run;

  struct Ready {
    int64_t point;
    std::shared_ptr<const PlanRunner> runner;
  };
  mutable std::mutex mutex_;
  mutable std::list<Ready> ready_;  // the last used first
  std::shared_ptr<const StepObserver> observer_;
  std::shared_ptr<const std::vector<BoundGroup>> groups_;  // null: none were given
};

}  // namespace tutti::deploy
