#include "cli/sampling_flags.h"

#include <CLI/CLI.hpp>

#include "cli/quantize_flags.h"

namespace tutti::cli {

void add_sampling_flags(CLI::App& verb, train::SamplingSettings& s) {
  verb.add_option("--temperature", s.temperature, "0 takes the likeliest token; else as the model's files say, or 0.7")
      ->check(CLI::Range(0.0, 1000.0));
  verb.add_option("--top-k", s.top_k, "Draw from the k likeliest tokens; 0: all; else as the files say, or 40")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--top-p", s.top_p, "Draw from the fewest tokens whose probabilities add up to p; else 1")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--min-p", s.min_p, "Leave out tokens of less than p times the largest probability; else 0")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--repetition-penalty", s.repetition_penalty,
                  "Divides the logits of tokens that have occurred, above 1 against repetition; else 1")
      ->check(CLI::PositiveNumber);
  verb.add_option("--presence-penalty", s.presence_penalty,
                  "Is subtracted once where a token has been written; else 0");
  verb.add_option("--frequency-penalty", s.frequency_penalty,
                  "Is subtracted as often as a token has been written; else 0");
  verb.add_option("--seed", s.seed, "Equal seeds give equal text; else training.seed of a run, or 1");
  const std::map<std::string, generate::SamplingOrder> orders{{"transformers", generate::SamplingOrder::transformers},
                                                              {"llama.cpp", generate::SamplingOrder::llama_cpp}};
  verb.add_option_function<std::string>(
          "--sampling-order", [&s, orders](const std::string& name) { s.order = orders.at(name); },
          "The library whose order of these steps is taken: temperature first or last, penalties over all tokens or 64")
      ->check(CLI::IsMember({"transformers", "llama.cpp"}))
      ->default_str("transformers");
}

void add_model_flags(CLI::App& verb, train::TextModelOptions& model) {
  verb.add_option("--context", model.context,
                  "Tokens of a text at most; else the sequence length of a run, or 4096 of a published model")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 22));
  verb.add_option_function<std::string>(
          "--dtype", [&model](const std::string& name) { model.dtype = name == "bf16" ? DType::bf16 : DType::f32; },
          "In which a published model computes")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->default_str("f32");
  add_cache_dtype_flag(verb, model.cache_dtype);
  verb.add_flag("--compile", model.compile, "Compile the model's forwards; the bits are the same");
  verb.add_flag("--quantized", model.keep_blocks,
                "Compute with the quantized weights of a GGUF file as they are; activations are rounded to 8 bits");
  add_quantize_flags(verb, model.quantize);
}

void add_cache_dtype_flag(CLI::App& verb, std::optional<DType>& dtype) {
  const std::map<std::string, std::optional<DType>> dtypes{
      {"auto", std::nullopt}, {"int8", DType::i8}, {"fp8_e4m3", DType::f8e4m3fn}};
  verb.add_option_function<std::string>(
          "--kv-cache-dtype", [&dtype, dtypes](const std::string& name) { dtype = dtypes.at(name); },
          "Of cached keys and values; int8 and fp8_e4m3 take about a quarter of f32's memory, and change the results")
      ->check(CLI::IsMember({"auto", "int8", "fp8_e4m3"}))
      ->default_str("auto");
}

}  // namespace tutti::cli
