#include "tutti/train/survival/surviving_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/job/support/forked.h"
#include "tests/support/message_of.h"
#include "tutti/core/error.h"
#include "tutti/train/survival/survival_rules.h"

namespace tutti::train {
namespace {

constexpr int64_t kRows = 300, kColumns = 500;  // three blocks, the last one smaller

std::vector<nn::NamedParameter> parameters(int64_t rows = kRows) {
  return {{"w", nn::Parameter("w", {rows, kColumns}, nn::Init::zeros())},
          {"b", nn::Parameter("b", {7}, nn::Init::zeros())}};
}

// An update that cannot be done twice: the master becomes 3 x master + gradient, the state counts.
void update(const SurvivingState::Piece& piece) {
  for (int64_t i = 0; i < piece.master.numel(); ++i) {
    float* const master = piece.master.data<float>();
    master[i] = 3 * master[i] + piece.gradient.data<float>()[i];
    piece.state[0].data<float>()[i] += 1;
  }
}

void fill(const SurvivingState& state) {
  for (size_t p = 0; p < 2; ++p) {
    for (int64_t i = 0; i < state.master(p).numel(); ++i) {
      state.master(p).data<float>()[i] = static_cast<float>(i % 97);
      state.gradient(p).data<float>()[i] = static_cast<float>(i % 13);
    }
  }
}

void expect_stepped_once(const SurvivingState& state, const std::string& what) {
  int64_t wrong = 0;
  for (size_t p = 0; p < 2; ++p) {
    for (int64_t i = 0; i < state.master(p).numel(); ++i)
      wrong += state.master(p).data<float>()[i] != 3 * static_cast<float>(i % 97) + static_cast<float>(i % 13) ||
               state.state(p, 0).data<float>()[i] != 1;
  }
  EXPECT_EQ(wrong, 0) << what;
}

TEST(SurvivingState, HasABlockOfEachPartOfAParameterAndSharesThemOut) {
  const auto list = parameters();
  const SurvivingState state(comm::JobFile::create(2), list, 2);
  ASSERT_EQ(state.blocks().size(), 4u);
  EXPECT_EQ(state.blocks()[2].end, kRows * kColumns);
  EXPECT_EQ(state.blocks()[0].end, kSurvivalBlock);
  EXPECT_EQ(state.blocks_of(0, 3).begin, 0u);
  for (int r = 1; r < 3; ++r) EXPECT_EQ(state.blocks_of(r, 3).begin, state.blocks_of(r - 1, 3).end);
  EXPECT_EQ(state.blocks_of(2, 3).end, 4u);
  EXPECT_EQ(state.index_of(list[1].parameter), 1);
  EXPECT_EQ(state.index_of(parameters()[0].parameter), -1);
}

TEST(SurvivingState, IsRefusedToRanksWithOtherParameters) {
  const auto job = comm::JobFile::create(2);
  const SurvivingState state(job, parameters(), 1);
  EXPECT_NE(message_of([&] { SurvivingState(job, parameters(kRows - 1), 1); }).find("other parameters"),
            std::string::npos);
}

// A process is killed in the middle of a block, or between blocks; two others restore and finish, of which the first
// one is killed too.
TEST(SurvivingState, WhoeverComesFinishesAStepThatWasCommitted) {
  for (int killed_in = 0; killed_in < 4; ++killed_in) {
    for (const bool half : {false, true}) {
      const auto job = comm::JobFile::create(3);
      SurvivingState state(job, parameters(), 1);
      fill(state);
      state.set_applied(4);
      const auto finish = [&](int slot, int killed_at) {
        for (int s = 0; s < 3; ++s) state.restore(s, 5);
        for (size_t b = 0; b < state.blocks().size(); ++b) {
          state.apply(b, 5, slot, [&](const SurvivingState::Piece& piece) {
            if (static_cast<int>(b) != killed_at) return update(piece);
            const int64_t some = half ? piece.master.numel() / 2 : 0;
            const auto part = [&](const Tensor& t) { return t.view_as({some}, {1}, t.offset()); };
            update({.parameter = piece.parameter,
                    .master = part(piece.master),
                    .gradient = part(piece.gradient),
                    .state = {part(piece.state[0])}});
            raise(SIGKILL);
          });
        }
      };
      const auto statuses = comm::run_in_processes(1, [&](int) { finish(0, killed_in); });
      EXPECT_TRUE(WIFSIGNALED(statuses[0]));
      comm::run_in_processes(1, [&](int) { finish(1, std::min(killed_in + 1, 3)); });
      EXPECT_EQ(comm::run_in_processes(1, [&](int) { finish(2, -1); })[0], 0);
      expect_stepped_once(state, "killed in block " + std::to_string(killed_in));
      for (size_t b = 0; b < state.blocks().size(); ++b) EXPECT_TRUE(state.is_applied(b, 5));
    }
  }
}

}  // namespace
}  // namespace tutti::train
