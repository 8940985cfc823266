#include "tutti/models/language_model.h"

#include "tutti/models/decoder.h"
#include "tutti/models/family.h"

namespace tutti::models {

std::unique_ptr<LanguageModel> make_model(std::string_view family, std::string_view flavor,
                                          const ModelOptions& options) {
  return std::make_unique<Decoder>(flavor_named(family, flavor), options);
}

}  // namespace tutti::models
