// Ops over indices run generated kernels, in the order their references say, and name the index that is out of range.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>

#include "tutti/codegen/kernel.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/engine/dim_attrs.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/random.h"
#include "tutti/ops/scatter.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Kernels that a call on a fresh thread looks up.
int64_t kernels_of(const std::function<void()>& fn) {
  const auto lookups = [] {
    const codegen::CacheStatistics s = codegen::cache_statistics();
    return s.memory_hits + s.disk_hits + s.compiled;
  };
  const int64_t before = lookups();
  std::thread([&] { fn(); }).join();
  return lookups() - before;
}

TEST(Picked, RunsGeneratedKernels) {
  const Tensor x = facets::sample_tensor(1, {6, 5}), index = zeros({6, 5}, DType::i64), rows = zeros({3}, DType::i32);
  EXPECT_EQ(kernels_of([&] { gather(x, 1, index); }), 1);
  EXPECT_EQ(kernels_of([&] { index_select(x, 0, rows); }), 1);
  EXPECT_EQ(kernels_of([&] { embedding(x, rows); }), 1);
  EXPECT_EQ(kernels_of([&] { scatter(x, 0, index, x); }), 2);  // the copy it starts from, and the writes
}

TEST(Picked, SharesKernelsBetweenDTypesOfOneWidth) {
  const Tensor rows = zeros({3}, DType::i64);
  const Tensor bf16 = zeros({4, 8}, DType::bf16), f16 = zeros({4, 8}, DType::f16), i16 = zeros({4, 8}, DType::i16);
  embedding(bf16, rows);
  const int64_t compiled = codegen::cache_statistics().compiled;
  embedding(f16, rows);
  index_select(i16, 0, rows);
  EXPECT_EQ(codegen::cache_statistics().compiled, compiled);
}

TEST(Picked, KeepsTheBitsOfNaN) {
  const Tensor x = Tensor::empty({2, 2}, DType::bf16);
  const uint16_t bits[] = {0x7f81, 0xffc3, 0x3f80, 0x8000};
  std::memcpy(x.raw_data(), bits, sizeof(bits));
  const Tensor rows = embedding(x, Tensor::of<int64_t>({1, 0}));
  const uint16_t swapped[] = {0x3f80, 0x8000, 0x7f81, 0xffc3};
  EXPECT_EQ(std::memcmp(rows.raw_data(), swapped, sizeof(swapped)), 0);
}

Tensor reference_of(const char* op, std::initializer_list<Tensor> inputs, const Attrs& attrs) {
  Tensor out;
  run_reference({find_op(op), {inputs.begin(), inputs.size()}, attrs}, {&out, 1});
  return out;
}

void expect_equal(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.extents(), expected.extents());
  ASSERT_TRUE(actual.is_contiguous() && expected.is_contiguous());
  EXPECT_EQ(std::memcmp(actual.raw_data(), expected.raw_data(), static_cast<size_t>(actual.nbytes())), 0);
}

// Large enough to be shared between threads, with dozens of writes to each place.
TEST(Picked, ThreadsWriteInTheOrderOfTheReference) {
  const Extents sizes = {31, 40, 70};
  const Tensor source = facets::sample_tensor(1, sizes), x = facets::sample_tensor(2, sizes);
  const Tensor sparse = facets::strided_copy(source);
  RankContext& context = RankContext::current();
  for (int64_t dim = 0; dim < 3; ++dim) {
    const Tensor index = facets::sample_tensor(3, sizes, DType::i64, 0, 4);
    const Tensor column = expand(Tensor::of<int64_t>({2}).view_as({1, 1, 1}, {0, 0, 0}, 0), to_shape(sizes));
    for (const Tensor& picks : {index, column}) {
      for (const Tensor& from : {source, sparse}) {
        context.set_threads(1);
        const Tensor expected = reference_of("scatter", {x, picks, from}, Attrs::of(DimAttrs{dim}));
        expect_equal(scatter(x, dim, picks, from), expected);
        context.set_threads(4);
        expect_equal(scatter(x, dim, picks, from), expected);
      }
    }
    expect_equal(gather(x, dim, index), reference_of("gather", {x, index}, Attrs::of(DimAttrs{dim})));
    expect_equal(gather(sparse, dim, index), reference_of("gather", {sparse, index}, Attrs::of(DimAttrs{dim})));
    const Tensor line = facets::sample_tensor(4, {90}, DType::i32, 0, 31);
    expect_equal(index_select(x, dim, line), reference_of("index_select", {x, line}, Attrs::of(DimAttrs{dim})));
    context.set_threads(0);
  }
}

TEST(Picked, NamesTheFirstIndexOutOfRange) {
  const Tensor index = zeros({300, 200}, DType::i64);
  index.data<int64_t>()[200 * 200 + 7] = -3;
  index.data<int64_t>()[250 * 200] = 1 << 20;
  EXPECT_EQ(message_of([&] { gather(zeros({300, 200}), 1, index); }),
            "gather: index -3 at position [200, 7] is out of range for 200 elements of dim 1 of [300, 200] f32 cpu; "
            "legal: 0 to 199");
  EXPECT_EQ(message_of([&] { scatter(zeros({300, 200}), 0, index, zeros({300, 200})); }),
            "scatter: index -3 at position [200, 7] is out of range for 300 elements of dim 0 of [300, 200] f32 cpu; "
            "legal: 0 to 299");
  EXPECT_EQ(message_of(
                [&] { index_select(zeros({4, 3}), 0, Tensor::of<int64_t>({1, std::numeric_limits<int64_t>::min()})); }),
            "index_select: index -9223372036854775808 at position [1] is out of range for 4 elements of dim 0 of [4, "
            "3] f32 cpu; legal: 0 to 3");
}

TEST(Picked, ChecksTheIndicesOfRowsWithoutElements) {
  EXPECT_THROW(embedding(zeros({5, 0}), Tensor::of<int64_t>({5})), UsageError);
  EXPECT_THROW(embedding(zeros({0, 8}), Tensor::of<int32_t>({0})), UsageError);
  EXPECT_EQ(embedding(zeros({5, 0}), Tensor::of<int64_t>({4, 4})).extents(), (Extents{2, 0}));
  EXPECT_EQ(embedding(zeros({0, 8}), zeros({0}, DType::i64)).extents(), (Extents{0, 8}));
}

}  // namespace
}  // namespace tutti
