// When the result of a functional collective is waited for, by whom, and what becomes of those that nobody reads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/comm/support/functional_samples.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/functional/async_result.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm::functional {
namespace {

// A work that ends when told to.
struct ManualWork final : WorkState {
  std::atomic<bool> ended{false};
  std::atomic<int> waits{0};
  std::exception_ptr failure;
  bool advance() override { return ended; }
  bool wait_for(std::chrono::milliseconds limit) override {
    ++waits;
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!ended && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return ended;
  }
  WorkStatus status() const override {
    return !ended ? WorkStatus::in_progress : failure ? WorkStatus::failed : WorkStatus::completed;
  }
  std::exception_ptr exception() const override { return ended ? failure : nullptr; }
  void on_end(std::function<void()>) override {}
  std::vector<Tensor> result() const override { return {}; }
};

class WaitTensor : public ::testing::Test {
 protected:
  std::shared_ptr<ManualWork> pending(const Tensor& t) {
    auto state = std::make_shared<ManualWork>();
    attach(t, Work(state));
    return state;
  }
  RankContext context_{RankContext::Options{}};
  RankContext::Scope scope_{context_};
};

TEST_F(WaitTensor, WaitsForAllWorksOfAStorageOnce) {
  const Tensor t = zeros({4});
  const auto first = pending(t), second = pending(t);
  register_work(t, Work(first));  // known already
  EXPECT_EQ(WorkRegistry::current().size(), 2);
  first->ended = second->ended = true;
  const Tensor same = wait_tensor(t);
  EXPECT_EQ(same.storage().get(), t.storage().get());
  EXPECT_EQ(first->waits, 1);
  EXPECT_EQ(second->waits, 1);
  EXPECT_EQ(WorkRegistry::current().size(), 0);
  wait_tensor(t);
  EXPECT_EQ(first->waits, 1) << "the second wait is nothing";
}

TEST_F(WaitTensor, AnyTensorOfTheStorageWaits) {
  const Tensor t = zeros({4});
  for (const Tensor& alias : {narrow(t, 0, 1, 2), detach(t), t.view_as({1}, {1}, 3)}) {
    const auto work = pending(t);
    work->ended = true;
    wait_tensor(alias);
    EXPECT_EQ(work->waits, 1);
  }
}

TEST_F(WaitTensor, StoragesAreToldApartByIdentityAndNotByAddress) {
  const Tensor empty_a = zeros({0}), empty_b = zeros({0});  // neither has memory
  const auto work = pending(empty_a);
  work->ended = true;
  wait_tensor(empty_b);
  EXPECT_EQ(work->waits, 0);
  wait_tensor(empty_a);
  EXPECT_EQ(work->waits, 1);
}

TEST_F(WaitTensor, AThreadOfAnotherRankFindsTheWork) {
  const Tensor t = zeros({4});
  const auto work = pending(t);
  std::jthread other([&] {
    RankContext context{RankContext::Options{}};
    const RankContext::Scope scope(context);
    wait_tensor(t);
  });
  while (work->waits == 0) std::this_thread::yield();
  EXPECT_TRUE(has_works(t)) << "until it has ended, it is to be waited for";
  work->ended = true;
  other.join();
  EXPECT_FALSE(has_works(t));
}

TEST_F(WaitTensor, OpsViewsAndHostReadsWaitByThemselves) {
  const auto ended = [&](const Tensor& t) {
    const auto work = pending(t);
    work->ended = true;
    return work;
  };
  const Tensor t = ones({1});
  auto work = ended(t);
  const Tensor part = narrow(t, 0, 0, 1);
  EXPECT_EQ(work->waits, 0) << "a view reads nothing";
  EXPECT_EQ(add(part, 1.0).item(), 2.0);
  EXPECT_EQ(work->waits, 1);
  work = ended(t);
  EXPECT_EQ(t.item(), 1.0);
  EXPECT_EQ(work->waits, 1);
  work = ended(t);
  EXPECT_EQ(to_string(detach(t)), "[1.0]");
  EXPECT_EQ(work->waits, 1);
  work = ended(t);
  fill_(t, 5);
  EXPECT_EQ(work->waits, 1) << "a write comes after what the collective writes";
}

TEST_F(WaitTensor, AFailureIsThrownEachTime) {
  const Tensor t = zeros({1});
  const auto work = pending(t);
  work->failure = std::make_exception_ptr(EnvironmentError("rank 3 died"));
  work->ended = true;
  EXPECT_THROW(wait_tensor(t), EnvironmentError);
  EXPECT_THROW(add(t, 1.0), EnvironmentError) << "never values that are not there";
  EXPECT_EQ(WorkRegistry::current().unwaited(), 0) << "the failure was told";
}

TEST_F(WaitTensor, ResultsNobodyAskedForAreLetGo) {
  std::shared_ptr<ManualWork> last;
  for (int i = 0; i < 1000; ++i) {
    last = pending(zeros({1}));
    last->ended = true;
  }
  EXPECT_LE(WorkRegistry::current().size(), 65);
}

// A result that nobody reads must not outlive its rank: what it was made with is gone then.
TEST(WorkRegistryAtExit, UnreadResultsEndWithTheGroup) {
  Tensor unread;
  run_ranks(2, [&](ProcessGroup& group) {
    const Tensor mine = all_reduce(ones({100000}), "sum", group);
    if (group.rank() == 0) unread = mine;
    group.barrier();  // the collective before it has ended
  });
  EXPECT_EQ(add(unread, 1.0).data<float>()[0], 3.0f);
}

TEST(WorkRegistryAtExit, CountsWhatIsLeftOver) {
  ::testing::internal::CaptureStderr();
  {
    RankContext context{RankContext::Options{.rank = 7}};
    const RankContext::Scope scope(context);
    for (int i = 0; i < 3; ++i) register_work(zeros({1}), Work(std::make_shared<ManualWork>()));
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("rank 7: 3 works of functional collectives were never waited for"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 7", text.find("rank 7") + 1), std::string::npos) << "one warning";
  EXPECT_EXIT(
      {
        register_work(zeros({1}), Work(std::make_shared<ManualWork>()));
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "1 works of functional collectives");
}

}  // namespace
}  // namespace tutti::comm::functional
