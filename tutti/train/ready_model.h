// A published model ready for use: its decoder with frozen weights, and its tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tutti/io/tokenizer.h"
#include "tutti/models/decoder.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::train {

struct ReadyModel {
  std::unique_ptr<models::Decoder> model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<int32_t> ends;  // the ids that end its texts (models/generation_defaults.h)
};

// Opens a folder of Hugging Face's or a GGUF file (models/published_model.h) for texts of up to `positions` tokens. The
// weights stay in the pages of the files where these hold numbers, and are computed with in `compute`, f32 or bf16.
// Quantized blocks are decoded, unless they are kept: then projections, embedding and head compute with the blocks in
// the pages of the file (nn::LoadOptions::keep_blocks).
// UsageError where the folder has no tokenizer.json, the file no vocabulary that is read here, or the vocabulary more
// tokens than the model; errors of PublishedModel.
ReadyModel open_published(const std::filesystem::path& path, int64_t positions, DType compute = DType::f32,
                          bool keep_blocks = false);

// The same without weights, for a model whose forward is a package (generate/packaged_forward.h).
ReadyModel open_without_weights(const std::filesystem::path& path, int64_t positions);

// The same for a model that `divide` divides over ranks. Each rank holds its parts in memory of its own, in f32, and in
// `compute` where that is another dtype; with `keep_blocks`, and of a model that holds codes, it reads its parts of
// these, and of other weights whose dtype is `compute`, in the pages of the file.
ReadyModel open_divided(const std::filesystem::path& path, int64_t positions, DType compute, bool keep_blocks,
                        FunctionRef<void(models::LanguageModel& model)> divide);

// Whether linear layers of a published model are held as codes (train/quantized_folder.h): ranks divide these after
// they are loaded.
bool holds_codes(const std::filesystem::path& path);

// The tokenizer alone.
std::unique_ptr<Tokenizer> open_published_tokenizer(const std::filesystem::path& path);

// Whether the path is that of a published model rather than of a run.
bool is_published(const std::filesystem::path& path);

// The name of the file or folder, also of one that is given as "." or with a slash behind it.
std::string name_of_path(const std::filesystem::path& path);

}  // namespace tutti::train
