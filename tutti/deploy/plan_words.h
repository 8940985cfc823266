// Plans as lists of integers and a table of texts that all plans of a package share.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/deploy/plan.h"
#include "tutti/deploy/word_formulas.h"

namespace tutti::deploy {

// Texts by number. Numbers inside of texts that may depend on sizes are kept apart from them.
class TextTable {
 public:
  int64_t number_of(const std::string& text) {
    const auto [it, is_new] = numbers_.emplace(text, static_cast<int64_t>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return it->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, int64_t> numbers_;
  std::vector<std::string> texts_;
};

// The kernels of the plans, by key.
using KernelSpecs = std::map<std::string, codegen::KernelSpec>;

// The integers of a plan; adds its texts and kernels to the tables.
Words to_words(Plan plan, TextTable& texts, KernelSpecs& specs);
// The plan of to_words(), without kernels: KernelStep::kernel is null. PackageError when the integers are none of a
// plan.
Plan plan_of_words(const Words& words, std::span<const std::string> texts);

// Calls visit(kernel) for each kernel of the plan, those on blocks of calls as well.
template <class Visit>
void for_each_kernel(Plan& plan, Visit visit) {
  for (graph::Step& step : plan.steps) {
    if (auto* kernel = std::get_if<graph::KernelStep>(&step)) visit(*kernel);
    if (auto* batch = std::get_if<graph::BatchStep>(&step)) {
      for (graph::KernelStep& kernel : batch->kernels) visit(kernel);
    }
    if (auto* call = std::get_if<graph::CallStep>(&step)) {
      if (call->prologue) visit(call->prologue->kernel);
      if (call->epilogue) visit(call->epilogue->kernel);
    }
  }
  for (PlanControl& control : plan.controls) {
    for (Plan& part : control.plans) for_each_kernel(part, visit);
  }
}

}  // namespace tutti::deploy
