#include "tutti/train/config/config_fields.h"

#include "tutti/train/config/section.h"

namespace tutti::train {

std::span<const Section> config_sections() {
  static const std::vector<Section> sections = [] {
    std::vector<Section> all;
    for (const SectionRow* section : section_rows()) all.push_back({section->name, section->doc});
    return all;
  }();
  return sections;
}

std::span<const Field> config_fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all;
    for (const SectionRow* section : section_rows()) {
      for (Field& field : section->keys()) all.push_back(std::move(field));
    }
    return all;
  }();
  return fields;
}

}  // namespace tutti::train
