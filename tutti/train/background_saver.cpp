#include "tutti/train/background_saver.h"

#include <numeric>
#include <utility>
#include <vector>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/copy.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::train {
namespace {

// The same tensors with memory of their own; of a distributed one, this rank's part.
NamedTensors like(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, t] : tensors) {
    if (!dist::is_dtensor(t)) copies.emplace_back(name, Tensor::empty(t.extents(), t.dtype()));
    else copies.emplace_back(name, dist::wrap(Tensor::empty(dist::part_of(t, "checkpoint").local.extents(), t.dtype()), dist::spec_of(t), dist::mesh_of(t)));
  }
  return copies;
}

Tensor stored(const Tensor& t) { return dist::is_dtensor(t) ? dist::part_of(t, "checkpoint").local : t; }

void copy_all(NamedTensors& to, const NamedTensors& from) {
  const NoGradScope no_grad;
  if (to.empty()) to = like(from);
  for (size_t i = 0; i < from.size(); ++i) copy_(stored(to[i].second), stored(from[i].second));
}

}  // namespace

BackgroundSaver::BackgroundSaver(comm::ProcessGroup* group) {
  if (group == nullptr || group->size() == 1) return;
  std::vector<int> all(static_cast<size_t>(group->size()));
  std::iota(all.begin(), all.end(), 0);
  group_ = group->split(all, {.name = group->name() + "/checkpoints"});
}

BackgroundSaver::~BackgroundSaver() {
  if (writer_.joinable()) writer_.join();
}

void BackgroundSaver::save(const std::filesystem::path& folder, const nn::Module& model, const optim::Optimizer& optimizer, const TrainState& state, int64_t keep_latest) {
  TUTTI_CHECK(!writer_.joinable(), "checkpoint: {} is still being written; wait() for it before the next one", folder_.string());
  {
    const TraceSpan span(TraceCategory::annotation, "checkpoint: copy");
    const MemoryCategoryScope category(MemoryCategory::workspace);
    copy_all(model_, tensors_of(model));
    copy_all(optimizer_, state_of(optimizer));
  }
  folder_ = folder / fmt::format("step-{}", state.step);
  writer_ = std::thread([this, folder, state, keep_latest, &context = RankContext::current()] {
    const RankContext::Scope scope(context);
    try {
      save_tensors(folder, model_, optimizer_, state, keep_latest, group_.get());
    } catch (...) {
      problem_ = std::current_exception();
    }
  });
}

std::filesystem::path BackgroundSaver::wait() {
  if (!writer_.joinable()) return {};
  writer_.join();
  if (const std::exception_ptr problem = std::exchange(problem_, nullptr)) std::rethrow_exception(problem);
  return std::exchange(folder_, {});
}

}  // namespace tutti::train
