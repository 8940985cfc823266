#include "tutti/train/memory_need.h"

#include "tutti/core/error.h"
#include "tutti/train/run_model.h"

namespace tutti::train {
namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

}  // namespace

MemoryNeed least_memory(const Config& config) {
  const auto model = build_model(config);
  const int64_t moments = config.optimizer.name == "adamw" ? 2 : config.optimizer.momentum > 0 ? 1 : 0;
  const int64_t tokens = config.training.global_batch_tokens / config.numerics.virtual_shards;
  const int64_t item = config.training.mixed_precision_param == "bfloat16" ? 2 : 4;
  // Logits and their gradient, unless the loss is computed from chunks of them.
  const int64_t logits = config.training.loss_max_bytes == 0 ? 2 * 4 * model->vocab_size() : 0;
  // A gradient in f32; and master and moments in f32 and the copy that forward reads when that is in another dtype, of which a rank may have a part.
  const int64_t degree = config.parallelism.data_parallel_shard_degree, parts = degree == -1 ? config.numerics.virtual_shards : degree;
  const int64_t tensor = config.parallelism.tensor_parallel_degree;
  const int64_t divided = 4 * (1 + moments) + (item == 4 ? 0 : item), count = model->parameter_count() / tensor;
  return {.parameters = 4 * count + divided * count / parts, .shard = tokens * (logits + item * model->kept_elements_per_token()) / tensor};
}

void check_memory(const Config& config, int64_t available) {
  const MemoryNeed need = least_memory(config);
  TUTTI_CHECK(need.parameters <= available,
              "model.flavor = '{}' needs at least {:.1f} GiB a rank for weights, gradients and optimizer state; there are {:.1f} GiB of "
              "memory. Use a smaller flavor", config.model.flavor, gib(need.parameters), gib(available));
  TUTTI_CHECK(need.parameters + need.shard <= available,
              "training.global_batch_tokens / numerics.virtual_shards = {} tokens need at least {:.1f} GiB a rank, beside {:.1f} GiB for "
              "the parameters; there are {:.1f} GiB of memory. Lower the one or raise the other",
              config.training.global_batch_tokens / config.numerics.virtual_shards, gib(need.shard), gib(need.parameters), gib(available));
}

}  // namespace tutti::train
