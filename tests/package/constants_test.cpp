// Constants that are replaced while the package runs.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/package/support/packaged_cases.h"
#include "tutti/deploy/package_constants.h"
#include "tutti/deploy/tutti_constants.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/slice.h"

namespace tutti {
namespace {

using deploy::NewConstant;
using deploy::Package;
using package_test::for_this_processor;
using package_test::usage_error_of;
using package_test::values;

// x a + b, where b is a row of a larger tensor.
struct Affine {
  Tensor a = values(1, {16, 8}), rows = values(2, {3, 8});
  Tensor operator()(const Tensor& x) const { return add(matmul(x, a), b()); }
  Tensor b() const { return slice(rows, 0, 1, 2); }
};

PackageOptions named(const Affine& f) {
  PackageOptions options = for_this_processor("affine");
  options.constants = {{"a", f.a}, {"b", f.b()}};
  return options;
}

TEST(PackageConstants, CallsAfterTheChangeSeeTheNewValues) {
  const testing::TemporaryFolder folder;
  Affine f;
  const Tensor x = values(5, {4, 16});
  package(folder / "f", f, named(f), x);
  const auto opened = Package::open(folder / "f");
  expect_same_bits(opened->run({{x}})[0], f(x), "as packaged");
  Affine g = f;
  g.a = values(11, {16, 8});
  opened->set_constants({{NewConstant{"a", g.a}}});
  expect_same_bits(opened->run({{x}})[0], g(x), "another a");
  const Tensor b = values(12, {1, 8});
  opened->set_constants({{NewConstant{"b", b}}});
  expect_same_bits(opened->run({{x}})[0], add(matmul(x, g.a), b), "another b, and a as it was set before");
  opened->set_constants({{NewConstant{"a", f.a}, NewConstant{"b", f.b()}}});
  expect_same_bits(opened->run({{x}})[0], f(x), "those of the file again");
  expect_same_bits(Package::open(folder / "f")->run({{x}})[0], f(x), "the file has not changed");
}

// Two constants with equal bytes are kept once in the file, and change each by itself.
TEST(PackageConstants, EqualOnesAreReplacedOneByOne) {
  const testing::TemporaryFolder folder;
  const Tensor a = values(1, {8}), b = values(1, {8}), x = values(2, {8});
  PackageOptions options = for_this_processor("f");
  options.constants = {{"a", a}, {"b", b}};
  package(folder / "f", [&](const Tensor& t) { return sub(mul(t, a), b); }, options, x);
  const auto opened = Package::open(folder / "f");
  const Tensor other = values(3, {8});
  opened->set_constants({{NewConstant{"b", other}}});
  expect_same_bits(opened->run({{x}})[0], sub(mul(x, a), other));
}

TEST(PackageConstants, AreReplacedAllOrNone) {
  const testing::TemporaryFolder folder;
  Affine f;
  const Tensor x = values(5, {4, 16});
  package(folder / "f", f, named(f), x);
  const auto opened = Package::open(folder / "f");
  const auto refusal = [&](const NewConstant& second) {
    return usage_error_of([&] { opened->set_constants({{NewConstant{"a", values(9, {16, 8})}, second}}); });
  };
  EXPECT_HAS(refusal({"c", f.a}), "affine: there is no constant 'c'; the package names a, b");
  EXPECT_HAS(refusal({"a", f.a}), "the constant 'a' is given twice");
  EXPECT_HAS(refusal({"b", values(9, {8})}), "the constant 'b' is f32 [1, 8], and cannot become f32 [8]");
  EXPECT_HAS(refusal({"b", values(9, {1, 8}, DType::bf16)}), "cannot become bf16 [1, 8]");
  expect_same_bits(opened->run({{x}})[0], f(x), "nothing has changed");
}

TEST(PackageConstants, NamesAreOfTensorsThatTheFunctionHolds) {
  const testing::TemporaryFolder folder;
  Affine f;
  const auto refusal = [&](const std::vector<PackagedConstant>& constants) {
    PackageOptions options = for_this_processor("affine");
    options.constants = constants;
    return usage_error_of([&] { package(folder / "f", f, options, values(5, {4, 16})); });
  };
  EXPECT_HAS(refusal({{"c", values(1, {2})}}), "'c' of the constants is no tensor that the function holds");
  EXPECT_HAS(refusal({{"a", f.a}, {"a", f.rows}}), "two constants are named 'a'");
  EXPECT_HAS(refusal({{"a", slice(f.a, 1, 0, 2)}}), "the constant 'a' is not contiguous");
}

TEST(PackageConstants, StateIsNoConstant) {
  const testing::TemporaryFolder folder;
  const Tensor total = values(1, {4});
  PackageOptions options = for_this_processor("count");
  options.state = {{"total", total}};
  options.constants = {{"sum", total}};
  const auto count = [&](const Tensor& x) { return mul(add_(total, x), 1.0); };
  EXPECT_HAS(usage_error_of([&] { package(folder / "f", count, options, values(2, {4})); }),
             "'sum' of the constants is in the memory of the function's state");
}

// Readers see one set or another, never a mixture: each set has the same number in all elements.
TEST(PackageConstants, AreReplacedWhileOthersRun) {
  const testing::TemporaryFolder folder;
  const Tensor a = full({64}, 1.0), b = full({64}, 1.0), x = full({64}, 1.0);
  PackageOptions options = for_this_processor("f");
  options.constants = {{"a", a}, {"b", b}};
  package(folder / "f", [&](const Tensor& t) { return sub(mul(t, a), b); }, options, x);
  const auto opened = Package::open(folder / "f");
  std::atomic<bool> done = false;
  std::atomic<int> mixtures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      do {
        const Tensor y = opened->run({{x}})[0];
        for (int64_t i = 0; i < 64; ++i) mixtures += y.data<float>()[i] != 0;
      } while (!done);
    });
  }
  for (int i = 2; i < 200; ++i) {
    const Tensor next = full({64}, i);
    opened->set_constants({{NewConstant{"a", next}, NewConstant{"b", next}}});
  }
  done = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(mixtures, 0);
}

TEST(PackageConstantsInC, AreDescribedAndReplaced) {
  const testing::TemporaryFolder folder;
  Affine f;
  const Tensor x = values(5, {4, 16});
  package(folder / "f", f, named(f), x);
  tutti_package* opened = nullptr;
  ASSERT_EQ(tutti_package_open((folder / "f").c_str(), nullptr, &opened), TUTTI_OK);
  int32_t count = 0;
  ASSERT_EQ(tutti_package_num_constants(opened, &count), TUTTI_OK);
  ASSERT_EQ(count, 2);
  tutti_constant_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(tutti_package_constant(opened, 0, &info), TUTTI_OK);
  EXPECT_STREQ(info.name, "a");
  EXPECT_EQ(info.dtype, TUTTI_F32);
  EXPECT_EQ(info.ndim, 2);
  EXPECT_EQ(info.sizes[0], 16);
  EXPECT_EQ(info.bytes, 16 * 8 * 4);
  EXPECT_EQ(tutti_package_constant(opened, 2, &info), TUTTI_USAGE);

  Affine g;
  g.a = values(21, {16, 8});
  const char* names[] = {"a"};
  tutti_tensor value = {g.a.raw_data(), TUTTI_F32, 2, {16, 8}};
  ASSERT_EQ(tutti_package_set_constants(opened, names, &value, 1), TUTTI_OK) << tutti_last_error()->text;
  const Tensor y = Tensor::empty({4, 8});
  tutti_tensor in = {x.raw_data(), TUTTI_F32, 2, {4, 16}}, out = {y.raw_data(), TUTTI_F32, 2, {4, 8}};
  ASSERT_EQ(tutti_package_run(opened, &in, 1, &out, 1), TUTTI_OK);
  expect_same_bits(y, g(x));

  value.sizes[0] = 8;
  EXPECT_EQ(tutti_package_set_constants(opened, names, &value, 1), TUTTI_USAGE);
  EXPECT_HAS(std::string(tutti_last_error()->text), "cannot become f32 [8, 8]");
  names[0] = nullptr;
  EXPECT_EQ(tutti_package_set_constants(opened, names, &value, 1), TUTTI_USAGE);
  EXPECT_EQ(tutti_package_set_constants(opened, nullptr, &value, 1), TUTTI_USAGE);
  EXPECT_EQ(tutti_package_set_constants(nullptr, names, &value, 1), TUTTI_USAGE);
  EXPECT_EQ(tutti_package_set_constants(opened, nullptr, nullptr, 0), TUTTI_OK);
  tutti_package_close(opened);
}

}  // namespace
}  // namespace tutti
