// Lesson 7: where the time goes. A Profiler collects ops, kernels, matrix products and memory, and writes a trace that
// https://ui.perfetto.dev opens. Sessions nest, and profiling changes no bit.
// Last line of output: 1 matrix product forward, 2 backward, all of module mlp; same bits with and without
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tutti/autograd/backward.h"
#include "tutti/ops.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/profiler.h"

using namespace tutti;

// The gradient of one small layer.
Tensor gradient(const Tensor& x, const Tensor& weight) {
  Tensor y;
  {
    const ModuleScope module("mlp");  // events name it, and this line; gradients, too
    y = gelu(matmul(x, weight));
  }
  const Tensor loss[] = {sum(y)}, parameters[] = {x, weight};
  return grad(loss, parameters)[1];
}

int main() {
  seed_all(1);
  const Tensor x = normal({64, 128}, random_key("x"), 0.0, 1.0), weight = normal({128, 32}, random_key("w"), 0.0, 0.1);
  requires_grad_(x);
  requires_grad_(weight);
  const Tensor plain = gradient(x, weight);

  const std::string path = (std::filesystem::temp_directory_path() / "tutti_lesson_7.json").string();
  Profiler profiler;
  const ProfilerStatus started = profiler.start({.name = "lesson 7", .path = path});
  if (!started.ok()) std::printf("%s\n", started.message.c_str());  // never an exception, and the work goes on
  const Tensor profiled = gradient(x, weight);
  const ProfilerStatus stopped = profiler.stop();
  std::printf("%s\n", stopped.ok() ? ("written: " + path).c_str() : stopped.message.c_str());

  int forward = 0, backward = 0, elsewhere = 0;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      if (event.category != TraceCategory::extern_call || event.kernel->info.ops[0].name != "matmul") continue;
      ++(event.context.phase == TracePhase::backward ? backward : forward);
      elsewhere += event.context.place == nullptr || event.context.place->module_path != "mlp";
      std::printf("%s: %.0f flops in %.1f us, %s\n", event.name, event.flops,
                  static_cast<double>(event.end_ns - event.begin_ns) / 1e3, event.kernel->info.choice.c_str());
    }
  }
  const bool same = std::memcmp(plain.raw_data(), profiled.raw_data(), static_cast<size_t>(plain.nbytes())) == 0;
  std::printf("%d matrix product forward, %d backward, %s of module mlp; %s bits with and without\n", forward, backward,
              elsewhere == 0 ? "all" : "not all", same ? "same" : "other");
}
