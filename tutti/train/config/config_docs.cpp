#include "tutti/train/config/config_docs.h"

#include <fmt/format.h>

#include "tutti/train/config/config_fields.h"

namespace tutti::train {
namespace {

std::string legal_values(const Field& field) {
  const std::string rule = rule_words(field);
  const std::string type = field.rule.choices.empty() ? type_words(field) : "";
  if (field.rule.only) return fmt::format("{} in this version", to_toml(*field.rule.only));
  return fmt::format("{}{}{}", type, type.empty() || rule.empty() ? "" : ", ", rule);
}

std::string with_unit(const Field& field) { return field.unit.empty() ? "" : fmt::format(" [{}]", field.unit); }

}  // namespace

std::string config_help() {
  std::string text;
  for (const Section& section : config_sections()) {
    text += fmt::format("[{}] {}\n", section.name, section.doc);
    for (const Field& field : config_fields()) {
      if (field.section != section.name) continue;
      text += fmt::format("  --{}={}{}\n      {}; {}. Environment: {}\n", field.name(), to_toml(default_of(field)),
                          with_unit(field), field.doc, legal_values(field), field.variable());
    }
  }
  return text;
}

std::string config_markdown() {
  std::string text =
      "# Configuration\n\n"
      "A run is described by a TOML file. Each key can also be set by the environment variable\n"
      "`TUTTI_<SECTION>_<KEY>` and by the flag `--section.key=value`; a flag overrides the environment, and the\n"
      "environment overrides the file. The resulting values are saved as `config.resolved.toml` in the run folder.\n\n"
      "Keys marked * must not change when a run is resumed. Changing a key marked + may change the numbers from that "
      "step on,\n"
      "and the run reports it; the other keys do not affect the numbers. See [resuming.md](resuming.md).\n\n"
      "A key that says nothing about the model of the configuration is refused: [clicks], [dlrm] and [tables] are for "
      "click models\n"
      "([click_models.md](click_models.md)), and keys of tokens, text and divided layers for language models.\n\n"
      "This page is generated from the files of `tutti/train/config/sections`; a test keeps it up to date.\n";
  for (const Section& section : config_sections()) {
    text += fmt::format("\n## [{}]\n\n{}\n\n| key | default | unit | values | meaning |\n|---|---|---|---|---|\n",
                        section.name, section.doc);
    for (const Field& field : config_fields()) {
      if (field.section != section.name) continue;
      text += fmt::format("| `{}`{} | `{}` | {} | {} | {} |\n", field.key,
                          field.resuming == Resuming::fixed  ? " *"
                          : field.resuming == Resuming::told ? " +"
                                                             : "",
                          to_toml(default_of(field)), field.unit, legal_values(field), field.doc);
    }
  }
  return text;
}

}  // namespace tutti::train
