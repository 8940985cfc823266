#include "bench/model_shard.h"

#include "tutti/models/family.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"

namespace tutti::bench {

ModelShard::ModelShard(const std::string& flavor, int64_t rows, int64_t sequence_length, DType dtype)
    : model(models::flavor_named("qwen3", flavor), sequence_length) {
  if (dtype != DType::f32) model.to(dtype);
  nn::initialize(model);
  parameters = nn::leaves_of(model.named_parameters());
  const int64_t count = rows * sequence_length, vocab = model.config().vocab;
  std::vector<int32_t> positions(static_cast<size_t>(count));
  for (size_t i = 0; i < positions.size(); ++i)
    positions[i] = static_cast<int32_t>(i % static_cast<size_t>(sequence_length));
  batch = {cast(randint(0, vocab, {count}, random_key("tokens")), DType::i32), Tensor::of(positions),
           zeros({count}, DType::i32), rows};
  labels = cast(randint(0, vocab, {count}, random_key("labels")), DType::i32);
  scale = full({count}, 1.0 / static_cast<double>(count));
}

}  // namespace tutti::bench
