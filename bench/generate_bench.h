// `tutti bench generate`: tokens per second of the engine, with the rows of llama.cpp's llama-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/core/dtype.h"
#include "tutti/nn/quantize.h"

namespace tutti::bench {

struct GenerateRow {
  std::string test;  // "pp512", "tg128", "tg128 @ d512", "tg128 x 16"
  int64_t prompt = 0, generated = 0, depth = 0, requests = 1;
  double avg_ts = 0, stddev_ts = 0;  // tokens per second over the repeats
  std::vector<double> samples_s;     // seconds of each repeat
  // The bandwidth of decoding: the bytes of weights, keys and values that each step reads, by the time that it takes.
  double gbytes_per_s = 0;
  double over_one = 0;  // tokens per second by those of one request of the same length and depth; 0: not measured
};

struct GenerateProblem {
  // A published model, a folder of Hugging Face's or a GGUF file; or "family/flavor" with random weights.
  std::string model = "qwen3/0.6B";
  std::vector<int64_t> prompts = {512}, generated = {128}, depths = {0}, requests = {1};
  int threads = 1, repeats = 5;
  DType dtype = DType::f32;                       // of the weights and of what is computed, f32 or bf16
  bool compile = false;                           // the forwards
  bool keep_blocks = false;                       // quantized weights of a GGUF file stay as they are
  std::optional<nn::Quantization> quantize = {};  // of the linear layers: a kind that needs no recorded inputs
  std::optional<DType> cache_dtype = {};          // as EngineOptions::cache_dtype
};

struct GenerateResult {
  std::vector<GenerateRow> rows;
  int64_t parameters = 0;
  int64_t cache_bytes_per_token = 0;
  double weights_mbytes = 0, cache_mbytes = 0, rss_mbytes = 0;  // rss: of the process at the end
};

// ppN reads N random tokens into an empty cache, in batches of 512; tgN writes N tokens one by one behind `depth`
// random ones, the likeliest each time; "x R" does that for R requests at once, and counts the tokens of all. One
// warm-up, then the repeats. UsageError for a model that does not exist.
GenerateResult run_generate_bench(const GenerateProblem& problem);

}  // namespace tutti::bench
