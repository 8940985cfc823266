#include "tutti/models/language_model.h"

#include "tutti/core/error.h"
#include "tutti/models/qwen3.h"

namespace tutti::models {

std::span<const ModelFamily> model_families() {
  static const ModelFamily families[] = {kQwen3Family};
  return families;
}

std::unique_ptr<LanguageModel> make_model(std::string_view family, std::string_view flavor,
                                          const ModelOptions& options) {
  std::vector<std::string> names;
  for (const ModelFamily& f : model_families()) {
    if (f.name == family) return f.make(flavor, options);
    names.emplace_back(f.name);
  }
  throw UsageError(unknown_name_message("model", family, names));
}

}  // namespace tutti::models
