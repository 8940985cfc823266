// The header for C++17, with elements of every dtype.
#include <gtest/gtest.h>

#include "tests/package/support/c_program.h"
#include "tests/package/support/packaged_cases.h"
#include "tutti/deploy/tutti_runtime.hpp"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/inplace.h"

namespace tutti {
namespace {

using package_test::for_this_processor;

// The error of fn(); TUTTI_OK and "no error" when it throws none.
template <class Fn>
std::pair<tutti_code, std::string> error_of(Fn fn) {
  try {
    fn();
  } catch (const runtime::Error& error) {
    return {error.code(), error.what()};
  }
  return {TUTTI_OK, "no error"};
}

TEST(PackageInCpp, ElementsOfEveryDtypeGoInAndOut) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x) { return std::pair(cat({x, x}, 0), cast(x, DType::f64)); };
  for (int number = 0; number < kNumDTypes; ++number) {
    const auto dtype = static_cast<DType>(number);
    SCOPED_TRACE(name_of(dtype));
    const Tensor x = package_test::pattern({3, 4}, dtype);
    package(folder / "f", fn, for_this_processor("f"), x);
    const runtime::Package opened(folder / "f");
    EXPECT_EQ(opened.input(0).dtype, static_cast<tutti_dtype>(number));
    EXPECT_EQ(runtime::item_bytes(static_cast<tutti_dtype>(number)), itemsize(dtype));
    const std::vector<runtime::Result> results =
        opened.run({runtime::tensor(x.raw_data(), static_cast<tutti_dtype>(number), {3, 4})});
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[0].dtype(), static_cast<tutti_dtype>(number));
    EXPECT_EQ(results[0].sizes(), (std::vector<int64_t>{6, 4}));
    ASSERT_EQ(results[0].nbytes(), 2 * x.nbytes());
    const auto* bytes = static_cast<const char*>(results[0].data());
    for (int half = 0; half < 2; ++half)
      EXPECT_EQ(std::memcmp(bytes + half * x.nbytes(), x.raw_data(), static_cast<size_t>(x.nbytes())), 0);
    for (int64_t i = 0; i < x.numel(); ++i)
      EXPECT_EQ(results[1].data<double>()[i],
                load_as_double(static_cast<const char*>(x.raw_data()) + i * itemsize(dtype), dtype));
    // Another dtype of the argument is refused, also before it runs.
    const auto other = static_cast<tutti_dtype>((number + 1) % kNumDTypes);
    const std::string text =
        fmt::format("argument 0 is {}, the package takes {}", name_of(static_cast<DType>(other)), name_of(dtype));
    const auto made = error_of([&] { opened.make_results({runtime::tensor(nullptr, other, {3, 4})}); });
    EXPECT_EQ(made.first, TUTTI_USAGE);
    EXPECT_HAS(made.second, text);
  }
}

template <class T>
void expect_doubled(const testing::TemporaryFolder& folder, DType dtype) {
  SCOPED_TRACE(name_of(dtype));
  package(
      folder / "f", [](const Tensor& x) { return add(x, x); }, for_this_processor("f"),
      package_test::pattern({2, 3}, dtype));
  const runtime::Package opened(folder / "f");
  const std::vector<T> x{1, 2, 3, 4, 5, 6};
  const std::vector<runtime::Result> results = opened.run({runtime::tensor(x.data(), {2, 3})});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(results[0].data<T>()[i], static_cast<T>(2 * x[i]));
  using Other = std::conditional_t<std::is_same_v<T, float>, int32_t, float>;
  EXPECT_EQ(error_of([&] { results[0].data<Other>(); }).first, TUTTI_USAGE);
}

TEST(PackageInCpp, TypesOfElementsSayTheirDtype) {
  const testing::TemporaryFolder folder;
  expect_doubled<double>(folder, DType::f64);
  expect_doubled<float>(folder, DType::f32);
  expect_doubled<int64_t>(folder, DType::i64);
  expect_doubled<int32_t>(folder, DType::i32);
  expect_doubled<int16_t>(folder, DType::i16);
  expect_doubled<int8_t>(folder, DType::i8);
  expect_doubled<uint8_t>(folder, DType::u8);
}

TEST(PackageInCpp, ArgumentsThatAreWrittenAreToldAndWritten) {
  const testing::TemporaryFolder folder;
  const auto fn = [](const Tensor& x, const Tensor& total) { return add(add_(total, x), 1.0); };
  package(folder / "f", fn, for_this_processor("f"), package_test::values(1, {3}), package_test::values(2, {3}));
  const runtime::Package opened(folder / "f");
  EXPECT_EQ(opened.input(0).is_written, 0);
  EXPECT_EQ(opened.input(1).is_written, 1);
  const std::vector<float> x{1, 2, 3};
  std::vector<float> total{10, 20, 30};
  for (int call = 0; call < 2; ++call) opened.run({runtime::tensor(x.data(), {3}), runtime::tensor(total.data(), {3})});
  EXPECT_EQ(total, (std::vector<float>{12, 24, 36}));
}

}  // namespace
}  // namespace tutti
