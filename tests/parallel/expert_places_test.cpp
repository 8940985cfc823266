// Gradients of experts have the tree of the tokens of each rank, whatever others have and whatever there is room for.
#include "tutti/parallel/token_places.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/comm/support/forked_ranks.h"
#include "tests/parallel/support/expert_steps.h"
#include "tests/support/message_of.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/sum_to.h"

namespace tutti::parallel {

using namespace expert_steps;

namespace {

// ---- places
// -------------------------------------------------------------------------------------------------------------------

// Ranges of 1, 2, 3, ... tokens, so that the tree names them.
TEST(TokenPlaces, HaveTheTreeOfTheTokensOfARankInAnyRoom) {
  for (int32_t ranges = 0; ranges <= 33; ++ranges) {
    std::vector<int32_t> own;
    for (int32_t i = 0; i < ranges; ++i) own.push_back(i + 1);
    const codegen::ContractionTree expected = codegen::ContractionTree::ranges(own);
    for (int64_t room = ranges; room <= 40; ++room) {
      std::vector<int32_t> counts(static_cast<size_t>(room), 0);
      const std::vector<int64_t> places = TokenPlaces::ranges_of_places(ranges, room);
      ASSERT_EQ(places.size(), own.size());
      for (size_t i = 0; i < own.size(); ++i) {
        ASSERT_TRUE(i == 0 || places[i] > places[i - 1]) << "ascending";
        counts.at(static_cast<size_t>(places[i])) = own[i];
      }
      const codegen::ContractionTree tree = codegen::ContractionTree::ranges(counts);
      ASSERT_EQ(tree.leaf_lengths, expected.leaf_lengths) << ranges << " of " << room;
      ASSERT_EQ(tree.merges, expected.merges) << ranges << " of " << room;
    }
  }
}

TEST(TokenPlaces, AreNumberedByRankAndRange) {
  const SlotOrder order{.slot_of_row = Tensor::of<int64_t>({0, 2, 4, 6, 8, 1, 3, 5, 7, 9}), .slots_per_token = 2};
  const Tensor all = places_of_rows(order, Tensor::of<int64_t>({2, 2, 2, 2}), 3, 6, 2),
               few = places_of_rows(order, Tensor::of<int64_t>({1, 1, 1, 1}), 3, 8, 1);
  const std::vector<int64_t> expected{18, 19, 20, 21, 22, 18, 19, 20, 21, 22},
      expected_of_few{24, 25, 26, 28, 30, 24, 25, 26, 28, 30};
  EXPECT_EQ(std::vector<int64_t>(all.data<int64_t>(), all.data<int64_t>() + 10), expected);
  EXPECT_EQ(std::vector<int64_t>(few.data<int64_t>(), few.data<int64_t>() + 10), expected_of_few);
}

// ---- gradients
// -------------------------------------------------------------------------------------------------------------------

constexpr ExpertExchange kExchanges[] = {ExpertExchange::standard, ExpertExchange::standard_exact,
                                         ExpertExchange::direct_store, ExpertExchange::gather_on_read};
constexpr int64_t kGrains[] = {1, 2, 3, 128};

struct Layout {
  const char* name;
  int ranks, experts, tensor;
  std::vector<int64_t> tokens;
  int64_t max_tokens = 0;
};

class ExpertPlaces : public testing::TestWithParam<Layout> {};

// Tensor-parallel ranks take part with the grains that their parts allow.
bool is_legal(const Layout& l, int64_t grain) {
  if (l.tensor == 1 || grain == 1) return true;
  return l.tensor == 2 && std::all_of(l.tokens.begin(), l.tokens.end(),
                                      [&](int64_t tokens) { return (tokens - tokens / 2) % grain == 0; });
}

TEST_P(ExpertPlaces, HaveTheBitsOfOneRankWithEveryExchange) {
  const Layout& l = GetParam();
  for (const int64_t grain : kGrains) {
    if (!is_legal(l, grain)) continue;
    const TokenGrainScope scope(grain);
    for (const ExpertExchange exchange : kExchanges) {
      SCOPED_TRACE(fmt::format("grain {}, exchange {}", grain, static_cast<int>(exchange)));
      for (const bool recomputes : {false, true})
        expect_one_rank({.name = l.name,
                         .ranks = l.ranks,
                         .experts = l.experts,
                         .tensor = l.tensor,
                         .exchange = exchange,
                         .recomputes = recomputes,
                         .tokens = l.tokens,
                         .max_tokens = l.max_tokens});
    }
  }
}

const Layout kLayouts[] = {
    {"Ep2WithRoom", 2, 2, 1, {5}, 8},
    {"Ep4WithRoom", 4, 4, 1, {11}, 100},
    {"Ep2Unequal", 2, 2, 1, {9, 5}, 9},
    {"Ep4UnequalOrNone", 4, 4, 1, {9, 0, 5, 1, 0, 13, 0, 7}, 13},
    {"Dp3Ep2Unequal", 6, 2, 1, {5, 9, 0, 3}, 12},
    {"Tp2", 2, 1, 2, {9}},
    {"Tp2Ep2", 2, 2, 2, {9}},
    {"Tp4Ep4", 4, 4, 4, {9}},
    {"Tp4Ep2", 4, 2, 4, {13}},
    {"Tp4Ep4FewerTokensThanRanks", 4, 4, 4, {3}},
    {"Dp2Tp2Ep4", 4, 4, 2, {11}},
    {"Dp2Tp2Ep4UnequalWithRoom", 4, 4, 2, {11, 7}, 32},
    {"Dp2Tp2Ep4UnequalOrNone", 4, 4, 2, {15, 0, 3}, 9},
};
INSTANTIATE_TEST_SUITE_P(Layouts, ExpertPlaces, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

// The same among processes. What one rank does is computed in each of them, for no threads may run when they are
// forked.
TEST(ExpertPlacesOfProcesses, HaveTheBitsOfOneRank) {
  const Layout layouts[] = {kLayouts[2], kLayouts[3], kLayouts[11]};
  for (const Layout& l : layouts) {
    for (const comm::ForkedResult& rank : comm::run_world(l.ranks, [&](comm::ProcessGroup& world) {
           for (const int64_t grain : {1, 128}) {
             if (!is_legal(l, grain)) continue;
             const TokenGrainScope scope(grain);
             Values expected;
             for (const ExpertExchange exchange : kExchanges) {
               const Case c{.name = l.name,
                            .ranks = l.ranks,
                            .experts = l.experts,
                            .tensor = l.tensor,
                            .exchange = exchange,
                            .tokens = l.tokens,
                            .max_tokens = l.max_tokens};
               if (expected.empty())
                 expected = step_of({.name = "one", .ranks = 1, .experts = 1, .tokens = l.tokens}, world);
               const std::string found = difference(step_of(c, world), expected);
               TUTTI_CHECK(found.empty(), "{}, grain {}, exchange {}: {}", l.name, grain, static_cast<int>(exchange),
                           found);
             }
           }
         }))
      EXPECT_TRUE(rank.succeeded()) << rank.error;
  }
}

// ---- what is refused
// -------------------------------------------------------------------------------------------------------------------

// Without a common numbering, rows would come to experts of others.
TEST(ExpertPlaces, RanksOfOtherGrainsAreAnErrorOnAllRanks) {
  for (const ExpertExchange exchange : kExchanges) {
    for (const bool is_later : {false, true}) {
      comm::run_ranks(2, [&](comm::ProcessGroup& world) {
        const dist::Mesh mesh = dist::init_device_mesh("cpu", {2}, {.names = {"ep"}});
        seed_all(11);
        nn::MoE layer(options());
        expert_parallel(layer, mesh, {.exchange = exchange});
        nn::initialize(layer);
        const auto forward = [&](int64_t grain) {
          const TokenGrainScope scope(grain);
          return message_of([&] { layer.forward(zeros({8, kDim})); });
        };
        if (is_later) TUTTI_CHECK(forward(4) == "no error", "the first forward");
        const std::string said = forward(world.rank() == 0 ? 4 : 2);
        TUTTI_CHECK(said.find(": rank 0 of those that divide experts has ranges of 4 tokens, and rank 1 of 2; give all "
                              "ranks the same numerics.token_grain") != std::string::npos,
                    "exchange {}, later {}: {}", static_cast<int>(exchange), is_later, said);
        const std::string after = forward(4);
        TUTTI_CHECK(after == "no error", "exchange {}, later {}: the next forward: {}", static_cast<int>(exchange),
                    is_later, after);
      });
    }
  }
}

// The tree over ranges of tokens is that of one rank where ranks have nodes of it.
TEST(ExpertPlaces, PartsThatAreNoNodesOfTheTreeAreRefused) {
  comm::run_ranks(4, [&](comm::ProcessGroup&) {
    const dist::Mesh tensor = dist::init_device_mesh("cpu", {4}, {.names = {"tp"}});
    nn::MoE layer(options());
    expert_parallel(layer, tensor);
    parallelize_module(layer, tensor, ParallelPlan{});
    nn::initialize(layer);
    const auto forward = [&](int64_t tokens, int64_t grain, dist::Cut cut) {
      const TokenGrainScope scope(grain);
      return message_of([&] {
        layer.forward(dist::distribute_tensor(zeros({tokens, kDim}), tensor, {dist::shard(0)},
                                              {.layout = {.cut = cut}, .src_data_rank = -1}));
      });
    };
    const auto halved = dist::Cut::halving, chunks = dist::Cut::chunk;
    EXPECT_EQ(forward(24, 4, halved),
              "MoE: rank 0 of 4 tensor-parallel ranks has the tokens [0, 6) of 24, where a node of the tree over "
              "tokens, in ranges of numerics.token_grain = 4, has [0, 8), so "
              "the gradients of experts would be summed in another order than on one rank; the largest number of ranks "
              "for these tokens is 2, or use batches of a multiple of "
              "16 tokens");
    EXPECT_NE(forward(8, 4, halved).find("the largest number of ranks for these tokens is 2,"), std::string::npos)
        << forward(8, 4, halved);
    for (const auto& [tokens, grain] : {std::pair<int64_t, int64_t>{15, 4}, {16, 4}, {9, 1}, {3, 1}, {1, 128}})
      EXPECT_EQ(forward(tokens, grain, halved), "no error") << tokens;
    // Parts of chunks begin where ranges do, and are no nodes: 2, 2, 1, 0 of 5, and 10, 10, 10, 7 of 37.
    EXPECT_NE(forward(5, 1, chunks)
                  .find("rank 1 of 4 tensor-parallel ranks has the tokens [2, 4) of 5, where a node of the tree over "
                        "tokens, in ranges of numerics.token_grain = 1, has [2, 3)"),
              std::string::npos)
        << forward(5, 1, chunks);
    EXPECT_NE(forward(5, 1, chunks).find("the largest number of ranks for these tokens is 2,"), std::string::npos)
        << forward(5, 1, chunks);
    EXPECT_NE(forward(37, 2, chunks).find("has the tokens [10, 20) of 37"), std::string::npos)
        << forward(37, 2, chunks);
    EXPECT_NE(forward(37, 2, chunks).find("the largest number of ranks for these tokens is 1,"), std::string::npos)
        << forward(37, 2, chunks);
    EXPECT_EQ(forward(16, 2, chunks), "no error");
    const NoGradScope no_grad;
    EXPECT_EQ(forward(24, 4, halved), "no error");
  });
}

TEST(ExpertPlaces, TreesOfHalvesHaveNoThreeParts) {
  comm::run_ranks(3, [&](comm::ProcessGroup&) {
    const dist::Mesh tensor = dist::init_device_mesh("cpu", {3}, {.names = {"tp"}});
    nn::MoE layer(options());
    parallelize_module(layer, tensor, ParallelPlan{});
    nn::initialize(layer);
    const TokenGrainScope scope(4);
    EXPECT_EQ(
        message_of([&] {
          layer.forward(dist::distribute_tensor(zeros({12, kDim}), tensor, {dist::shard(0)}, {.src_data_rank = -1}));
        }),
        "MoE: 3 tensor-parallel ranks divide 12 tokens, whose tree has halves, so the gradients of experts would be "
        "summed in another order than on one rank; the largest number of ranks for these "
        "tokens is 1; numbers are powers of two");
  });
}

}  // namespace
}  // namespace tutti::parallel
