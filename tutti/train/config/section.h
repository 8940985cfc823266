// A section of the configuration: one file of tutti/train/config/sections, and the one place of everything about its
// keys.
//
// A row of keys() has a key's type and default, its meaning, unit and legal values, and what happens when a run is
// resumed with another value; check() has the rules between keys that belong to the section. The structs of config.h
// are made from the rows, and so are parser, writer, flags, --help and docs/config.md: a new key is a row.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/train/config/config_fields.h"
#include "tutti/train/config/faults.h"

namespace tutti::train {

struct SectionRow {
  const char* name;
  const char* doc;
  std::vector<Field> (*keys)();
  // The rules of all models, and those that only some have.
  void (*check)(const Config& config, Faults& faults) = nullptr;
  void (*check_language_model)(const Config& config, Faults& faults) = nullptr;
  void (*check_click_model)(const Config& config, Faults& faults) = nullptr;
};
// In the order in which a configuration is written.
std::span<const SectionRow* const> section_rows();

inline FieldRule at_least(double min) { return {.min = min}; }
inline FieldRule at_least_or_rest(double min) { return {.min = min, .also = -1}; }
inline FieldRule above(double min) { return {.min = min, .min_excluded = true}; }
inline FieldRule between(double min, double max) { return {.min = min, .max = max}; }
inline FieldRule one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
// A degree of a kind of parallelism that is 1 here; -1 comes to the same.
inline FieldRule degree_one() { return {.also = -1, .only = int64_t{1}}; }

// The beginning of a row of keys(): TUTTI_KEY(section, type, key, default). The last one is for the struct, which
// cmake/TuttiConfigSections.cmake makes of the text.
#define TUTTI_KEY(section_, type_, key_, ...) \
  .section = #section_, .key = #key_,         \
  .place = static_cast<type_* (*)(Config&)>([](Config& config) { return &config.section_.key_; })

// TUTTI_SECTION(name, type, place) = {...}; at the end of <name>.cpp. Sections are written in the order of their
// places.
#define TUTTI_SECTION(name_, type_, place_) \
  extern const SectionRow name_##_section;  \
  constinit const SectionRow name_##_section

}  // namespace tutti::train
