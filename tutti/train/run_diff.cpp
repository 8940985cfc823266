#include "tutti/train/run_diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "tutti/core/error.h"
#include "tutti/core/ulps.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/models/package_file.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/config/config_fields.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/report/record_words.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

// What a path offers to compare.
struct Source {
  fs::path path;
  std::optional<fs::path> metrics, config;
  std::map<int64_t, fs::path> checkpoints;  // by step
  std::optional<fs::path> named;            // the checkpoint or file that the path itself names
};

Source open_source(const fs::path& path) {
  models::refuse_package(path);
  Source source{.path = path};
  std::error_code none;
  if (fs::is_regular_file(path, none)) {
    if (path.extension() == ".safetensors") source.named = path;
    else if (path.extension() == ".jsonl") source.metrics = path;
    else throw UsageError(fmt::format("{} is neither a .safetensors file nor a metrics.jsonl", path.string()));
    return source;
  }
  TUTTI_CHECK(fs::exists(path, none),
              "{} does not exist; expected a run folder, a checkpoint, a .safetensors file or a metrics.jsonl",
              path.string());
  if (fs::exists(safetensors_place(path / kModelFile), none)) {
    source.named = path;
    return source;
  }
  if (fs::exists(path / "metrics.jsonl", none)) source.metrics = path / "metrics.jsonl";
  if (fs::exists(path / "config.resolved.toml", none)) source.config = path / "config.resolved.toml";
  const fs::path folder = fs::is_directory(path / "checkpoint", none) ? path / "checkpoint" : path;
  if (fs::is_directory(folder, none)) {
    for (const fs::path& step_folder : list_checkpoints(folder))
      source.checkpoints[*step_of(step_folder)] = step_folder;
  }
  TUTTI_CHECK(source.metrics || !source.checkpoints.empty(), "{} holds neither metrics.jsonl nor checkpoints",
              path.string());
  return source;
}

// ---- settings -------------------------------------------------------------------------------------------------------

// A run folder tells all settings, a checkpoint those that numbers depend on.
std::optional<Settings> settings_of(const Source& source) {
  if (source.config) return load_settings(*source.config);
  if (source.named && fs::exists(*source.named / kStateFile)) return read_state(*source.named).train.inputs.settings;
  return std::nullopt;
}

// A key that this version does not know may be one of another version, and change the numbers there.
bool may_change_numbers(const std::string& key) {
  const std::span<const Field> fields = config_fields();
  const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name() == key; });
  return field == fields.end() || field->resuming != Resuming::free;
}

std::vector<SettingDifference> differing_settings(const Source& a, const Source& b) {
  const std::optional<Settings> in_a = settings_of(a), in_b = settings_of(b);
  std::vector<SettingDifference> result;
  if (!in_a || !in_b) return result;
  const bool are_whole = a.config && b.config;  // a checkpoint tells only some
  const auto value = [](const Settings& settings, const std::string& key) {
    const auto found = settings.find(key);
    return found == settings.end() ? std::string() : found->second;
  };
  Settings all = *in_a;
  all.insert(in_b->begin(), in_b->end());
  for (const auto& [key, _] : all) {
    const std::string x = value(*in_a, key), y = value(*in_b, key);
    if (x == y || (!are_whole && (x.empty() || y.empty()))) continue;
    result.push_back({key, x.empty() ? "no such key" : x, y.empty() ? "no such key" : y, may_change_numbers(key)});
  }
  return result;
}

// ---- numbers --------------------------------------------------------------------------------------------------------

template <class T>
std::optional<NumberDifference> compare_numbers(int64_t step, const char* what, T a, T b, DType dtype) {
  const uint64_t ulps = ulps_between(&a, &b, dtype);
  if (ulps == 0) return std::nullopt;
  return NumberDifference{step, what, hex_float(a), hex_float(b), ulps};
}

std::optional<NumberDifference> compare_records(const StepRecord& a, const StepRecord& b) {
  if (auto loss = compare_numbers(a.step, "loss", a.loss, b.loss, DType::f32)) return loss;
  // The norm is a float, written as a double.
  const auto norm_a = static_cast<float>(a.grad_norm), norm_b = static_cast<float>(b.grad_norm);
  const bool are_floats = norm_a == a.grad_norm && norm_b == b.grad_norm;
  const auto norm = are_floats ? compare_numbers(a.step, "grad_norm", norm_a, norm_b, DType::f32)
                               : compare_numbers(a.step, "grad_norm", a.grad_norm, b.grad_norm, DType::f64);
  if (norm) return norm;
  for (const HeldOutMetric& metric : held_out_metrics()) {
    const std::optional<double>&x = a.*metric.value, &y = b.*metric.value;
    if (!x || !y) continue;
    if (auto value = compare_numbers(a.step, metric.key, *x, *y, DType::f64)) return value;
  }
  return std::nullopt;
}

void compare_metrics(const Source& a, const Source& b, RunDiff& diff) {
  if (!a.metrics || !b.metrics) return;
  std::map<int64_t, StepRecord> in_a, in_b;
  for (const StepRecord& record : read_metrics(*a.metrics)) in_a[record.step] = record;
  for (const StepRecord& record : read_metrics(*b.metrics)) in_b[record.step] = record;
  for (const auto& [step, record] : in_b) {
    if (!in_a.contains(step)) diff.only_in_b.push_back(step);
  }
  for (const auto& [step, record] : in_a) {
    const auto other = in_b.find(step);
    if (other == in_b.end()) {
      diff.only_in_a.push_back(step);
      continue;
    }
    if (diff.steps.empty() && record.numerics_version != other->second.numerics_version) {
      diff.settings.push_back({"numerics.version", fmt::format("{}", record.numerics_version),
                               fmt::format("{}", other->second.numerics_version), true});
    }
    diff.steps.push_back(step);
    if (!diff.number) diff.number = compare_records(record, other->second);
  }
}

// ---- tensors --------------------------------------------------------------------------------------------------------

std::string text_of(const char* element, DType dtype) {
  return is_floating(dtype) ? hex_float(load_as_double(element, dtype))
                            : fmt::format("{}", load_as_int64(element, dtype));
}

Extents place_in(Extents sizes, int64_t element) {
  for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; --d) {
    const int64_t size = sizes[static_cast<size_t>(d)];
    sizes[static_cast<size_t>(d)] = element % size;
    element /= size;
  }
  return sizes;
}

std::optional<TensorDifference> compare_tensors(int64_t step, const std::string& name, const Tensor& a,
                                                const Tensor& b) {
  TensorDifference result{.step = step, .name = name, .dtype = a.dtype(), .numel = a.numel()};
  if (a.dtype() != b.dtype() || a.extents() != b.extents()) {
    result.shapes = fmt::format("{} | {}", describe(a), describe(b));
    return result;
  }
  const auto* from_a = static_cast<const char*>(a.raw_data());
  const auto* from_b = static_cast<const char*>(b.raw_data());
  if (a.nbytes() == 0 || std::memcmp(from_a, from_b, static_cast<size_t>(a.nbytes())) == 0) return std::nullopt;
  const int64_t size = itemsize(a.dtype());
  double square = 0, square_of_difference = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const char *x = from_a + i * size, *y = from_b + i * size;
    const double value = load_as_double(x, a.dtype()), difference = load_as_double(y, a.dtype()) - value;
    square += value * value;
    const uint64_t ulps = ulps_between(x, y, a.dtype());
    if (ulps == 0) continue;
    square_of_difference += difference * difference;
    if (result.differing++ == 0) {
      result.element = place_in(a.extents(), i);
      result.a = text_of(x, a.dtype());
      result.b = text_of(y, a.dtype());
      result.ulps = ulps;
    }
    result.most_ulps = std::max(result.most_ulps, ulps);
  }
  const double distance = std::sqrt(square_of_difference / square);
  if (!std::isnan(distance)) result.distance = distance;
  return result;
}

void compare_files(int64_t step, const fs::path& a, const fs::path& b, RunDiff& diff) {
  const SafetensorsShards in_a(a), in_b(b);
  for (const auto& entry : in_a.entries()) {
    ++diff.tensors;
    if (!in_b.contains(entry.name)) {
      diff.differing.push_back({.step = step, .name = entry.name, .shapes = fmt::format("missing in {}", b.string())});
    } else if (auto difference = compare_tensors(step, entry.name, in_a.tensor(entry.name), in_b.tensor(entry.name))) {
      diff.differing.push_back(std::move(*difference));
    }
  }
  for (const auto& entry : in_b.entries()) {
    if (in_a.contains(entry.name)) continue;
    ++diff.tensors;
    diff.differing.push_back({.step = step, .name = entry.name, .shapes = fmt::format("missing in {}", a.string())});
  }
}

// The files of two checkpoints, or of a checkpoint and a file of weights.
void compare_checkpoints(int64_t step, const fs::path& a, const fs::path& b, RunDiff& diff) {
  diff.checkpoints.push_back(step);
  const auto weights = [](const fs::path& path) { return fs::is_directory(path) ? path / kModelFile : path; };
  compare_files(step, weights(a), weights(b), diff);
  if (!fs::is_directory(a) || !fs::is_directory(b)) return;
  const bool in_a = fs::exists(safetensors_place(a / kOptimizerFile)),
             in_b = fs::exists(safetensors_place(b / kOptimizerFile));
  TUTTI_CHECK_ENV(in_a == in_b, "{} lacks {}, which {} has; put back the file", (in_a ? b : a).string(), kOptimizerFile,
                  (in_a ? a : b).string());
  if (in_a) compare_files(step, a / kOptimizerFile, b / kOptimizerFile, diff);
  if (diff.differing.empty()) return;
  // A checkpoint that is not what was saved says nothing about the run.
  for (const fs::path& folder : {a, b}) {
    if (fs::exists(folder / kStateFile)) verify_checkpoint(folder);
  }
}

// The checkpoint of `source` that goes with the one that the other path names: of its step, else the newest.
std::optional<fs::path> partner(const Source& source, const fs::path& named) {
  if (source.named) return source.named;
  if (source.checkpoints.empty()) return std::nullopt;
  const std::optional<int64_t> step = step_of(named);
  if (!step) return source.checkpoints.rbegin()->second;
  const auto same = source.checkpoints.find(*step);
  return same == source.checkpoints.end() ? std::nullopt : std::optional(same->second);
}

// Steps of which `one` has a checkpoint and `other` has none.
std::vector<int64_t> steps_of_one(const Source& one, const Source& other) {
  std::vector<int64_t> steps;
  for (const auto& [step, folder] : one.checkpoints) {
    if (!other.checkpoints.contains(step)) steps.push_back(step);
  }
  return steps;
}

void compare_weights(const Source& a, const Source& b, RunDiff& diff) {
  if (a.named || b.named) {
    const std::optional<fs::path> from_a = a.named ? a.named : partner(a, *b.named),
                                  from_b = b.named ? b.named : partner(b, *a.named);
    if (from_a && from_b) compare_checkpoints(step_of(*from_a).value_or(0), *from_a, *from_b, diff);
    return;
  }
  if (fs::is_directory(a.path) && fs::is_directory(b.path)) {
    diff.checkpoints_only_in_a = steps_of_one(a, b);
    diff.checkpoints_only_in_b = steps_of_one(b, a);
  }
  for (const auto& [step, folder] : a.checkpoints) {
    const auto other = b.checkpoints.find(step);
    if (other != b.checkpoints.end() && diff.differing.empty()) compare_checkpoints(step, folder, other->second, diff);
  }
}

}  // namespace

RunDiff compare_runs(const fs::path& a, const fs::path& b) {
  const Source from_a = open_source(a), from_b = open_source(b);
  RunDiff diff;
  diff.settings = differing_settings(from_a, from_b);
  compare_metrics(from_a, from_b, diff);
  compare_weights(from_a, from_b, diff);
  std::stable_sort(diff.differing.begin(), diff.differing.end(),
                   [](const TensorDifference& x, const TensorDifference& y) { return x.distance > y.distance; });
  TUTTI_CHECK(
      !diff.steps.empty() || !diff.checkpoints.empty(),
      "{} and {} have nothing in common to compare: neither a step in their metrics nor a checkpoint of the same step",
      a.string(), b.string());
  return diff;
}

}  // namespace tutti::train
