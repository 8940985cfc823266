// `tutti bench quantized`: products with weights that stay quantized, in turns with the product of the decoded weights,
// and with a plain read of the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "tutti/core/block_format.h"

namespace tutti::bench {

struct QuantizedProblem {
  std::vector<int64_t> rows = {1, 16, 512};  // of x
  int64_t n = 4096, k = 4096;                // k is a multiple of 256
  std::string only;                          // formats whose name contains this
  int threads = 1;
  bool small = false;  // few elements, to check results and not times
};

struct QuantizedRow {
  std::string format;  // of the weight
  int64_t m = 0;
  Timing time;              // of one product, whose weight is in no cache
  Timing f32;               // of linear() with the decoded weight
  double gops = 0;          // two operations for a multiply-add, at the minimum
  double peak_share = 0;    // of int8_peak_gops() of all threads
  double gbytes_per_s = 0;  // of the weight's bytes, at the minimum
  double read_share = 0;    // of the rate at which the bytes of the weight can be read
  bool verified = true;     // within the rounding of x to 8 bits of the product of decoded weights
};

// On the current pool. UsageError for a k that is no multiple of 256, and for a format that does not exist.
std::vector<QuantizedRow> run_quantized_bench(const QuantizedProblem& problem);

}  // namespace tutti::bench
