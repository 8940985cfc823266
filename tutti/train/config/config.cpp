#include "tutti/train/config/config.h"

#include "tutti/train/config/section.h"

namespace tutti::train {

ModelKind kind_of(const Config& config) { return config.model.name == kDlrm ? ModelKind::clicks : ModelKind::language; }

Faults faults_of(const Config& config) {
  Faults faults;
  const bool has_tokens = kind_of(config) == ModelKind::language;
  for (const SectionRow* section : section_rows()) {
    if (section->check != nullptr) section->check(config, faults);
    const auto of_kind = has_tokens ? section->check_language_model : section->check_click_model;
    if (of_kind != nullptr) of_kind(config, faults);
  }
  for (const Field& field : config_fields()) {
    faults.check(is_of_model(field, config) || !is_written(field, config),
                 "{} = {} is for {}, and model.name is '{}'; leave it out", field.name(),
                 to_toml(value_of(field, config)), has_tokens ? "click models" : "language models", config.model.name);
  }
  return faults;
}

void validate(const Config& config) { faults_of(config).raise(); }

}  // namespace tutti::train
