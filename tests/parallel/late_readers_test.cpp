// Ranks that read shared copies of parameters late, while an owner writes slowly: with the protocol of publish()
// nothing changes, without it they read what is not there yet. What a save in the background reads late is in
// tests/train/background_saver_test.cpp.
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "tests/parallel/support/sharded_training.h"
#include "tutti/parallel/publish_protocol.h"
#include "tutti/runtime/rank_context.h"

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
  static const std::vector<std::pair<std::string, Options>> all{
      {"block", {}},
      {"recompute", {.checkpoints = true}},
      {"head", {}},
      {"evaluation", {.evaluates = true}},
      {"recompute", {.schedule = Schedule::every_round, .dtype = DType::bf16, .checkpoints = true}},
      {"head", {.dtype = DType::bf16}},
      {"evaluation", {.dtype = DType::bf16, .evaluates = true}}};
  return all;
}

TEST(LateReaders, ChangeNothingWithTheProtocol) {
  const ProtocolScope poison(
      {.poisons = true, .slow_rank = 0, .while_poisoned = [] { std::this_thread::sleep_for(8ms); }});
  for (const auto& [what, options] : readers()) {
    for (const int ranks : {2, 3}) expect_the_bits_of_one_rank(ranks, late(what, options));
  }
}

bool has_nan(const Trained& trained) {
  return std::any_of(trained.losses.begin(), trained.losses.end(),
                     [](uint64_t bits) { return std::isnan(std::bit_cast<double>(bits)); });
}

// Lets rank 1 read something while rank 0 has poisoned it, and no longer: rank 1 waits for the poison, and rank 0 until
// rank 1 comes to its next read.
class Meeting {
 public:
  explicit Meeting(int at_publication) : at_publication_(at_publication) {}
  void hold() {
    if (++publications_ != at_publication_) return;
    is_poisoned_ = true;
    wait_for(has_read_);
  }
  void before_read(bool is_late) {
    if (is_reading_) has_read_ = true;
    if (!is_late || is_reading_) return;
    wait_for(is_poisoned_);
    is_reading_ = true;
  }

 private:
  static void wait_for(const std::atomic<bool>& flag) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!flag) {
      TUTTI_CHECK(std::chrono::steady_clock::now() < deadline, "the ranks have missed each other");
      std::this_thread::sleep_for(100us);
    }
  }
  const int at_publication_;
  int publications_ = 0;
  bool is_reading_ = false;  // of rank 1
  std::atomic<bool> is_poisoned_ = false, has_read_ = false;
};

TEST(LateReaders, SeeThePoisonWithoutIt) {
  for (const auto& [what, given] : readers()) {
    Meeting meeting(what == "evaluation" ? 2 : 1);  // an evaluation begins with a publication of its own
    const ProtocolScope poison({.waits_for_readers = false,
                                .waits_for_writers = false,
                                .poisons = true,
                                .slow_rank = 0,
                                .while_poisoned = [&] { meeting.hold(); }});
    Options options = given;
    bool is_evaluating = false;  // rank 1
    options.before_read = [&, what = std::string_view(what)](std::string_view read) {
      if (RankContext::current().rank() != 1) return;
      if (read == "evaluation") is_evaluating = true;
      meeting.before_read(what == "evaluation" ? is_evaluating && read == "head" : read == what);
      if (read == "head") is_evaluating = false;
    };
    bool is_seen = false;
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const Trained trained = train(&group, options);
      if (group.rank() == 1) is_seen = has_nan(trained);
    });
    EXPECT_TRUE(is_seen) << what;
  }
}

// The owner's next step changes masters that are the copies: who still evaluates would read half of it.
TEST(LateReaders, OfAnEvaluationReadTheStepThatIsUnderWayWithoutIt) {
  const Trained expected = train(nullptr, {.evaluates = true});
  const auto late_losses = [&](std::chrono::milliseconds delay) {
    const Options options = late("evaluation", {.evaluates = true}, delay);
    std::vector<uint64_t> losses;
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      Trained trained = train(&group, options);
      if (group.rank() == 1) losses = trained.losses;
    });
    return losses;
  };
  EXPECT_EQ(late_losses(20ms), expected.losses);
  const ProtocolScope without({.waits_for_readers = false});
  std::vector<uint64_t> seen = expected.losses;
  for (const auto delay : {200ms, 1000ms, 4000ms}) {  // on a busy machine the other rank takes long to finish its step
    if (seen == expected.losses) seen = late_losses(delay);
  }
  EXPECT_NE(seen, expected.losses);
}

}  // namespace
}  // namespace tutti::parallel
