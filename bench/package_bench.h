// Packages beside the compiled functions that they hold: opening, calling, and memory that processes share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct PackageRow {
  std::string function, shape, path;
  int64_t file_bytes = 0, constant_bytes = 0;
  Timing live, packaged;  // calls in turns
  bool same_bits = false;
  std::shared_ptr<const void> opened;  // so that another process shares the pages of the file
};

// Packages the functions for this processor in `folder` and measures their calls, whose results are compared. only:
// the name of one of them; "" for all. total_ms: how long the calls of each are measured.
std::vector<PackageRow> run_package_bench(const std::string& folder, const std::string& only, int threads,
                                          double total_ms);

// What opening a package and calling it once takes in this process, which has opened none before.
struct PackageOpening {
  double open_ms = 0, first_ms = 0;  // the latter from before open() to the result
  // Pages of the file that are in the memory of this process, and its part of them, where those that n processes have
  // count 1 / n.
  int64_t rss_bytes = 0, pss_bytes = 0;
};
PackageOpening open_package_once(const std::string& path, int threads);

// Adds the pages of the file in this process.
void add_pages(const std::string& path, PackageOpening& opening);

}  // namespace tutti::bench
