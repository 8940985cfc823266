// The angles by which rotary positions turn queries and keys, and how published models stretch them for longer texts.
//
// Head dim D; the pair (i, i + D/2) of a token at position p turns by p * f_i. Without scaling f_i = theta^(-2i / D).
// Sources: Su et al. 2021; Chen et al. 2023 (linear); Peng et al. 2023 (YaRN); the published code of Llama 3.1 and of
// Gemma 4 (proportional).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/ops/rope.h"

namespace tutti::models {

// Each kind reads the numbers below that name it.
enum class RopeType : uint8_t { plain, linear, llama3, yarn, proportional };

struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000;
  double factor = 1;                                 // all but plain: by which positions are stretched
  int64_t original_positions = 0;                    // llama3, yarn: positions before stretching
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3: between which wavelengths the two blend
  double beta_fast = 32, beta_slow = 1;              // yarn: the turns between which the two blend
  bool truncate = true;                              // yarn: the borders of the blend are whole dims
  // yarn: cosines and sines are multiplied by it; without it by 0.1 ln(factor) + 1.
  std::optional<double> attention_factor = {};
  // proportional: the part of the pairs that turn, as the first ones of all; f_i of the others is 0.
  double rotary_factor = 1;
  // The frequencies are divided by them, one for each pair; empty: by nothing. GGUF files describe llama3 so.
  std::vector<double> divisors = {};
  bool operator==(const RopeConfig&) const = default;
};

// The name in published files: "default" for plain, "linear", "llama3", "yarn", "proportional".
std::string name_of(RopeType type);
// The type of that name; nothing for one that is not computed here.
std::optional<RopeType> rope_type_named(std::string_view name);

// The D/2 frequencies f_i in radians per position.
std::vector<double> rope_frequencies(const RopeConfig& config, int64_t head_dim);
// By which cosines and sines are multiplied: 1 but for yarn.
double rope_attention_factor(const RopeConfig& config);
// Cosines and sines for positions 0 to positions - 1, computed in f64 and rounded to f32.
RopeTable rope_table(const RopeConfig& config, int64_t positions, int64_t head_dim);

}  // namespace tutti::models
