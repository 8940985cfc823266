// Training for a long time takes no more memory than training for a short one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/train/support/tiny_model.h"
#include "tutti/autograd/backward.h"
#include "tutti/models/family.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/shards.h"
#include "tutti/train/data/batch.h"
#include "tutti/train/step/shard_step.h"

namespace tutti::train {
namespace {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Usage {
  int64_t current, reserved, resident;
};

class TinyRun {
 public:
  TinyRun()
      : optimizer_(optim::make_adamw(tiny_.model.named_parameters())),
        data_(tiny_dataset(20, 8)),
        shards_(2, nullptr, parameters()) {}

  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  Usage usage() const {
    const MemoryStatistics s = RankContext::current().allocator().statistics();
    return {s.current_bytes, s.reserved_bytes, resident_bytes()};
  }

 private:
  std::vector<Tensor> parameters() const { return nn::leaves_of(optimizer_->parameters()); }
  void step() {
    for (size_t shard = 0; shard < shards_.local_shards().size(); ++shard) {
      const TokenRows rows = data_.training_rows(row_++, 1);
      // Blocks are recomputed on every second step, so both ways through the tape are taken.
      const Tensor losses =
          cross_entropy(tiny_.model.forward(to_batch(rows), {.checkpoint_blocks = row_ % 4 < 2}), labels_of(rows));
      backward(losses, full_like(losses, 0.0625), {.sink = shards_.sink()});
      shards_.add(losses);
    }
    const parallel::ShardSums sums = shards_.finish();
    optimizer_->step(sums.gradients, 1e-3, optim::clip_scale(optim::norm_of(sums.squares), 1.0));
  }

  TinyModel tiny_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  TokenDataset data_;
  parallel::Shards shards_;
  int64_t row_ = 0;
};

TEST(Memory, DoesNotGrowOverAThousandSteps) {
  RankContext::current().set_threads(1);
  TinyRun run;
  run.steps(100);
  const Usage early = run.usage();
  run.steps(900);
  const Usage late = run.usage();
  EXPECT_EQ(late.current, early.current);
  EXPECT_EQ(late.reserved, early.reserved);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which keep freed memory themselves
  // The C library's heap may keep a few pages more; one kept tape of a step would be 100 KiB, of all steps 90 MiB.
  EXPECT_LE(late.resident, early.resident + (2 << 20));
#endif
}

// The highest memory of forward and backward of 512 tokens through the quickstart's model, beyond what was there
// before.
int64_t peak_of_a_shard(bool compiled) {
  models::Decoder model(models::flavor_named("qwen3", "quickstart"), 256);
  nn::initialize(model);
  parallel::Shards shards(1, nullptr, nn::leaves_of(model.named_parameters()));
  const ShardStep step(model, *shards.sink(), {}, compiled);
  std::vector<int32_t> ids(512), positions(512);
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(i * 37 % 2048), positions[i] = static_cast<int32_t>(i % 256);
  Allocator& allocator = RankContext::current().allocator();
  int64_t peak = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t before = allocator.statistics().current_bytes;
    allocator.reset_peak();
    shards.add(step.run({Tensor::of(ids), Tensor::of(positions), zeros({512}, DType::i32), 2}, Tensor::of(ids),
                        full({512}, 0.001)));
    peak = allocator.statistics().peak_bytes - before;
    shards.finish();
  }
  return peak;
}

TEST(Memory, OfACompiledShardIsNotAboveThatOfAnEagerOne) {
  const int64_t eager = peak_of_a_shard(false), compiled = peak_of_a_shard(true);
  EXPECT_GT(eager, 20 << 20);
  EXPECT_LE(compiled, eager);
}

}  // namespace
}  // namespace tutti::train
