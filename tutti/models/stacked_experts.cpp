#include "tutti/models/stacked_experts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/slice.h"

namespace tutti::models {
namespace {

constexpr std::string_view kExperts = ".experts.";

class SplitExperts final : public ModelFileReader {
 public:
  explicit SplitExperts(const ModelFile& file) : file_(file) {
    for (const ModelTensor& entry : file.entries()) {
      if (entry.name.ends_with(kStackedGateUp)) add_halves(entry);
      else if (entry.name.ends_with(kStackedDown)) add(entry, layer_of(entry.name) + ".experts.w2", {});
      else add(entry, entry.name, {});
    }
  }
  const std::vector<ModelTensor>& entries() const override { return entries_; }
  const ModelMetadata& metadata() const override { return file_.metadata(); }

  Tensor tensor(std::string_view name) const override {
    const Source& source = sources_.at(std::string(name));
    if (source.name_in_file.empty()) return zeros({source.count});
    const Tensor stored = file_.tensor(source.name_in_file);
    return source.count == 0 ? stored : narrow(stored, 1, source.begin, source.count);
  }
  Tensor blocks(std::string_view name) const override {
    const Source& source = sources_.at(std::string(name));
    if (source.name_in_file.empty()) return {};
    const Tensor stored = file_.blocks(source.name_in_file);
    return source.count == 0 || !stored.defined() ? stored : narrow(stored, 1, source.begin, source.count);
  }

 private:
  // Rows of each expert: so many from `begin` on, 0: all. Without a name: so many zeros.
  struct Source {
    std::string name_in_file = "";
    int64_t begin = 0, count = 0;
  };

  static std::string layer_of(std::string_view name) { return std::string(name.substr(0, name.rfind(kExperts))); }

  void add_halves(const ModelTensor& entry) {
    TUTTI_CHECK(entry.sizes.ndim() == 3 && entry.sizes[1] % 2 == 0,
                "{}: {} is {}; expected the gates and then the other halves of all experts, [experts, 2 features, dim]",
                file_.path(), entry.name, describe(entry));
    const std::string layer = layer_of(entry.name);
    const int64_t half = entry.sizes[1] / 2;
    ModelTensor part = entry;
    part.bytes = {};  // those of the file are of both
    part.sizes = {entry.sizes[0], half, entry.sizes[2]};
    add(part, layer + ".experts.w1", {entry.name, 0, half});
    add(part, layer + ".experts.w3", {entry.name, half, half});
    const std::string bias = layer + ".gate.expert_bias";
    if (!file_.contains(bias))
      add({.name = bias, .sizes = {entry.sizes[0]}, .dtype = DType::f32}, bias, {"", 0, entry.sizes[0]});
  }

  void add(ModelTensor entry, const std::string& name, Source source) {
    if (source.name_in_file.empty() && source.count == 0) source.name_in_file = entry.name;
    const auto [known, is_new] = sources_.emplace(name, source);
    TUTTI_CHECK(is_new, "{}: {} and {} are one tensor, {}, under two names", file_.path(), known->second.name_in_file,
                entry.name, name);
    entry.name = name;
    entries_.push_back(std::move(entry));
  }

  const ModelFile file_;
  std::vector<ModelTensor> entries_;
  std::map<std::string, Source> sources_;
};

}  // namespace

ModelFile split_stacked_experts(const ModelFile& file) {
  const bool has_some = std::any_of(file.entries().begin(), file.entries().end(), [](const ModelTensor& entry) {
    return entry.name.ends_with(kStackedGateUp) || entry.name.ends_with(kStackedDown);
  });
  if (!has_some) return file;
  return {file.path(), file.format(), std::make_unique<SplitExperts>(file)};
}

}  // namespace tutti::models
