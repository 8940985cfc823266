#include "tests/cli/support/published.h"

#include <filesystem>

#include "tests/train/support/published_folders.h"

namespace tutti::test {

void write_published_decoder(const Workplace& work) {
  const std::filesystem::path folder = work.folder() / "published";
  std::filesystem::create_directory(folder);
  train::write_decoder_folder(folder, "tiny-tp4");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy_file(work.folder() / "tokenizer" / file, folder / file);
}

void write_published_encoder(const Workplace& work) {
  std::filesystem::create_directory(work.folder() / "encoder");
  train::write_encoder_folder(work.folder() / "encoder");
}

}  // namespace tutti::test
