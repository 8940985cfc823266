// parallelism.expert_parallel_comm_backend: how rows come to the experts of other ranks.
#pragma once

#include <cstdint>

namespace tutti::parallel {
enum class ExpertExchange : uint8_t;
}

namespace tutti::train {

struct Config;
struct ParallelismConfig;

parallel::ExpertExchange expert_exchange(const ParallelismConfig& config);
// UsageError, naming the keys, for what cannot be combined with it where ranks divide experts.
void check_expert_exchange(const Config& config);
// The bytes of a row that travel for each token and expert, in forward and backward of a layer: `row` of its features,
// and its place.
int64_t exchanged_bytes(parallel::ExpertExchange exchange, int64_t row, bool runs_again);

}  // namespace tutti::train
