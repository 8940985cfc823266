// Small published models of random weights, as Hugging Face keeps them.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::train {

// config.json and weights of a Llama.
void write_decoder_folder(const std::filesystem::path& folder, const std::string& flavor = "tiny");
// config.json, weights and tokenizer.json of a BERT of 64 positions.
void write_encoder_folder(const std::filesystem::path& folder);

}  // namespace tutti::train
