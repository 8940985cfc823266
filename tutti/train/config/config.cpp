#include "tutti/train/config/config.h"

#include "tutti/train/config/section.h"

namespace tutti::train {

Faults faults_of(const Config& config) {
  Faults faults;
  for (const SectionRow* section : section_rows()) {
    if (section->check != nullptr) section->check(config, faults);
  }
  return faults;
}

void validate(const Config& config) { faults_of(config).raise(); }

}  // namespace tutti::train
