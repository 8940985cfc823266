// The rows of `tutti bench strict` while they are measured. Private to strict_*.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/strict_bench.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::bench {

// A way without an order, which leaves its result in memory that it was given.
struct Baseline {
  std::string name;
  std::function<void()> run;
};

class StrictRows {
 public:
  explicit StrictRows(const StrictCase& problem) : problem_(problem) {}

  bool wanted(const char* op) const { return std::string(op).find(problem_.only) != std::string::npos; }
  int64_t size(int64_t full, int64_t small) const { return problem_.small ? small : full; }

  // The op and each baseline in turns, so that all meet the same noise; the fastest baseline stands in the row.
  void add(const char* op, const std::string& shape, double bytes, double flops, const std::function<Tensor()>& strict,
           const Tensor& free_result, const std::vector<Baseline>& baselines);

  std::vector<StrictRow> rows;

 private:
  StrictCase problem_;
};

inline Tensor strict_operand(const Shape& sizes, double low = -1.0, double high = 1.0) {
  return uniform(sizes, random_key("bench"), low, high);
}

inline void for_rows(int64_t rows, FunctionRef<void(int64_t)> body) {
  ThreadPool::current().parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

// Matrix products and attention. In strict_products.cpp.
void add_strict_products(StrictRows& bench);

}  // namespace tutti::bench
