#include "tutti/train/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>

#include "tutti/autograd/tape.h"
#include "tutti/io/safetensors.h"
#include "tutti/ops/copy.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_document.h"

namespace tutti::train {
namespace fs = std::filesystem;
namespace {

constexpr size_t kLargestState = size_t{1} << 30;

using Named = std::vector<std::pair<std::string, Tensor>>;

Named parameters_of(const nn::Module& model) {
  Named list;
  for (const nn::NamedParameter& p : model.named_parameters()) {
    p.parameter.materialize();
    list.emplace_back(p.name, detach(p.parameter.master()));
  }
  return list;
}

Named state_of(const optim::Optimizer& optimizer) {
  Named list;
  for (const optim::StateTensor& s : optimizer.state()) list.emplace_back(s.name, s.tensor);
  return list;
}

void sync_folder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  TUTTI_CHECK_ENV(fd >= 0, "cannot open {}: {}", folder.string(), detail::errno_text(errno));
  const int failed = fsync(fd) != 0 ? errno : 0;
  close(fd);
  TUTTI_CHECK_ENV(failed == 0, "cannot sync {}: {}", folder.string(), detail::errno_text(failed));
}

// The checkpoint that a user's path names: a step folder itself, or the newest one of a run.
fs::path resolve(const fs::path& path) {
  TUTTI_CHECK(fs::exists(path), "{} does not exist", path.string());
  if (fs::exists(path / kModelFile)) return path;
  for (const fs::path& folder : {path, path / "checkpoint"}) {
    if (const auto newest = newest_checkpoint(folder)) return *newest;
    for (const IncompleteCheckpoint& c : incomplete_checkpoints(folder))
      throw EnvironmentError(fmt::format("no checkpoint in {} is whole: {} lacks {}", folder.string(), c.path.filename().string(), fmt::join(c.missing, " and ")));
  }
  throw UsageError(fmt::format("{} holds no checkpoint: neither {} nor step-N folders", path.string(), kModelFile));
}

// Every wanted tensor must be there with its shape and dtype, and nothing else.
void check_content(const SafetensorsFile& file, const Named& wanted) {
  std::string problems;
  for (const auto& [name, tensor] : wanted) {
    if (!file.contains(name)) {
      problems += fmt::format("\n  missing: {} {}", name, describe(tensor));
      continue;
    }
    const Tensor stored = file.tensor(name);
    if (stored.extents() != tensor.extents() || stored.dtype() != tensor.dtype())
      problems += fmt::format("\n  {}: the file holds {}, the model needs {}", name, describe(stored), describe(tensor));
  }
  for (const auto& entry : file.entries()) {
    const bool known = std::any_of(wanted.begin(), wanted.end(), [&](const auto& w) { return w.first == entry.name; });
    if (!known) problems += fmt::format("\n  unexpected: {}", entry.name);
  }
  TUTTI_CHECK(problems.empty(), "{} is of another model:{}", file.path(), problems);
}

void copy_content(const SafetensorsFile& file, const Named& wanted) {
  NoGradScope no_grad;
  for (const auto& [name, tensor] : wanted) copy_(tensor, file.tensor(name));
}

Digests digests_of(const Named& model, const Named& optimizer) {
  Digests digests;
  for (const Named* list : {&model, &optimizer}) {
    for (const auto& [name, tensor] : *list) digests[name] = tensor_digest(contiguous(tensor));
  }
  return digests;
}

// Every tensor must be there with the bits it was saved with.
void check_digests(const fs::path& folder, const Digests& saved, std::initializer_list<const SafetensorsFile*> files) {
  std::string problems;
  size_t found = 0;
  for (const SafetensorsFile* file : files) {
    for (const auto& entry : file->entries()) {
      const auto it = saved.find(entry.name);
      found += it != saved.end();
      if (it == saved.end()) problems += fmt::format("\n  unknown: {}", entry.name);
      else if (it->second != tensor_digest(file->tensor(entry.name))) problems += fmt::format("\n  changed: {}", entry.name);
    }
  }
  TUTTI_CHECK_ENV(problems.empty() && found == saved.size(),
                  "{} is damaged: {} of the {} tensors that were saved are there{}\nremove the folder to go on from the one before",
                  folder.string(), found, saved.size(), problems);
}

}  // namespace

void save_checkpoint(const fs::path& folder, const nn::Module& model, const optim::Optimizer& optimizer, const TrainState& state,
                     int64_t keep_latest) {
  const fs::path target = folder / fmt::format("step-{}", state.step);
  const fs::path unfinished = folder / fmt::format("{}step-{}", kUnfinished, state.step);
  try {
    fs::create_directories(folder);
    fs::remove_all(unfinished);
    fs::create_directory(unfinished);
    write_safetensors((unfinished / kModelFile).string(), parameters_of(model), {{"format", "pt"}});
    write_safetensors((unfinished / kOptimizerFile).string(), state_of(optimizer));
    const Digests digests = digests_of(parameters_of(model), state_of(optimizer));
    write_file_atomically((unfinished / kStateFile).string(), state_json_of({state, digests}));
    sync_folder(unfinished);
    if (fs::exists(target)) remove_step(target);  // of a run that was resumed from an older step
    fs::rename(unfinished, target);
    sync_folder(folder);
  } catch (const std::exception& e) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw EnvironmentError(fmt::format("checkpoint of step {} was not saved, earlier ones are whole: {}", state.step, e.what()));
  }
  if (keep_latest <= 0) return;
  std::vector<fs::path> all = list_checkpoints(folder);
  for (size_t i = 0; i + static_cast<size_t>(keep_latest) < all.size(); ++i) {
    try {
      remove_step(all[i]);
    } catch (const fs::filesystem_error&) {
      // An old checkpoint that cannot be deleted harms nobody.
    }
  }
}

SavedState read_state(const fs::path& step_folder) {
  const fs::path path = step_folder / kStateFile;
  SavedState state = parse_state_json(read_regular_file(path.string(), kLargestState), path.string());
  const int64_t named = step_of(step_folder).value_or(state.train.step);
  TUTTI_CHECK_ENV(named == state.train.step, "{} is that of step {}, the folder is named for step {}; put back the folder as it was saved",
                  path.string(), state.train.step, named);
  return state;
}

TrainState load_checkpoint(const fs::path& step_folder, const nn::Module& model, optim::Optimizer& optimizer) {
  const auto [state, digests] = read_state(step_folder);
  const SafetensorsFile parameters((step_folder / kModelFile).string()), moments((step_folder / kOptimizerFile).string());
  check_content(parameters, parameters_of(model));
  check_content(moments, state_of(optimizer));
  check_digests(step_folder, digests, {&parameters, &moments});
  copy_content(parameters, parameters_of(model));
  copy_content(moments, state_of(optimizer));
  optimizer.set_steps_taken(state.optimizer_steps);
  return state;
}

void load_model(const fs::path& path, nn::Module& model) {
  nn::load(model, (fs::is_regular_file(path) ? path : resolve(path) / kModelFile).string());
}

std::vector<DigestedTensor> digest_checkpoint(const fs::path& path) {
  const fs::path folder = resolve(path);
  std::vector<DigestedTensor> list;
  for (const char* name : {kModelFile, kOptimizerFile}) {
    if (!fs::exists(folder / name)) continue;  // a model without optimizer state
    const SafetensorsFile file((folder / name).string());
    for (const auto& entry : file.entries()) {
      const Tensor t = file.tensor(entry.name);
      list.push_back({entry.name, t.dtype(), t.extents(), tensor_digest(t)});
    }
  }
  std::sort(list.begin(), list.end(), [](const DigestedTensor& a, const DigestedTensor& b) { return a.name < b.name; });
  return list;
}

Digests verify_checkpoint(const fs::path& path) {
  const fs::path folder = resolve(path);
  const SavedState saved = read_state(folder);
  const SafetensorsFile parameters((folder / kModelFile).string()), moments((folder / kOptimizerFile).string());
  check_digests(folder, saved.digests, {&parameters, &moments});
  return saved.digests;
}

}  // namespace tutti::train
