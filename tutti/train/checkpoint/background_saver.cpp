#include "tutti/train/checkpoint/background_saver.h"

#include <numeric>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_span.h"
#include "tutti/train/survival/planted_loss.h"

namespace tutti::train {

BackgroundSaver::BackgroundSaver(comm::ProcessGroup* group, const nn::Module& model, const optim::Optimizer& optimizer,
                                 const parallel::ShardedTables* tables, std::chrono::microseconds copy_delay)
    : tables_(tables),
      model_(flat(files_of(model, optimizer, tables).first)),
      optimizer_(flat(files_of(model, optimizer, tables).second)),
      copy_delay_(copy_delay) {
  if (group == nullptr || group->size() == 1) return;
  std::vector<int> all(static_cast<size_t>(group->size()));
  std::iota(all.begin(), all.end(), 0);
  group_ = group->split(all, {.name = group->name() + "/checkpoints"});
}

BackgroundSaver::~BackgroundSaver() {
  if (writer_.joinable()) writer_.join();
}

void BackgroundSaver::save(const std::filesystem::path& folder, const nn::Module& model,
                           const optim::Optimizer& optimizer, const TrainState& state, int64_t keep_latest) {
  TUTTI_CHECK(!writer_.joinable(), "checkpoint: {} is still being written; wait() for it before the next one",
              folder_.string());
  const TraceSpan span(TraceCategory::annotation, "checkpoint: begin");
  check_values(tables_);
  auto [of_model, of_optimizer] = files_of(model, optimizer, tables_);
  model_.begin(flat(of_model));
  optimizer_.begin(flat(of_optimizer));
  folder_ = folder / fmt::format("step-{}", state.step);
  writer_ = std::thread([this, folder, state, keep_latest, of_model = std::move(of_model),
                         of_optimizer = std::move(of_optimizer), &context = RankContext::current()] {
    const RankContext::Scope scope(context);
    model_.copy(copy_delay_);
    optimizer_.copy(copy_delay_);
    model_.wait();
    optimizer_.wait();
    may_be_lost_at("writing", state.step);
    try {
      save_tensors(folder, with_copies(of_model, model_.copies()), with_copies(of_optimizer, optimizer_.copies()),
                   state, keep_latest, group_.get());
    } catch (...) {
      problem_ = std::current_exception();
    }
  });
}

NamedTensors BackgroundSaver::flat(const FileTensors& file) {
  NamedTensors list = file.tensors;
  for (const parallel::TensorBox& box : file.boxes)
    if (box.values.defined()) list.emplace_back(box.name, box.values);
  return list;
}

FileTensors BackgroundSaver::with_copies(FileTensors file, const NamedTensors& copies) {
  size_t next = 0;
  for (auto& [name, tensor] : file.tensors) tensor = copies[next++].second;
  for (parallel::TensorBox& box : file.boxes)
    if (box.values.defined()) box.values = copies[next++].second;
  return file;
}

void BackgroundSaver::before_change() {
  if (!writer_.joinable()) return;
  const TraceSpan span(TraceCategory::annotation, "checkpoint: copy");
  optimizer_.complete();  // which the thread reaches last
  model_.complete();
}

std::filesystem::path BackgroundSaver::wait() {
  if (!writer_.joinable()) return {};
  writer_.join();
  if (const std::exception_ptr problem = std::exchange(problem_, nullptr)) std::rethrow_exception(problem);
  return std::exchange(folder_, {});
}

}  // namespace tutti::train
