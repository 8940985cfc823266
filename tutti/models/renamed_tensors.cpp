#include "tutti/models/renamed_tensors.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/tensor/tensor.h"

namespace tutti::models {
namespace {

class RenamedTensors final : public ModelFileReader {
 public:
  RenamedTensors(const ModelFile& file, const std::function<std::optional<std::string>(std::string_view)>& rename)
      : file_(file) {
    for (ModelTensor entry : file.entries()) {
      const std::optional<std::string> name = rename(entry.name);
      if (!name) continue;
      const auto [known, is_new] = name_in_file_.emplace(*name, entry.name);
      TUTTI_CHECK(is_new, "{}: {} and {} are one tensor, {}, under two names", file.path(), known->second, entry.name,
                  *name);
      entry.name = *name;
      entries_.push_back(std::move(entry));
    }
  }
  const std::vector<ModelTensor>& entries() const override { return entries_; }
  const ModelMetadata& metadata() const override { return file_.metadata(); }
  Tensor tensor(std::string_view name) const override { return file_.tensor(name_in_file_.at(std::string(name))); }
  Tensor blocks(std::string_view name) const override { return file_.blocks(name_in_file_.at(std::string(name))); }

 private:
  const ModelFile file_;
  std::vector<ModelTensor> entries_;
  std::map<std::string, std::string> name_in_file_;
};

}  // namespace

ModelFile renamed_tensors(const ModelFile& file,
                          const std::function<std::optional<std::string>(std::string_view)>& rename) {
  return {file.path(), file.format(), std::make_unique<RenamedTensors>(file, rename)};
}

}  // namespace tutti::models
