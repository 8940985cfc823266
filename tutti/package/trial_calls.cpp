#include "tutti/package/trial_calls.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "tutti/autograd/tape.h"
#include "tutti/codegen/kernel_requests.h"
#include "tutti/core/blake2b.h"
#include "tutti/deploy/rank_group.h"
#include "tutti/plan/control_step.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/tensor/host_read.h"

namespace tutti::package_detail {
namespace {

// Dtypes, sizes and elements in one number.
std::string digest_of(std::span<const Tensor> results) {
  Blake2b hash(32);
  for (const Tensor& t : results) {
    before_host_read(t);
    const Tensor dense = to_contiguous(t);
    hash.add(fmt::format("{}{}", name_of(t.dtype()), t.extents()));
    hash.add({static_cast<const char*>(dense.raw_data()), static_cast<size_t>(dense.nbytes())});
  }
  return hash.finish();
}

// A tensor of these sizes whose elements are those of the example, again and again: what is a legal index stays one.
Tensor resized(const Tensor& example, const Extents& extents, const std::string& function) {
  const Tensor dense = to_contiguous(example);
  Tensor made = Tensor::empty(extents, example.dtype());
  TUTTI_CHECK(dense.numel() > 0 || made.numel() == 0,
              "package: '{}': an example argument is empty; give one with elements", function);
  const auto item = static_cast<size_t>(itemsize(example.dtype()));
  const auto* from = static_cast<const char*>(dense.raw_data());
  auto* to = static_cast<char*>(made.raw_data());
  for (int64_t i = 0; i < made.numel(); ++i)
    std::copy_n(from + static_cast<size_t>(i % dense.numel()) * item, item, to + static_cast<size_t>(i) * item);
  return made;
}

}  // namespace

std::vector<Tensor> TrialCalls::arguments_at(int64_t point) const {
  const std::vector<int64_t> sizes = manifest_.sizes_of(point);
  std::vector<Tensor> arguments;
  for (size_t i = 0; i < examples_.size(); ++i)
    arguments.push_back(resized(examples_[i], manifest_.extents_of(manifest_.inputs[i], sizes), options_.name));
  return arguments;
}

TrialCalls::Outcome TrialCalls::of_function(int64_t point) const {
  Outcome outcome;
  for (int call = 0; call < count(); ++call) {
    const std::vector<Tensor> arguments = arguments_at(point);
    std::vector<Tensor> results;
    {
      std::optional<NoGradScope> inference;
      if (!options_.gradients) inference.emplace();
      fn_({.tensors = arguments}, results);
    }
    outcome.outputs.clear();
    for (const Tensor& t : results) outcome.outputs.push_back(t.dtype());
    outcome.digest += digest_of(results) + digest_of(arguments) + digest_of(state_.tensors());
  }
  return outcome;
}

// A thread that has run nothing asks the cache for every kernel of the ops that it calls. The workers of a pool have
// run before, and what they ask for is not noted: so the calls run once without workers, and once with those that calls
// have.
std::string TrialCalls::of_plan(int64_t point, const deploy::PlanRunner& runner, std::span<const Tensor> constants,
                                deploy::KernelSpecs& requested) const {
  const auto run = [&] {
    std::string digest;
    const std::vector<Tensor> state = state_.copies();
    for (int call = 0; call < count(); ++call) {
      const std::vector<Tensor> arguments = arguments_at(point);
      std::vector<Tensor> sources;
      for (const deploy::PlanSource& s : runner.plan().sources) {
        using Kind = deploy::PlanSource::Kind;
        const auto i = static_cast<size_t>(s.index);
        sources.push_back(s.kind == Kind::argument ? arguments[i] : s.kind == Kind::state ? state[i] : constants[i]);
      }
      const std::vector<Tensor> results = runner.run(sources);
      digest += digest_of(results) + digest_of(arguments) + digest_of(state_.tensors_in(state));
    }
    return digest;
  };
  std::string alone, together;
  std::exception_ptr problem;
  std::thread([&] {
    try {
      const codegen::KernelRequests requests;
      const deploy::BoundGroupsScope ranks(groups_);
      const graph::EveryPartScope every_part;
      {
        RankContext context({.threads = 1});
        const RankContext::Scope scope(context);
        alone = run();
      }
      together = run();
      requested.insert(requests.specs().begin(), requests.specs().end());
    } catch (...) {
      problem = std::current_exception();
    }
  }).join();
  if (problem) std::rethrow_exception(problem);
  return alone == together ? together : "";
}

std::string TrialCalls::of_package(int64_t point, const deploy::Package& package) const {
  std::string digest;
  const std::shared_ptr<deploy::PackageState> state = state_.empty() ? nullptr : package.new_state();
  for (int call = 0; call < count(); ++call) {
    const std::vector<Tensor> arguments = arguments_at(point);
    const std::vector<Tensor> results = state ? package.run(*state, arguments) : package.run(arguments);
    std::vector<Tensor> tensors;
    for (const deploy::PackageStateTensor& t : manifest_.state) tensors.push_back(state->read(t.name));
    digest += digest_of(results) + digest_of(arguments) + digest_of(tensors);
  }
  return digest;
}

}  // namespace tutti::package_detail
