// The calls that prove a package: of the function, of its plan, of the file. Their digests must agree.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/deploy/package.h"
#include "tutti/deploy/plan_words.h"
#include "tutti/package/held_state.h"
#include "tutti/package/package.h"

namespace tutti::deploy {
struct BoundGroup;
}

namespace tutti::package_detail {

// A digest is that of the results, of the arguments after the call and of the state after it. A function with state is
// called twice: the second call begins with what the first has left.
class TrialCalls {
 public:
  // All must outlive it.
  TrialCalls(std::span<const Tensor> examples, graph::TraceFn fn, const PackageOptions& options,
             const deploy::Manifest& manifest, const HeldState& state, const std::vector<deploy::BoundGroup>& groups)
      : examples_(examples), fn_(fn), options_(options), manifest_(manifest), state_(state), groups_(groups) {}

  // Arguments of these sizes, made anew.
  std::vector<Tensor> arguments_at(int64_t point) const;

  struct Outcome {
    std::string digest;
    std::vector<DType> outputs;
  };
  // Changes the state.
  Outcome of_function(int64_t point) const;
  // Adds the kernels that the calls ask for to `requested`.
  std::string of_plan(int64_t point, const deploy::PlanRunner& runner, std::span<const Tensor> constants,
                      deploy::KernelSpecs& requested) const;
  std::string of_package(int64_t point, const deploy::Package& package) const;

 private:
  int count() const { return state_.empty() ? 1 : 2; }

  const std::span<const Tensor> examples_;
  const graph::TraceFn fn_;
  const PackageOptions& options_;
  const deploy::Manifest& manifest_;
  const HeldState& state_;
  const std::vector<deploy::BoundGroup>& groups_;
};

}  // namespace tutti::package_detail
