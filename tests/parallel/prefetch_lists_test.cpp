// set_modules_to_forward_prefetch and set_modules_to_backward_prefetch: which gathers start ahead, in which order, and
// the memory that they take.
#include "tests/parallel/support/chain.h"
#include "tutti/runtime/size_class.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kBlocks = 4;

TEST(PrefetchLists, StartGathersAheadInTheirOrder) {
  comm::run_ranks(
      2,
      [&](comm::ProcessGroup& group) {
        ShardedChain chain(group);
        chain.look_two_ahead();
        const std::vector<std::string> expected{"start (the model)",
                                                "end",
                                                "start (blocks.0)",
                                                "end",
                                                "start (blocks.1)",
                                                "start (blocks.2)",  // forward of block 0
                                                "end",
                                                "start (blocks.3)",  // of block 1, whose second successor is on its way
                                                "end",
                                                "end",
                                                "start (blocks.3)",
                                                "end",
                                                "start (blocks.2)",
                                                "start (blocks.1)",  // backward of block 3
                                                "end",
                                                "start (blocks.0)",
                                                "end",
                                                "end"};
        for (int round = 0; round < 2; ++round) {  // the lists need no round before
          Profiler profiler;
          TUTTI_CHECK(profiler.start({.filter = TraceFilter::this_rank, .memory = false}).ok(), "no session");
          if (round == 1) chain.shards->abandon();  // so that the parameters stay
          chain.run();
          profiler.stop();
          std::vector<std::string> found = gathers_in(profiler.trace());
          std::vector<std::string> wanted = expected;
          if (round == 1) wanted.erase(wanted.begin(), wanted.begin() + 2);  // the root keeps its copies
          TUTTI_CHECK(found == wanted, "round {}: {}; expected {}", round, fmt::join(found, ", "),
                      fmt::join(wanted, ", "));
        }
      },
      {.transport = "gloo"});
}

// A block that is whole takes its copy, one on its way what comes in and what this rank brings, which the transport may
// hold until its next call.
TEST(PrefetchLists, TakeTheMemoryOfTheGroupsThatTheyName) {
  comm::run_ranks(2,
                  [&](comm::ProcessGroup& group) {
                    ShardedChain chain(group);
                    chain.look_two_ahead();
                    const int64_t part = block_bytes(kWidth * kWidth / 2 * static_cast<int64_t>(sizeof(float))),
                                  whole = block_bytes(kWidth * kWidth * static_cast<int64_t>(sizeof(float)));
                    int64_t before = 0;
                    std::vector<int64_t> held;
                    chain.root->unshard();
                    before = held_bytes();
                    for (nn::Child<nn::Linear>& block : *chain.model.blocks)
                      block->forward_hooks().before(
                          [&](const nn::Module&, std::vector<Tensor>&) { held.push_back(held_bytes() - before); });
                    chain.run();
                    std::vector<int64_t> expected;
                    for (int64_t i = 0; i < kBlocks; ++i)
                      expected.push_back(whole + std::min<int64_t>(2, kBlocks - 1 - i) * 3 * part);
                    for (size_t i = 0; i < expected.size(); ++i)
                      TUTTI_CHECK(held[i] == expected[i] || held[i] == expected[i] + part, "{} bytes; expected {}",
                                  fmt::join(held, ", "), fmt::join(expected, ", "));
                    TUTTI_CHECK(held_bytes() == before, "{} bytes are left after backward", held_bytes() - before);
                  },
                  {.transport = "gloo"});
}

TEST(PrefetchLists, WhatNobodyReadsIsDroppedWithTheRound) {
  comm::run_ranks(2,
                  [&](comm::ProcessGroup& group) {
                    ShardedChain chain(group);
                    chain.blocks[0].set_modules_to_forward_prefetch(blocks_of(chain.model, {3}));
                    const NoGradScope no_grad;
                    chain.root->unshard();
                    const int64_t before = held_bytes();
                    nn::call(*(*chain.model.blocks)[0], full({2, kWidth}, 0.5));
                    TUTTI_CHECK(held_bytes() > before, "nothing is on its way");
                    chain.open();
                    TUTTI_CHECK(held_bytes() == before, "{} bytes are left", held_bytes() - before);
                  },
                  {.transport = "gloo"});
}

// Lists of all kinds, and what they are combined with: forward and backward, one ahead and all, the wrong order,
// itself, modules that keep their copies.
TEST(PrefetchLists, ChangeNoBit) {
  Options options;
  options.set_lists = [](Model& model, const std::vector<ShardedModule>& blocks, const ShardedModule& root) {
    nn::Module* const first = &*(*model.blocks)[0];
    nn::Module* const second = &*(*model.blocks)[1];
    root.set_modules_to_forward_prefetch(std::array{second, first});
    root.set_modules_to_backward_prefetch(std::array{second});
    blocks[0].set_modules_to_forward_prefetch(std::array{first, second});
    blocks[1].set_modules_to_backward_prefetch(std::array{first, static_cast<nn::Module*>(&model)});
  };
  for (const int ranks : {2, 3, 5})
    expect_the_bits_of_one_rank(ranks, options, "gloo");  // of 5 ranks only three have a shard in the second round
  const auto changed = [&](auto change) {
    Options other = options;
    change(other);
    return other;
  };
  expect_the_bits_of_one_rank(5, changed([](Options& o) { o.checkpoints = true; }), "gloo");
  expect_the_bits_of_one_rank(3, changed([](Options& o) { o.schedule = Schedule::every_round, o.dtype = DType::bf16; }),
                              "gloo");
  expect_the_bits_of_one_rank(4, changed([](Options& o) { o.reshard = int64_t{2}; }), "gloo");
  expect_the_bits_of_one_rank(3, changed([](Options& o) { o.reshard = false; }), "gloo");
  expect_the_bits_of_one_rank(2, changed([](Options& o) { o.compiled = true; }), "gloo");
  expect_the_bits_of_one_rank(2, changed([](Options& o) { o.evaluates = true; }), "gloo");
  expect_the_bits_of_one_rank(3, options);  // threads, which gather nothing
}

TEST(PrefetchListErrors, NameTheModuleAndThoseThatCanBe) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    ShardedChain chain(group);
    const auto message = [](auto call) -> std::string {
      try {
        call();
      } catch (const UsageError& e) {
        return e.what();
      }
      return "";
    };
    nn::Linear other(2, 2);
    nn::Module* const not_sharded[] = {&*(*chain.model.blocks)[1], &*chain.model.blocks};
    const std::string found = message([&] { chain.root->set_modules_to_forward_prefetch(not_sharded); });
    TUTTI_CHECK(
        found ==
            "set_modules_to_forward_prefetch: module 'blocks' was not sharded by itself, so nothing of its own is "
            "gathered; expected modules of this model that fully_shard() was called for: "
            "'blocks.0', 'blocks.1', 'blocks.2', 'blocks.3', 'the model'. Set lists after the whole model was sharded",
        "{}", found);
    nn::Module* const of_another[] = {&other};
    TUTTI_CHECK(message([&] {
                  chain.root->set_modules_to_backward_prefetch(of_another);
                }).starts_with("set_modules_to_backward_prefetch: module '' was not sharded"),
                "another model");
    nn::Module* const null[] = {nullptr};
    TUTTI_CHECK(message([&] { chain.root->set_modules_to_backward_prefetch(null); }) ==
                    "set_modules_to_backward_prefetch: module 0 of the list is null",
                "null");
  });
}

}  // namespace
}  // namespace tutti::parallel
