// [validation]: the keys with their defaults, and their rules with other keys.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> validation_keys() {
  return {
      {TUTTI_KEY(validation, int64_t, every, 100), .doc = "steps between validations; 0: never", .unit = "steps",
       .rule = at_least(0), .resuming = Resuming::told},
      {TUTTI_KEY(validation, int64_t, steps, -1), .doc = "batches per validation; -1: all held-out data",
       .unit = "batches", .rule = at_least_or_rest(1), .resuming = Resuming::told},
      {TUTTI_KEY(validation, int64_t, sample_tokens, 200),
       .doc = "length of the text that the model generates at the end of the run; 0: none", .unit = "tokens",
       .rule = between(0, 1 << 20), .only_of = ModelKind::language},
      {TUTTI_KEY(validation, std::string, sample_prompt, "The "), .doc = "prompt of that text", .unit = "",
       .only_of = ModelKind::language},
  };
}

void check_held_out_text(const Config& config, Faults& faults) {
  faults.check(config.validation.every == 0 || config.data.validation_fraction > 0,
               "validation.every = {} needs held-out text, but data.validation_fraction is 0; set one of them",
               config.validation.every);
}

void check_held_out_clicks(const Config& config, Faults& faults) {
  faults.check(
      config.validation.every == 0 || config.clicks.source != "files" || !config.clicks.validation_paths.empty(),
      "validation.every = {} needs held-out rows, but clicks.validation_paths is empty; name files, or set "
      "validation.every = 0",
      config.validation.every);
}

}  // namespace

TUTTI_SECTION(validation, ValidationConfig, 9) = {
    .name = "validation",
    .doc = "Validation on data that the model is not trained on.",
    .keys = validation_keys,
    .check_language_model = check_held_out_text,
    .check_click_model = check_held_out_clicks,
};

}  // namespace tutti::train
