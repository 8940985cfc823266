#include "tutti/job/host/undo_record.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <csignal>
#include <numeric>
#include <vector>

#include "tests/job/support/forked.h"

namespace tutti::comm {
namespace {

constexpr int64_t kBytes = 4096;

struct SharedPages {
  SharedPages()
      : at(static_cast<std::byte*>(
            mmap(nullptr, 16 * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedPages() { munmap(at, 16 * kBytes); }
  std::span<std::byte> page(int i) const { return {at + i * kBytes, static_cast<size_t>(kBytes)}; }
  std::byte* at;
};

TEST(UndoRecord, RestoresWhatItHasSaved) {
  SharedPages pages;
  UndoRecord record(pages.page(4).data(), 2 * kBytes);
  EXPECT_EQ(record.held(), std::nullopt);
  pages.page(0)[7] = std::byte{1};
  pages.page(1)[9] = std::byte{2};
  const std::vector<std::span<std::byte>> block{pages.page(0), pages.page(1)};
  record.save({.block = 3, .step = 8}, block);
  EXPECT_EQ(record.held(), (UndoRecord::Held{3, 8}));
  pages.page(0)[7] = pages.page(1)[9] = std::byte{99};
  for (int again = 0; again < 2; ++again) {  // as often as it takes
    record.restore(block);
    EXPECT_EQ(pages.page(0)[7], std::byte{1});
    EXPECT_EQ(pages.page(1)[9], std::byte{2});
  }
  record.forget();
  EXPECT_EQ(record.held(), std::nullopt);
}

// A process steps a block (every word becomes its successor) and is killed in the middle of the save, of the write, or
// after it. Whoever comes then restores what is held, and steps a block that was not marked as done: the result is the
// same every time.
TEST(UndoRecord, AWriterThatIsKilledAnywhereLeavesABlockThatCanBeFinished) {
  constexpr int kWords = kBytes / 4;
  for (int moment = 0; moment < 12; ++moment) {
    SharedPages pages;
    auto* const words = reinterpret_cast<uint32_t*>(pages.page(0).data());
    auto* const done = reinterpret_cast<std::atomic<int64_t>*>(pages.page(1).data());
    std::iota(words, words + kWords, 0u);
    const std::vector<std::span<std::byte>> block{pages.page(0)};
    const auto step = [&](int killed_at) {
      UndoRecord record(pages.page(4).data(), kBytes);
      if (killed_at == 0) raise(SIGKILL);
      record.save({.block = 0, .step = 1}, block);
      for (int i = 0; i < kWords; ++i) {
        if (killed_at >= 1 && killed_at < 10 && i == kWords * killed_at / 10) raise(SIGKILL);
        words[i] += 1;
      }
      if (killed_at == 10) raise(SIGKILL);
      done->store(1);
      if (killed_at == 11) raise(SIGKILL);
    };
    const std::vector<int> statuses = run_in_processes(1, [&](int) { step(moment); });
    ASSERT_TRUE(WIFSIGNALED(statuses[0])) << moment;
    if (done->load() != 1) {
      UndoRecord record(pages.page(4).data(), kBytes);
      if (record.held() == UndoRecord::Held{0, 1}) record.restore(block);
      step(-1);
    }
    for (uint32_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], i + 1) << "killed at " << moment;
  }
}

}  // namespace
}  // namespace tutti::comm
