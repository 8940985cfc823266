#include "tutti/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <optional>

#include "tutti/io/safetensors_shards.h"
#include "tutti/job/errors.h"
#include "tutti/models/language_model.h"
#include "tutti/models/package_file.h"
#include "tutti/models/published_model.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/train/agreement.h"

namespace tutti::train {
namespace fs = std::filesystem;

fs::path resolve_checkpoint(const fs::path& path) {
  TUTTI_CHECK(fs::exists(path), "{} does not exist", path.string());
  models::refuse_package(path);
  if (fs::exists(safetensors_place(path / kModelFile))) return path;
  for (const fs::path& folder : {path, path / "checkpoint"}) {
    if (const auto newest = newest_checkpoint(folder)) return *newest;
    for (const IncompleteCheckpoint& c : incomplete_checkpoints(folder))
      throw EnvironmentError(fmt::format("no checkpoint in {} is whole: {} lacks {}", folder.string(),
                                         c.path.filename().string(), fmt::join(c.missing, " and ")));
  }
  throw UsageError(fmt::format("{} holds no checkpoint: neither {} nor step-N folders", path.string(), kModelFile));
}

void check_digests(const fs::path& folder, const Digests& saved, comm::ProcessGroup* group) {
  const Digests found = digests_of_files({folder / kModelFile, folder / kOptimizerFile}, group);
  std::vector<std::string> changed, missing, unknown;
  for (const auto& [name, digest] : saved) {
    const auto it = found.find(name);
    if (it == found.end()) missing.push_back(name);
    else if (it->second != digest) changed.push_back(name);
  }
  for (const auto& [name, digest] : found) {
    if (!saved.contains(name)) unknown.push_back(json_quoted(name));  // any text, with any control characters
  }
  if (changed.empty() && missing.empty() && unknown.empty()) return;
  std::string counts, names;
  for (const auto& [what, list] : {std::pair<const char*, const std::vector<std::string>&>{"changed", changed},
                                   {"missing", missing},
                                   {"unknown", unknown}}) {
    if (list.empty()) continue;
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", list.size(), what);
    for (const std::string& name : list) names += fmt::format("\n  {}: {}", what, name);
  }
  throw EnvironmentError(fmt::format(
      "{} is damaged: of the {} tensors that were saved, {}{}\nremove the folder to go on from the one before",
      folder.string(), saved.size(), counts, names));
}

void check_values(const parallel::ShardedTables* tables) {
  TUTTI_CHECK(tables == nullptr || tables->has_values(),
              "checkpoint: the tables have no values yet; call initialize() or load() before they are saved");
}

std::pair<FileTensors, FileTensors> files_of(const nn::Module& model, const optim::Optimizer& optimizer,
                                             const parallel::ShardedTables* tables) {
  FileTensors parameters{tensors_of(model)}, moments{state_of(optimizer)};
  if (tables == nullptr) return {parameters, moments};
  for (parallel::TensorBox& box : tables->boxes())
    (box.is_state ? moments : parameters).boxes.push_back(std::move(box));
  moments.tensors.emplace_back("state.iter", Tensor::of<int64_t>({tables->steps_taken()}, {}));
  return {parameters, moments};
}

void save_checkpoint(const fs::path& folder, const nn::Module& model, const optim::Optimizer& optimizer,
                     const TrainState& state, int64_t keep_latest, comm::ProcessGroup* group,
                     const parallel::ShardedTables* tables) {
  check_values(tables);
  const auto [parameters, moments] = files_of(model, optimizer, tables);
  save_tensors(folder, parameters, moments, state, keep_latest, group);
}

void save_tensors(const fs::path& folder, const FileTensors& model, const FileTensors& optimizer,
                  const TrainState& state, int64_t keep_latest, comm::ProcessGroup* group) {
  const fs::path target = folder / fmt::format("step-{}", state.step);
  const fs::path unfinished = folder / fmt::format("{}step-{}", kUnfinished, state.step);
  const fs::path parameters = unfinished / kModelFile, moments = unfinished / kOptimizerFile;
  try {
    on_first_rank(group, [&] {
      fs::create_directories(folder);
      fs::remove_all(unfinished);
      fs::create_directory(unfinished);
    });
    write_tensors(parameters, model.tensors, {{"format", "pt"}}, group, model.boxes);
    write_tensors(moments, optimizer.tensors, {}, group, optimizer.boxes);
    const Digests digests = digests_of_files({parameters, moments}, group);
    on_first_rank(group, [&] {
      write_file_atomically((unfinished / kStateFile).string(), state_json_of({state, digests}));
      sync_folder(unfinished);
      if (fs::exists(target)) remove_step(target);  // of a run that was resumed from an older step
      fs::rename(unfinished, target);
      sync_folder(folder);
    });
  } catch (const std::exception& e) {
    std::error_code ignored;
    if (is_first_rank(group)) fs::remove_all(unfinished, ignored);
    if (dynamic_cast<const comm::StoppedByPeer*>(&e) != nullptr) throw;  // another rank says why
    throw EnvironmentError(
        fmt::format("checkpoint of step {} was not saved, earlier ones are whole: {}", state.step, e.what()));
  }
  if (is_first_rank(group)) prune_checkpoints(folder, keep_latest);
}

TrainState load_checkpoint(const fs::path& step_folder, const nn::Module& model, optim::Optimizer& optimizer,
                           comm::ProcessGroup* group, parallel::ShardedTables* tables) {
  SavedState saved;
  std::optional<SafetensorsShards> parameters, moments;
  const auto [of_model, of_optimizer] = files_of(model, optimizer, tables);
  on_all_ranks(group, [&] {
    saved = read_state(step_folder);
    parameters.emplace(step_folder / kModelFile);
    moments.emplace(step_folder / kOptimizerFile);
    check_content(*parameters, of_model.tensors, of_model.boxes);
    check_content(*moments, of_optimizer.tensors, of_optimizer.boxes);
  });
  check_digests(step_folder, saved.digests, group);
  for (const nn::NamedParameter& p : model.named_parameters()) p.parameter.will_change();
  on_all_ranks(group, [&] {
    read_tensors(*parameters, of_model.tensors, of_model.boxes);
    read_tensors(*moments, of_optimizer.tensors, of_optimizer.boxes);
  });
  optimizer.set_steps_taken(saved.train.optimizer_steps);
  if (tables != nullptr) tables->values_are_those_after(of_optimizer.tensors.back().second.item_int());
  return saved.train;
}

void load_model(const fs::path& path, nn::Module& model) {
  nn::load(model, (fs::is_regular_file(path) ? path : resolve_checkpoint(path) / kModelFile).string());
}

std::string load_first_weights(const fs::path& path, models::LanguageModel& model) {
  const fs::path place = fs::is_regular_file(path) ? path : resolve_checkpoint(path);
  const bool is_compared = models::load_published(model, place);
  const bool is_of_run = fs::exists((fs::is_directory(place) ? place : place.parent_path()) / kStateFile);
  if (is_compared || is_of_run) return "";
  return fmt::format(
      "{} has no config.json beside its weights: only names and sizes of tensors were compared with the model, not "
      "what is computed with them",
      place.string());
}

void export_model(const fs::path& path, const fs::path& file) {
  const SafetensorsShards from(resolve_checkpoint(path) / kModelFile);
  nn::StateDict state;
  for (const io::SafetensorsEntry& entry : from.entries()) state.emplace_back(entry.name, from.tensor(entry.name));
  nn::save_published(state, file.string());
}

std::vector<DigestedTensor> digest_checkpoint(const fs::path& path) {
  const fs::path folder = resolve_checkpoint(path);
  std::vector<DigestedTensor> list;
  for (const char* name : {kModelFile, kOptimizerFile}) {
    if (!fs::exists(safetensors_place(folder / name))) continue;  // a model without optimizer state
    const SafetensorsShards file(folder / name);
    for (const auto& entry : file.entries()) {
      const Tensor t = file.tensor(entry.name);
      list.push_back({entry.name, t.dtype(), t.extents(), tensor_digest(t)});
    }
  }
  std::sort(list.begin(), list.end(), [](const DigestedTensor& a, const DigestedTensor& b) { return a.name < b.name; });
  return list;
}

Digests verify_checkpoint(const fs::path& path) {
  const fs::path folder = resolve_checkpoint(path);
  const SavedState saved = read_state(folder);
  check_digests(folder, saved.digests, nullptr);
  return saved.digests;
}

}  // namespace tutti::train
