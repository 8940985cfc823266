#include "tutti/train/config/data_degrees.h"

#include <string>

#include "tutti/core/error.h"

namespace tutti::train {

DataDegrees data_degrees(const ParallelismConfig& config, int64_t all_ranks) {
  const int64_t tensor = config.tensor_parallel_degree;
  TUTTI_CHECK(all_ranks % tensor == 0,
              "parallelism.tensor_parallel_degree = {} does not divide {} rank{}; start a multiple of {} ranks, or set "
              "another degree",
              tensor, all_ranks, all_ranks == 1 ? "" : "s", tensor);
  const int64_t ranks = all_ranks / tensor;
  const int64_t replicate = config.data_parallel_replicate_degree, shard = config.data_parallel_shard_degree;
  TUTTI_CHECK(replicate != -1 || shard != -1,
              "parallelism.data_parallel_replicate_degree and data_parallel_shard_degree are both -1; one of them can "
              "be the rest of the {} ranks: give the other a number, such as "
              "--parallelism.data_parallel_replicate_degree=1",
              ranks);
  const int64_t given = replicate == -1 ? shard : shard == -1 ? replicate : replicate * shard;
  const bool is_open = replicate == -1 || shard == -1;
  std::string divisors;
  for (int64_t d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) divisors += fmt::format("{}{}", divisors.empty() ? "" : ", ", d);
  }
  TUTTI_CHECK(
      is_open ? ranks % given == 0 : given == ranks,
      "parallelism.data_parallel_replicate_degree = {} and data_parallel_shard_degree = {} do not fit {} rank{}: {}",
      replicate, shard, ranks, ranks == 1 ? "" : "s",
      is_open ? fmt::format("expected one of {}", divisors)
              : fmt::format("their product is {}; set one of them to -1, or start {} ranks", given, given));
  const int64_t expert = config.expert_parallel_degree;
  std::string powers;
  for (int64_t d = 1; d <= all_ranks; d *= 2) {
    if (all_ranks % d == 0) powers += fmt::format("{}{}", powers.empty() ? "" : ", ", d);
  }
  TUTTI_CHECK(all_ranks % expert == 0,
              "parallelism.expert_parallel_degree = {} does not divide {} rank{}; expected one of {}", expert,
              all_ranks, all_ranks == 1 ? "" : "s", powers);
  if (replicate == -1) return {ranks / shard, shard, tensor, expert};
  return {replicate, shard == -1 ? ranks / replicate : shard, tensor, expert};
}

std::string chosen_schedule(const ParallelismConfig& config, bool has_experts) {
  if (config.data_parallel_schedule != "auto") return config.data_parallel_schedule;
  const bool divides_rows = config.expert_parallel_degree > 1 || config.tensor_parallel_degree > 1;
  return has_experts && divides_rows ? "every_round" : "once_a_step";
}

int64_t reshard_degree(const ParallelismConfig& config, int64_t shard, bool is_shared) {
  const std::string& policy = config.fsdp_reshard_after_forward;
  if (policy == "never") return 1;
  if (policy == "default" || policy == "always") return shard;
  const int64_t degree = std::stoll(policy);
  std::string divisors;
  for (int64_t d = 1; d <= shard; ++d) {
    if (shard % d == 0)
      divisors += fmt::format("{}{}{}", divisors.empty() ? "" : ", ", d,
                              d == 1       ? " (never)"
                              : d == shard ? " (default)"
                                           : "");
  }
  TUTTI_CHECK(degree <= shard && shard % degree == 0,
              "parallelism.fsdp_reshard_after_forward = {} does not divide the {} ranks over which parameters are "
              "divided; expected {}",
              degree, shard, divisors);
  TUTTI_CHECK(degree == 1 || degree == shard || !is_shared,
              "parallelism.fsdp_reshard_after_forward = {}: {} ranks read one copy of the parameters in the memory of "
              "their host, gather nothing and "
              "have nothing to give back; expected default, or a runtime.transport between hosts, such as gloo",
              degree, shard);
  return degree;
}

}  // namespace tutti::train
