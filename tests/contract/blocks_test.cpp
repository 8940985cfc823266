// Ops that hand on blocks of their output: every element once, with the bits of the kernel, whether the output is kept
// or not. Ops that ask for blocks of their first input: all of them, and the same bits, whichever of its dims has
// neighbours.
#include <cstring>
#include <mutex>

#include "tests/contract/support/op_cases.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/permute.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using namespace testing;  // NOLINT: the contract's own words

class Blocks : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, Blocks,
                         ::testing::ValuesIn(ops_where([](const OpDef& op) { return op.kernel_in_blocks != nullptr; })),
                         name_of_op);

TEST_P(Blocks, CoverTheOutput) {
  const OpDef& op = *GetParam();
  ASSERT_NE(op.kernel, nullptr);
  RankContext& context = RankContext::current();
  for (const Sample& sample : op.samples()) {
    const Tensor whole = run_op(op, sample)[0];
    for (const int threads : {1, 2}) {
      context.set_threads(threads);
      for (const bool kept : {true, false}) {
        SCOPED_TRACE(fmt::format("{}, {} threads, kept: {}", sample.name, threads, kept));
        const OpCall call{op, sample.inputs, sample.attrs};
        const Tensor collected = Tensor::empty(whole.extents(), whole.dtype()),
                     output = kept ? Tensor::empty(whole.extents(), whole.dtype()) : Tensor{};
        const int64_t columns = whole.extents().back(), size = itemsize(whole.dtype());
        std::vector<int> times(static_cast<size_t>(whole.numel()));
        std::mutex mutex;
        const auto take = [&](const OutputBlock& block) {
          std::lock_guard lock(mutex);
          for (int64_t i = 0; i < block.rows; ++i) {
            const int64_t first = (block.first_row + i) * columns + block.first_column;
            std::memcpy(static_cast<char*>(collected.raw_data()) + first * size,
                        static_cast<char*>(block.data) + i * block.row_stride * size,
                        static_cast<size_t>(block.columns * size));
            for (int64_t j = 0; j < block.columns; ++j) ++times[static_cast<size_t>(first + j)];
          }
        };
        const BlockConsumer consumer(take);
        op.kernel_in_blocks(call, {&output, 1}, {.consumer = &consumer});
        EXPECT_EQ(bit_difference(collected, whole), "");
        EXPECT_EQ(times, std::vector<int>(times.size(), 1));
        if (kept) {
          EXPECT_EQ(bit_difference(output, whole), "");
        }
      }
    }
  }
  context.set_threads(0);
}

// A tensor of the same sizes, strides and dtype whose elements nobody may read.
class Refused final : public StoragePlaceholder {
 public:
  Refused() : StoragePlaceholder(StorageState::traced) {}
  [[noreturn]] void refuse_data() const override { throw InternalError("the op read an input that a producer makes"); }
};
Tensor without_memory(const Tensor& t) {
  return Tensor::over(StorageRef::adopt(Storage::without_memory(t.nbytes(), kCpu, std::make_unique<Refused>())),
                      t.extents(), t.strides(), 0, t.dtype());
}

TEST_P(Blocks, AskForTheFirstInput) {
  const OpDef& op = *GetParam();
  RankContext& context = RankContext::current();
  for (const Sample& sample : op.samples()) {
    const Tensor whole = run_op(op, sample)[0], input = clone(sample.inputs[0]),
                 output = Tensor::empty(whole.extents(), whole.dtype());
    const int64_t columns = input.extents().back(), size = itemsize(input.dtype());
    const auto* elements = static_cast<const char*>(input.raw_data());
    for (const int threads : {1, 2}) {
      for (const bool transposed : {false, true}) {
        if (transposed && input.ndim() != 2) continue;
        SCOPED_TRACE(fmt::format("{}, {} threads, transposed: {}", sample.name, threads, transposed));
        context.set_threads(threads);
        std::vector<Tensor> inputs = sample.inputs;
        inputs[0] = without_memory(transposed ? transpose(clone(transpose(input, 0, 1)), 0, 1) : input);
        const auto make = [&](const InputBlock& block) {
          EXPECT_TRUE(block.row_stride == 1 || block.column_stride == 1);
          for (int64_t i = 0; i < block.rows; ++i) {
            for (int64_t j = 0; j < block.columns; ++j)
              std::memcpy(static_cast<char*>(block.data) + (i * block.row_stride + j * block.column_stride) * size,
                          elements + ((block.first_row + i) * columns + block.first_column + j) * size,
                          static_cast<size_t>(size));
          }
        };
        const BlockProducer producer(make);
        op.kernel_in_blocks({op, inputs, sample.attrs}, {&output, 1}, {.producer = &producer});
        EXPECT_EQ(bit_difference(output, whole), "");
      }
    }
  }
  context.set_threads(0);
}

}  // namespace
}  // namespace tutti
