// The states of a storage, and what reads of the host do in each.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tutti/core/error.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

// Writes 1, 2, 3 when it is waited for.
struct LateWriter final : PendingWriter {
  void wait(Storage& storage) override {
    ++waits;
    if (!failure.empty()) throw EnvironmentError(failure);
    for (int i = 0; i < 3; ++i) static_cast<float*>(storage.data())[i] = static_cast<float>(i + 1);
    storage.set_pending(nullptr);
  }
  std::atomic<int> waits{0};
  std::string failure;
};

struct Elsewhere final : StoragePlaceholder {
  explicit Elsewhere(StorageState state) : StoragePlaceholder(state) {}
  [[noreturn]] void refuse_data() const override {
    throw UsageError(fmt::format("the bytes are {}", name_of(state())));
  }
};

Tensor pending(LateWriter& writer) {
  const Tensor t = Tensor::empty({3});
  t.storage()->set_pending(&writer);
  return t;
}

TEST(StorageState, IsPresentForNewMemory) {
  EXPECT_EQ(Tensor::empty({3}).storage()->state(), StorageState::present);
  EXPECT_EQ(Tensor::empty({0}).storage()->state(), StorageState::present);
}

TEST(StorageState, PendingBytesAreWaitedForByEveryReadOfTheHost) {
  const auto reads = {+[](const Tensor& t) { EXPECT_EQ(to_string(t), "[1.0, 2.0, 3.0]"); },
                      +[](const Tensor& t) { EXPECT_EQ(t.view_as({}, {}, 1).item(), 2.0); },
                      +[](const Tensor& t) { EXPECT_EQ(t.view_as({}, {}, 2).item_int(), 3); },
                      +[](const Tensor& t) { EXPECT_EQ(to_contiguous(t).data<float>()[2], 3.0f); },
                      +[](const Tensor& t) {
                        const Tensor target = Tensor::empty({3});
                        copy_elements(target, t);
                        EXPECT_EQ(target.data<float>()[1], 2.0f);
                      },
                      +[](const Tensor& t) {
                        before_host_read(t.alias());
                        EXPECT_EQ(t.data<float>()[0], 1.0f);
                      }};
  for (const auto read : reads) {
    LateWriter writer;
    const Tensor t = pending(writer);
    EXPECT_EQ(t.storage()->state(), StorageState::pending);
    EXPECT_TRUE(t.storage()->has_memory());
    t.raw_data();
    EXPECT_EQ(writer.waits, 0) << "an address is no read";
    read(t);
    EXPECT_EQ(writer.waits, 1);
    EXPECT_EQ(t.storage()->state(), StorageState::present);
    read(t);
    EXPECT_EQ(writer.waits, 1);
  }
}

TEST(StorageState, AWriterThatFailedIsHeardAtEveryRead) {
  LateWriter writer;
  writer.failure = "rank 3 died";
  const Tensor t = pending(writer);
  EXPECT_THROW(to_string(t), EnvironmentError);
  EXPECT_THROW(to_contiguous(t), EnvironmentError);
  EXPECT_EQ(t.storage()->state(), StorageState::pending);
}

TEST(StorageState, SeveralThreadsWaitForOnePendingStorage) {
  LateWriter writer;
  const Tensor t = pending(writer);
  {
    const std::jthread a([&] { t.storage()->wait(); }), b([&] { t.storage()->state(); });
  }
  EXPECT_EQ(t.storage()->state(), StorageState::present);
}

TEST(StorageState, MemoryThatIsWrittenIsNotGivenBack) {
  LateWriter writer;
  const Tensor t = pending(writer);
  t.storage()->release_memory();
  EXPECT_EQ(writer.waits, 1);
  EXPECT_EQ(t.storage()->state(), StorageState::released);
  EXPECT_THROW(to_string(t), UsageError);
  t.storage()->restore_memory();
  EXPECT_EQ(t.storage()->state(), StorageState::present);
}

TEST(StorageState, BytesThatAreElsewhereSayWhere) {
  for (const StorageState state : {StorageState::traced, StorageState::released, StorageState::sharded}) {
    const Tensor t =
        Tensor::over(StorageRef::adopt(Storage::without_memory(12, kCpu, std::make_unique<Elsewhere>(state))), {3}, {1},
                     0, DType::f32);
    EXPECT_EQ(t.storage()->state(), state);
    EXPECT_FALSE(t.storage()->has_memory());
    try {
      to_string(t);
      ADD_FAILURE();
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()), fmt::format("the bytes are {}", name_of(state)));
    }
  }
}

}  // namespace
}  // namespace tutti
