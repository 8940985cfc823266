#include "tutti/train/step/expert_exchange.h"

#include "tutti/parallel/expert_parallel.h"
#include "tutti/train/config/config.h"
#include "tutti/train/config/faults.h"

namespace tutti::train {

using parallel::ExpertExchange;

ExpertExchange expert_exchange(const ParallelismConfig& config) {
  const std::string& name = config.expert_parallel_comm_backend;
  if (name == "standard_exact") return ExpertExchange::standard_exact;
  if (name == "direct_store") return ExpertExchange::direct_store;
  if (name == "gather_on_read") return ExpertExchange::gather_on_read;
  return ExpertExchange::standard;
}

void check_expert_exchange(const Config& config) {
  Faults faults;
  const ExpertExchange exchange = expert_exchange(config.parallelism);
  const std::string& name = config.parallelism.expert_parallel_comm_backend;
  const std::string& transport = config.runtime.transport;
  faults.check(exchange != ExpertExchange::standard_exact || !config.training.compile,
               "parallelism.expert_parallel_comm_backend = {}: it reads on the host how many rows come, which a "
               "compiled step cannot do; set training.compile = false, or standard, direct_store or "
               "gather_on_read, with the same numbers",
               name);
  faults.check(
      exchange < ExpertExchange::direct_store || transport == "auto" || transport == "shm" || transport == "threads",
      "parallelism.expert_parallel_comm_backend = {}: rows are in memory that the ranks share, and with "
      "runtime.transport = '{}' they share none; set runtime.transport = shm or threads, or "
      "the backend standard, with the same numbers",
      name, transport);
  faults.raise();
}

int64_t exchanged_bytes(ExpertExchange exchange, int64_t row, bool runs_again) {
  // Two products of the forward read a token in place, and two of the backward; its output and the two cotangents are
  // stored.
  if (exchange == ExpertExchange::gather_on_read) return runs_again ? 10 * row : 7 * row;
  // Rows go to the experts and back in forward and backward, their places once; a forward that is run again does both
  // once more.
  return runs_again ? 6 * row + 2 * itemsize(DType::i64) : 4 * row + itemsize(DType::i64);
}

}  // namespace tutti::train
