// Ranks that read shared copies of parameters late, while an owner writes slowly: with the protocol of publish() nothing changes, without it they read what is not
// there yet. What a save in the background reads late is in tests/train/background_saver_test.cpp.
#include <cmath>
#include <thread>

#include "tests/parallel/support/sharded_training.h"
#include "tutti/parallel/publish_protocol.h"

namespace tutti::parallel {
namespace {

using namespace std::chrono_literals;

struct ProtocolScope {
  explicit ProtocolScope(const PublishProtocol& p) { publish_protocol() = p; }
  ~ProtocolScope() { publish_protocol() = {}; }
};

// Rank 1 reads late, and rank 0 leaves its rows poisoned even longer.
Options late(std::string_view what, const Options& options, std::chrono::milliseconds delay = 2ms) {
  Options o = options;
  o.before_read = [what, delay](std::string_view read) {
    static thread_local bool is_evaluating = false;
    if (read == "evaluation") is_evaluating = true;
    // An evaluation reads its first parameter together with the others, and the last one late.
    const bool is_late = what == "evaluation" ? is_evaluating && read == "head" : read == what;
    if (read == "head") is_evaluating = false;
    if (is_late && RankContext::current().rank() == 1) std::this_thread::sleep_for(delay);
  };
  return o;
}

const std::vector<std::pair<std::string, Options>>& readers() {
  static const std::vector<std::pair<std::string, Options>> all{{"block", {}},
                                                                {"recompute", {.checkpoints = true}},
                                                                {"head", {}},
                                                                {"evaluation", {.evaluates = true}},
                                                                {"recompute", {.schedule = Schedule::every_round, .dtype = DType::bf16, .checkpoints = true}},
                                                                {"head", {.dtype = DType::bf16}},
                                                                {"evaluation", {.dtype = DType::bf16, .evaluates = true}}};
  return all;
}

TEST(LateReaders, ChangeNothingWithTheProtocol) {
  const ProtocolScope poison({.poisons = true, .slow_rank = 0, .poisoned = 8ms});
  for (const auto& [what, options] : readers()) {
    for (const int ranks : {2, 3}) expect_the_bits_of_one_rank(ranks, late(what, options));
  }
}

bool has_nan(const Trained& trained) {
  return std::any_of(trained.losses.begin(), trained.losses.end(), [](uint64_t bits) { return std::isnan(std::bit_cast<double>(bits)); });
}

TEST(LateReaders, SeeThePoisonWithoutIt) {
  const ProtocolScope poison({.waits_for_readers = false, .waits_for_writers = false, .poisons = true, .slow_rank = 0, .poisoned = 40ms});
  for (const auto& [what, options] : readers()) {
    bool is_seen = false;
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const Trained trained = train(&group, late(what, options));
      if (group.rank() == 1) is_seen = has_nan(trained);
    });
    EXPECT_TRUE(is_seen) << what;
  }
}

// The owner's next step changes masters that are the copies: who still evaluates would read half of it.
TEST(LateReaders, OfAnEvaluationReadTheStepThatIsUnderWayWithoutIt) {
  const Options options = late("evaluation", {.evaluates = true}, 30ms);
  const Trained expected = train(nullptr, {.evaluates = true});
  const auto late_losses = [&] {
    std::vector<uint64_t> losses;
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      Trained trained = train(&group, options);
      if (group.rank() == 1) losses = trained.losses;
    });
    return losses;
  };
  EXPECT_EQ(late_losses(), expected.losses);
  const ProtocolScope without({.waits_for_readers = false});
  EXPECT_NE(late_losses(), expected.losses);
}

}  // namespace
}  // namespace tutti::parallel
