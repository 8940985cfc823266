// How an Executable is made: the passes, then what a call needs to know of their steps, then machine code.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "tutti/plan/block_check.h"
#include "tutti/plan/executable_frame.h"
#include "tutti/plan/passes/pipeline.h"

namespace tutti::graph {

Executable::Executable(Graph graph, const BuildOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  PassState state{.graph = std::move(graph), .options = options};
  run_passes(state);
  graph_ = std::move(state.graph);
  graph_key_ = state.graph_key;
  steps_ = std::move(state.steps);
  statistics_ = std::move(state.statistics);
  statistics_.launches = std::count_if(steps_.begin(), steps_.end(),
                                       [](const Step& step) { return !std::holds_alternative<CallStep>(step); });
  check_epilogues_ = options.check_epilogues || BlockCheck::is_on();
  resizes_ = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [](const Node& n) { return n.op->resizes; });
  plan_waits();
  plan_buffers();
  plan_uses();
  compile_kernels(options.jobs);
  statistics_.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Jobs take kernels in turn; the cache sees to it that one that several want is compiled once.
void Executable::compile_kernels(int jobs) {
  std::vector<KernelStep*> kernels;
  for (Step& step : steps_) {
    if (auto* kernel = std::get_if<KernelStep>(&step)) kernels.push_back(kernel);
    if (auto* batch = std::get_if<BatchStep>(&step)) {
      for (KernelStep& kernel : batch->kernels) kernels.push_back(&kernel);
    }
    if (auto* call = std::get_if<CallStep>(&step)) {
      for (auto* block : {&call->prologue, &call->epilogue}) {
        if (*block) kernels.push_back(&(*block)->kernel);
      }
    }
  }
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr problem;
  const auto work = [&] {
    for (size_t i = next++; i < kernels.size(); i = next++) {
      try {
        kernels[i]->kernel = &codegen::kernel_for(kernels[i]->spec);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!problem) problem = std::current_exception();
        next = kernels.size();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int j = 1; j < std::min<int>(jobs, static_cast<int>(kernels.size())); ++j) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (problem) std::rethrow_exception(problem);
}

}  // namespace tutti::graph
