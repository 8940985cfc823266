// A model that `tutti package` wrote, in its two calls: reading the beginning of a text, and writing one token behind
// keys in the cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/package_bench.h"

namespace tutti::bench {

struct PackagedModelRow {
  std::string call;              // "read" or "write"
  int64_t tokens = 0, keys = 0;  // the tokens of a call, and the keys in the cache before it
  Timing time;
  std::vector<float> logits;  // of the last token
  bool same_bits = false;     // whether the last call had the logits of the first one
};

// Measures both calls in turns. folder: the target of `tutti package`. only: "read" or "write"; "" for both. The text
// is that of benchmark_token(). Reading takes the largest part of a default package, 65 tokens at position 0; writing
// takes one token behind 256 keys.
std::vector<PackagedModelRow> run_packaged_model_bench(const std::string& folder, const std::string& only, int threads,
                                                       double total_ms);

// The token at a position of the text, which others can compute, too.
int32_t benchmark_token(int64_t position, int64_t vocab_size);

// What opening the package takes in this process up to the first logits of a call; "write" meets an empty cache.
PackageOpening open_packaged_model_once(const std::string& folder, const std::string& call, int threads);

}  // namespace tutti::bench
