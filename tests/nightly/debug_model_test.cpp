// TorchTitan's deterministic loss test with its debug model of a mixture of experts: every layout once with default
// options, and every option once on one layout.
//
// A step takes seconds, so runs are short and their batches small: TUTTI_DEBUG_MODEL_STEPS in the environment chooses
// another number of steps, such as the 20 of the tiny models in tests/cli/moe_training_test.cpp.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

// A layout, and the part of a batch's products that a rank has if the loads of its experts are those of the others.
struct Layout {
  const char *name, *flags;
  double share;
};

#define ROUNDS " --parallelism.data_parallel_schedule=every_round"
#define FSDP4_TP2_EP4                                                                       \
  "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.tensor_parallel_degree=2 " \
  "--parallelism.expert_parallel_degree=4" ROUNDS
#define DISPATCHER " --parallelism.expert_parallel_comm_backend="
constexpr Layout kLayouts[] = {
    {"ep2", "-n 2 --parallelism.expert_parallel_degree=2" ROUNDS, 1.0 / 2},
    {"ep4", "-n 4 --parallelism.expert_parallel_degree=4" ROUNDS, 1.0 / 4},
    {"fsdp2_ep2", "-n 2 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=2" ROUNDS,
     1.0 / 2},
    {"fsdp4_ep2", "-n 4 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=2" ROUNDS,
     1.0 / 4},
    {"fsdp3", "-n 3 --parallelism.data_parallel_shard_degree=3", 1.0 / 2},  // two of the four shards
    {"fsdp4_tp2_ep4", FSDP4_TP2_EP4, 1.0 / 8},
};
constexpr Layout kOptions[] = {
    {"standard_exact", FSDP4_TP2_EP4 DISPATCHER "standard_exact", 1.0 / 8},
    {"direct_store", FSDP4_TP2_EP4 DISPATCHER "direct_store", 1.0 / 8},
    {"gather_on_read", FSDP4_TP2_EP4 DISPATCHER "gather_on_read", 1.0 / 8},
    {"compiled", FSDP4_TP2_EP4 " --training.compile=true", 1.0 / 8},
    {"recomputed", FSDP4_TP2_EP4 " --activation_checkpoint.mode=full", 4.0 / 3 / 8},
};
constexpr Layout kBf16[] = {{"bf16_fsdp4_tp2_ep4", FSDP4_TP2_EP4, 1.0 / 8}};

// Loads differ: a rank may have so many times its share of the rows.
constexpr double kLoads = 1.25;

// All that is kept of a run; a checkpoint has 3.8 GB.
struct Outcome {
  std::vector<std::string> losses, norms, loads;
  std::string digest;  // of parameters and moments, so of the gradients of experts, too
  double product_flops = 0;
};

class DebugModel : public testing::Test {
 protected:
  DebugModel() { work.write("corpus.jsonl", synthetic_corpus(20, 200)); }

  Outcome train(const std::string& name, const std::string& flags) const {
    const char* const steps = std::getenv("TUTTI_DEBUG_MODEL_STEPS");
    const Output output = work.tutti("train " TUTTI_SOURCE_DIR
                                     "/configs/qwen3_moe_debug.toml --quiet --data corpus.jsonl --data.tokenizer=byte "
                                     "--data.validation_fraction=0.05 "
                                     "--training.global_batch_tokens=1024 --lr_scheduler.warmup_steps=1 "
                                     "--validation.every=0 --validation.sample_tokens=0 --checkpoint.every=1000 "
                                     "--training.steps=" +
                                     std::string(steps ? steps : "3") + " --run.name=" + name + " " + flags);
    EXPECT_EQ(output.status, 0) << name << ": " << output.err;
    if (output.status != 0) return {};
    const Outcome outcome{work.metric(name, "loss_hex"), work.metric(name, "grad_norm_hex"),
                          work.metric(name, "experts"), work.digest(name),
                          std::stod(work.metric(name, "product_flops").back())};
    std::filesystem::remove_all(work.folder() / "runs" / name);
    return outcome;
  }

  template <size_t kCount>
  void expect_equal(const Layout (&layouts)[kCount], const std::string& options) const {
    const Outcome one = train("one", options);
    ASSERT_NE(one.digest, "");
    for (const Layout& layout : layouts) {
      const Outcome many = train(layout.name, layout.flags + options);
      EXPECT_EQ(one.losses, many.losses) << layout.name;
      EXPECT_EQ(one.norms, many.norms) << layout.name;
      EXPECT_EQ(one.loads, many.loads) << layout.name;
      EXPECT_EQ(one.digest, many.digest) << layout.name;
      EXPECT_LE(many.product_flops, kLoads * layout.share * one.product_flops)
          << layout.name << ": a rank does more than its part of the work";
    }
  }

  Workplace work;
};

TEST_F(DebugModel, HasTheRunOfOneRankInEveryLayout) { expect_equal(kLayouts, ""); }
TEST_F(DebugModel, HasTheRunOfOneRankWithEveryOption) { expect_equal(kOptions, ""); }
TEST_F(DebugModel, HasTheRunOfOneRankInBf16) { expect_equal(kBf16, " --training.mixed_precision_param=bfloat16"); }

}  // namespace
}  // namespace tutti::test
