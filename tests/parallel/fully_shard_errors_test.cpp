// Wrong uses around fully_shard(): every rank gets an error that says what to do, and can go on afterwards.
#include "tests/parallel/support/sharded_training.h"
#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/creation.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/same_call.h"
#include "tutti/parallel/storage_placement.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

void expect_in(const std::string& message, const std::string& part) {
  if (message.find(part) == std::string::npos) throw InternalError(fmt::format("'{}' is not in: {}", part, message));
}

// Over shared pages, and where ranks gather.
void on_ranks(const std::function<void(comm::ProcessGroup&)>& function) {
  for (const int ranks : {2, 3}) {
    for (const char* transport : {"threads", "gloo"}) comm::run_ranks(ranks, function, {.transport = transport});
  }
}

// A step of the whole model, which shows that the ranks can go on.
void train_a_step(comm::ProcessGroup& group, Model& model) {
  nn::initialize(model);
  const auto optimizer = optim::make_adamw(model.named_parameters());
  Shards shards(kShards, &group, nn::leaves_of(optimizer->parameters()));
  for (Shard& shard : shards.step(0))
    shard.backward(model.losses(numbers(0, shard.index(), 0), numbers(0, shard.index(), 5), false));
  shards.finish_step(*optimizer, {.lr = 0.02});
}

TEST(FullyShardErrors, AnOptimizerOfBeforeIsMadeAfterwards) {
  on_ranks([](comm::ProcessGroup& group) {
    for (const bool has_values : {true, false}) {
      seed_all(5);
      Model model;
      if (has_values) nn::initialize(model);
      const std::vector<nn::NamedParameter> embedding{{"embed.weight", model.embed->weight}};
      const auto adamw = optim::make_adamw(embedding), sgd = optim::make_sgd(embedding);
      fully_shard(model, {.mesh = mesh_for(group, 1)});
      nn::initialize(model);
      const Tensor gradient = ones({kVocabulary, kDim});
      for (optim::Optimizer* const optimizer : {adamw.get(), sgd.get()}) {
        const std::string step = message_of([&] { optimizer->step(); });
        expect_in(step,
                  "optimizer step: parameter 'embed.weight' was stored as [13, 10] f32 cpu when the optimizer was "
                  "made, and is stored as [13, 10] f32 cpu [S(0)]");
        expect_in(step, "make the optimizer after fully_shard(), parallelize_module() and whatever else divides");
        TUTTI_CHECK(message_of([&] { optimizer->step({{gradient}}, 0.1); }) == step, "another message");
        TUTTI_CHECK(message_of([&] { optimizer->check_step({{gradient}}, 0.1, 1.0); }) == step, "another message");
        TUTTI_CHECK(optimizer->steps_taken() == 0, "a refused step was counted");
      }
      train_a_step(group, model);
    }
  });
}

TEST(FullyShardErrors, ALeafOfBeforeSaysThatItWasReplaced) {
  on_ranks([](comm::ProcessGroup& group) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Model model;
      model.to(dtype);
      nn::initialize(model);
      const Tensor leaf = model.embed->weight.leaf();
      check_is_current(leaf);
      fully_shard(model, {.mesh = mesh_for(group, 1)});
      TUTTI_CHECK(
          message_of([&] { check_is_current(leaf); }) ==
              "Shards: fully_shard() has sharded parameter 'embed.weight' since its leaf was taken, and forward "
              "reads another leaf now; make Shards after fully_shard()",
          "{}", message_of([&] { check_is_current(leaf); }));
      check_is_current(model.embed->weight.leaf());
    }
  });
}

TEST(FullyShardErrors, ModulesAreShardedFromTheInsideOut) {
  on_ranks([](comm::ProcessGroup& group) {
    const FullyShardOptions options{.mesh = mesh_for(group, 1)};
    Model model;
    fully_shard(*(*model.blocks)[0], options);
    fully_shard(model, options);
    Block& second = *(*model.blocks)[1];
    const std::string block = message_of([&] { fully_shard(second, options); });
    TUTTI_CHECK(block ==
                    "fully_shard: module 'blocks.1' lies in 'the model', which was sharded before it with parameters "
                    "such as 'blocks.1.norm.weight'; go from the inside out: call fully_shard() for the modules inside "
                    "first, and for 'the model' last",
                "{}", block);
    expect_in(message_of([&] { fully_shard(*(*model.blocks)[0]->up, options); }), "module 'up' lies in 'blocks.0'");
    expect_in(message_of([&] { fully_shard(*model.blocks, options); }), "module 'blocks' lies in 'the model'");
    expect_in(message_of([&] { fully_shard(*(*model.blocks)[0], options); }),
              "module 'blocks.0' was sharded before; call it once per module");
    nn::Module* const both[] = {&*model.embed, &second};
    expect_in(message_of([&] { fully_shard(both, options); }), "module 'embed' lies in 'the model'");
    train_a_step(group, model);
  });
}

// A model without parameters of its own.
TEST(FullyShardErrors, AModuleThatOnlyHoldsOthersIsShardedOnceToo) {
  on_ranks([](comm::ProcessGroup& group) {
    const FullyShardOptions options{.mesh = mesh_for(group, 1)};
    nn::ModuleList<nn::Linear> list;
    list.add(3, 3);
    fully_shard(*list[0], options);
    const ShardedModule sharded = fully_shard(list, options);
    expect_in(message_of([&] { fully_shard(list, options); }), "was sharded before; call it once per module");
  });
}

TEST(FullyShardErrors, RanksThatCutOtherDimsAreNamed) {
  on_ranks([](comm::ProcessGroup& group) {
    Model model;
    const dist::Mesh mesh = mesh_for(group, 1);
    const int last = group.size() - 1;
    const auto dim = [&](const nn::NamedParameter& p) { return p.name == "embed.weight" && group.rank() == last; };
    const std::string message = message_of([&] { fully_shard(model, {.mesh = mesh, .shard_dim = dim}); });
    const std::string first = last == 1 ? "rank 0" : "ranks 0, 1";
    TUTTI_CHECK(
        message == fmt::format("fully_shard: the ranks of mesh(dp_shard={}) make different calls: {}: parameter "
                               "'embed.weight' [13, 10] f32, read as f32, cut on dim 0, trained, without "
                               "values; rank {}: parameter 'embed.weight' [13, 10] f32, read as f32, cut on "
                               "dim 1, trained, without values; give all ranks the same modules, options and "
                               "functions",
                               group.size(), first, last),
        "{}", message);
    fully_shard(model, {.mesh = mesh});
    train_a_step(group, model);
  });
}

TEST(FullyShardErrors, RanksThatGiveOtherOptionsAreNamed) {
  on_ranks([](comm::ProcessGroup& group) {
    Model model;
    const dist::Mesh mesh = mesh_for(group, 1);
    const bool is_first = group.rank() == 0;
    const auto refused = [&](nn::Module& module, const FullyShardOptions& options) {
      return message_of([&] { fully_shard(module, options); });
    };
    expect_in(refused(model, {.mesh = mesh, .reshard_after_forward = is_first}),
              fmt::format("rank 0: reshard_after_forward to {} ranks; rank", group.size()));
    expect_in(
        refused(model, {.mesh = mesh,
                        .outer_dp_sharding_strategy = is_first ? OuterDpSharding::optim : OuterDpSharding::no_shard}),
        "rank 0: outer_dp_sharding_strategy optim; rank");
    FullyShardOptions ignoring{.mesh = mesh};
    if (!is_first) ignoring.ignored_params = {model.frozen};
    expect_in(refused(model, ignoring), ": ignored_params 'frozen'");
    Block &one = *(*model.blocks)[0], &other = *(*model.blocks)[1];
    expect_in(refused(is_first ? one : other, {.mesh = mesh}), "rank 0: modules 'blocks.0'; rank");
    nn::Module *const blocks[] = {&one, &other}, *const turned[] = {&other, &one};
    expect_in(message_of([&] { fully_shard(is_first ? std::span(blocks) : std::span(turned), {.mesh = mesh}); }),
              "rank 0: modules 'blocks.0', 'blocks.1'; rank");
    model.frozen.requires_grad_(is_first);
    expect_in(refused(model, {.mesh = mesh}), "rank 0: parameter 'frozen' [1] f32, read as f32, cut on dim 0, trained");
    model.frozen.requires_grad_(false);
    if (is_first) model.embed->weight.set_use_dtype(DType::bf16);
    expect_in(refused(model, {.mesh = mesh}), "parameter 'embed.weight' [13, 10] f32, read as bf16");
    if (is_first) model.embed->weight.set_use_dtype(DType::f32);
    fully_shard(model, {.mesh = mesh});
    train_a_step(group, model);
  });
}

// Only one rank finds its arguments wrong.
TEST(FullyShardErrors, WhatOneRankRefusesAllRefuse) {
  on_ranks([](comm::ProcessGroup& group) {
    Model model;
    const dist::Mesh mesh = mesh_for(group, 1);
    const auto dim = [&](const nn::NamedParameter&) { return group.rank() == 1 ? 2 : 0; };
    const std::string message = message_of([&] { fully_shard(model, {.mesh = mesh, .shard_dim = dim}); });
    const std::string own = "fully_shard: parameter 'frozen' is [1]; it has no dim 2 to cut";
    TUTTI_CHECK(message == (group.rank() == 1 ? own : "fully_shard: rank 1 refuses its arguments: " + own), "{}",
                message);
    fully_shard(model, {.mesh = mesh});
    train_a_step(group, model);
  });
}

// Ranks of a mesh of two dims hear of each other, whichever differ.
TEST(SameCall, ComparesAllRanksOfAMeshOfTwoDims) {
  comm::run_ranks(6, [](comm::ProcessGroup& group) {
    const dist::Mesh mesh = mesh_for(group, 2);
    for (int other = 0; other < 6; ++other) {
      const auto facts = [&] {
        return std::vector<CallFact>{{"this", "is equal"}, {"that", group.rank() == other ? "is not" : "is"}};
      };
      std::string rest;
      for (int r = 0; r < 6; ++r) rest += r == other ? "" : fmt::format("{}{}", rest.empty() ? "" : ", ", r);
      const std::string one = fmt::format("rank {}: that is not", other), many = fmt::format("ranks {}: that is", rest);
      const std::string message = message_of([&] { check_same_call(*mesh, "test", facts); });
      expect_in(message, other == 0 ? one + "; " + many : many + "; " + one);
    }
    const auto longer = [&] { return std::vector<CallFact>(group.rank() == 5 ? 2 : 1, {"fact", "1"}); };
    expect_in(message_of([&] { check_same_call(*mesh, "test", longer); }),
              "test: the ranks of mesh(dp_replicate=2, dp_shard=3) make different calls: ranks 0, 1, 2, 3, 4: nothing "
              "more; rank 5: fact 1");
    check_same_call(*mesh, "test", [] { return std::vector<CallFact>{{"fact", "1"}}; });
    check_same_call(*mesh, "test", [] { return std::vector<CallFact>(); });
  });
}

TEST(SameCall, IsNotAskedOfRanksThatAreSimulated) {
  comm::run_fake_rank(1, 4, [](comm::ProcessGroup& group) {
    Model model;
    const ShardedModule sharded = fully_shard(model, {.mesh = mesh_for(group, 2)});
    TUTTI_CHECK(sharded.stored_bytes() < sharded.copy_bytes(), "{} bytes", sharded.stored_bytes());
  });
}

}  // namespace
}  // namespace tutti::parallel
