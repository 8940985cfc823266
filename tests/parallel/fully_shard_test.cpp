// fully_shard: losses, gradients and weights with the bits of one rank that shards nothing, whatever the number of
// ranks and options.
#include "tutti/parallel/fully_shard.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "tests/parallel/support/sharded_training.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/hooks.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/reduction.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

TEST(FullyShard, HasTheBitsOfOneRankOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) expect_the_bits_of_one_rank(ranks, {});
}

TEST(FullyShard, HasThemWithEitherScheduleAndUnderOverlap) {
  for (const int ranks : {2, 3}) {
    expect_the_bits_of_one_rank(ranks, {.schedule = Schedule::every_round});
    expect_the_bits_of_one_rank(ranks, {.overlap = Overlap::backward});
    for (const int64_t buffers : {1, 4})
      expect_the_bits_of_one_rank(ranks, {.overlap = Overlap::backward, .input_buffers = buffers});
  }
}

TEST(FullyShard, HasThemWithReplicas) {
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    expect_the_bits_of_one_rank(4, {.replicas = 2, .schedule = schedule});
    expect_the_bits_of_one_rank(6, {.replicas = 2, .schedule = schedule});
    expect_the_bits_of_one_rank(6, {.replicas = 3, .schedule = schedule});
  }
}

TEST(FullyShard, HasThemWhereAnotherDimIsCut) {
  for (const int ranks : {2, 3}) expect_the_bits_of_one_rank(ranks, {.dim = 1});
}

TEST(FullyShard, HasThemInBf16AndCompiledAndWithCheckpoints) {
  for (const int ranks : {2, 3}) {
    expect_the_bits_of_one_rank(ranks, {.dtype = DType::bf16});
    expect_the_bits_of_one_rank(ranks, {.compiled = true});
    expect_the_bits_of_one_rank(ranks, {.dtype = DType::bf16, .compiled = true});
    expect_the_bits_of_one_rank(ranks, {.checkpoints = true});
    expect_the_bits_of_one_rank(ranks, {.compiled = true, .checkpoints = true});
  }
}

TEST(FullyShard, KeepsValuesThatAreThereAndTakesOtherOptimizers) {
  expect_the_bits_of_one_rank(3, {.values_before = true});
  expect_the_bits_of_one_rank(3, {.sgd = true});
}

// Every rank stores what torch.chunk gives it, and reads the pages that all read.
TEST(FullyShard, StoresRowsAndSharesOneCopy) {
  std::vector<const float*> read(3);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    seed_all(5);
    Model model;
    const FullyShardOptions options{.mesh = mesh_for(group, 1)};
    const ShardedModule block = fully_shard(*(*model.blocks)[0], options);
    EXPECT_EQ(block.parameters(),
              (std::vector<std::string>{"blocks.0.norm.weight", "blocks.0.up.weight", "blocks.0.up.bias",
                                        "blocks.0.down.weight", "blocks.0.down.bias"}));
    const ShardedModule root = fully_shard(model, options);
    EXPECT_EQ(root.parameters()[1], "embed.weight");
    nn::initialize(model);
    const Tensor up = (*model.blocks)[0]->up->weight.stored();
    EXPECT_EQ(up.extents(), (Extents{group.rank() < 2 ? 3 : 1, kDim})) << "7 rows over 3 ranks";
    EXPECT_EQ(model.frozen.stored().numel(), group.rank() == 0 ? 1 : 0);
    EXPECT_TRUE(root.is_shared());
    EXPECT_LT(root.all_stored_bytes(), root.all_copy_bytes() / 2);
    // A write through one rank's mapping is what the others read.
    const Tensor leaf = model.embed->weight.use();
    EXPECT_THROW(fill_(detach(leaf), 0.0), UsageError) << "only the owners write";
    read[static_cast<size_t>(group.rank())] = leaf.data<float>();
    group.barrier();
  });
}

TEST(FullyShard, CopiesFollowTheMaster) {
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    Model model;
    fully_shard(model, {.mesh = mesh_for(group, 1)});
    nn::initialize(model);
    const NoGradScope no_grad;
    const nn::Parameter& p = model.embed->weight;
    const auto sum_is = [&](double expected) {
      double sum = 0;
      const Tensor whole = p.use();
      for (int64_t i = 0; i < whole.numel(); ++i) sum += whole.data<float>()[i];
      if (sum != expected) throw InternalError(fmt::format("the sum is {}, not {}", sum, expected));
    };
    p.assign(full({kVocabulary, kDim}, 2.0));
    sum_is(2.0 * kVocabulary * kDim);
    p.will_change();  // others may read still
    fill_(p.stored(), 3.0);
    sum_is(3.0 * kVocabulary * kDim);
    p.will_change();
    fill_(p.master(), 4.0);
    sum_is(4.0 * kVocabulary * kDim);
  });
}

// Masters lie where the caller says, with the values that are there, cut along either dim; in f32 forward reads that
// memory itself.
TEST(FullyShard, KeepsMastersInTheMemoryThatItIsGiven) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int dim : {0, 1}) {
      std::map<std::string, Tensor> memory;
      Model sizes;
      for (const nn::NamedParameter& p : sizes.named_parameters())
        memory[p.name] = full(to_shape(p.parameter.sizes()), 2.0);
      comm::run_ranks(3, [&](comm::ProcessGroup& group) {
        Model model;
        model.to(dtype);
        fully_shard(
            model,
            {.mesh = mesh_for(group, 1),
             .shard_dim = [dim](const nn::NamedParameter& p) { return std::min(dim, p.parameter.sizes().ndim() - 1); },
             .memory = [&](const nn::NamedParameter& p) { return memory.at(p.name); }});
        const NoGradScope no_grad;
        const nn::Parameter& p = model.embed->weight;
        const auto value_is = [&](double expected) {
          const double sum = tutti::sum(cast(p.use(), DType::f32)).item();
          if (sum != expected * kVocabulary * kDim)
            throw InternalError(fmt::format("the sum is {}, not {} times {}", sum, expected, kVocabulary * kDim));
        };
        value_is(2.0);
        if (dtype == DType::f32 && dim == 0 && p.use().raw_data() != memory.at("embed.weight").raw_data())
          throw InternalError("forward reads a copy");
        p.will_change();
        fill_(p.stored(), 3.0);
        value_is(3.0);
        group.barrier();
      });
      EXPECT_EQ(tutti::sum(memory.at("embed.weight")).item(), 3.0 * kVocabulary * kDim);
    }
  }
}

// The owners of rows write into the pages that all read, and so wait for those who are behind. The control writes
// without asking.
TEST(FullyShard, OwnersWaitForThoseWhoStillRead) {
  for (const bool asks : {true, false}) {
    double seen = 0;
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      Model model;
      fully_shard(model, {.mesh = mesh_for(group, 1)});
      const NoGradScope no_grad;
      const nn::Parameter& p = model.embed->weight;
      const auto sum = [&] { return tutti::sum(p.use()).item(); };
      p.assign(full({kVocabulary, kDim}, 1.0));
      sum();
      if (group.rank() == 0) {
        if (asks) p.will_change();
        fill_(p.stored(), 2.0);
        group.barrier();
      } else {
        if (asks) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        else group.barrier();  // the other has written
        // The copy itself: a read of the parameter would be a meeting.
        const Tensor whole = p.leaf();
        for (int64_t i = 0; i < whole.numel(); ++i) seen += whole.data<float>()[i];
        if (asks) p.will_change(), group.barrier();
      }
    });
    if (asks) EXPECT_EQ(seen, kVocabulary * kDim);
    else EXPECT_GT(seen, kVocabulary * kDim);
  }
}

// Hooks see the finished gradient, placed as the master, once a step.
TEST(FullyShard, HooksSeeTheGradientOfTheStep) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    seed_all(5);
    Model model;
    fully_shard(model, {.mesh = mesh_for(group, 1)});
    nn::initialize(model);
    const nn::Parameter& p = model.embed->weight;
    int calls = 0;
    register_hook(p.leaf(), [&](const Tensor& g) {
      ++calls;
      if (dist::spec_of(g).id() != dist::spec_of(p.master()).id())
        throw InternalError("the gradient is " + describe(g));
      return mul(g, 0.0);
    });
    Shards shards(2, &group, {p.leaf()});
    const Tensor losses = model.losses(numbers(0, group.rank(), 0), numbers(0, group.rank(), 5), false);
    shards.open(group.rank()).backward(losses);
    const ShardSums sums = shards.finish();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(sums.squares.value(), 0.0);
  });
}

template <class Function>
std::string refusal(const Function& function) {
  try {
    function();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "nothing was refused";
}

struct Scalar final : nn::Module {
  Scalar() { scale = register_parameter("scale", {}, nn::Init::ones()); }
  nn::Parameter scale;
};

TEST(FullyShardErrors, NameWhatIsWrongBeforeAnythingChanges) {
  comm::run_ranks(4, [&](comm::ProcessGroup& group) {
    const auto expect = [&](const std::string& message, const std::string& part) {
      if (message.find(part) == std::string::npos)
        throw InternalError(fmt::format("'{}' is not in: {}", part, message));
    };
    Model model;
    const dist::Mesh line = mesh_for(group, 1);
    expect(refusal([&] {
             fully_shard(model, {.mesh = dist::init_device_mesh("cpu", {2, 1, 2}, {.names = {"a", "b", "c"}})});
           }),
           "has 3 dims; expected one, or two");
    expect(refusal([&] { fully_shard(model, {.mesh = dist::init_device_mesh("cpu", {2, 2})}); }),
           "two dims without names; name them");
    expect(
        refusal([&] { fully_shard(model, {.mesh = line, .shard_dim = [](const nn::NamedParameter&) { return 1; }}); }),
        "it has no dim 1 to cut");
    expect(refusal([&] {
             Model other;
             fully_shard(other, {.mesh = line}).set_prefetch(-1);
           }),
           "expected 0 or more");
    Scalar scalar;
    expect(refusal([&] { fully_shard(scalar, {.mesh = line}); }),
           "parameter 'scale' is a scalar, which cannot be divided; give it the sizes [1]");
    fully_shard(model, {.mesh = line});
    expect(refusal([&] { fully_shard(model, {.mesh = line}); }), "was sharded before; call it once per module");
    expect(refusal([&] { model.to(DType::bf16); }), "choose the dtype of use before fully_shard()");
    expect(refusal([&] { Shards(8, nullptr, {model.embed->weight.leaf()}); }), "gradients are added over one rank");
    nn::initialize(model);
    const auto sgd = optim::make_sgd({{"embed.weight", model.embed->weight}});
    expect(refusal([&] { sgd->step({{ones({kVocabulary, kDim})}}, 0.1); }),
           "both must be placed alike, as parallel::Shards gives them");
    Shards shards(8, &group, {model.embed->weight.leaf()});
    expect(refusal([&] { shards.set_reduce_scatter_max_input_buffers(0); }), "expected at least 1");
  });
}

}  // namespace
}  // namespace tutti::parallel
