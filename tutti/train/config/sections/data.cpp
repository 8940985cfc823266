// [data]: the keys with their defaults, and their rules with other keys.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> data_keys() {
  return {
      {TUTTI_KEY(data, std::vector<std::string>, paths, {}),
       .doc =
           "text files, folders and globs; .jsonl, gzip and dictzip are recognised. For click models files and globs "
           "of rows, and folders of npy files (docs/click_models.md). Between two starts of a run the files may "
           "move, but what they hold must not change",
       .unit = ""},
      {TUTTI_KEY(data, std::string, text_field, "text"),
       .doc = "the key under which the lines of .jsonl files have their text", .unit = "",
       .only_of = ModelKind::language},
      {TUTTI_KEY(data, std::string, binary, "refuse"),
       .doc = "what to do with files that hold no text, such as archives, tables and pictures: refuse them by name, or "
              "read their bytes as they are",
       .unit = "", .rule = one_of({"refuse", "read"}), .only_of = ModelKind::language},
      {TUTTI_KEY(data, double, validation_fraction, 0.01),
       .doc = "fraction of the documents that is held out for validation", .unit = "", .rule = between(0, 0.5),
       .resuming = Resuming::fixed, .only_of = ModelKind::language},
      {TUTTI_KEY(data, std::string, tokenizer, "byte"),
       .doc = "'byte', 'bpe:N' (N tokens learned from data.paths), or the path of a tokenizer.json. A resumed run uses "
              "its "
              "own tokenizer, so this must still describe the same one",
       .unit = "", .only_of = ModelKind::language},
      {TUTTI_KEY(data, std::string, changed, "refuse"),
       .doc =
           "what to do when the data or the tokenizer file of a resumed run have changed: refuse, or continue with the "
           "new data and the run's own tokenizer",
       .unit = "", .rule = one_of({"refuse", "continue"})},
      {TUTTI_KEY(data, int64_t, sequence_length, 256), .doc = "length of a training sequence", .unit = "tokens",
       .rule = between(2, 1 << 20), .resuming = Resuming::fixed, .only_of = ModelKind::language},
  };
}

void check_text(const Config& config, Faults& faults) {
  faults.check(!config.data.paths.empty(), "data.paths is empty; name at least one file or folder of text");
}

}  // namespace

TUTTI_SECTION(data, DataConfig, 1) = {
    .name = "data",
    .doc = "The data to train on.",
    .keys = data_keys,
    .check_language_model = check_text,
};

}  // namespace tutti::train
