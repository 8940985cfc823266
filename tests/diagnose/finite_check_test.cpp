#include "tutti/diagnose/finite_check.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "tutti/core/error.h"
#include "tutti/devices/mock/mock_device.h"
#include "tutti/tensor/device_copy.h"

namespace tutti::comm {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

CallRecord record_of(const Tensor& t) {
  CallRecord record{.kind = CollectiveKind::all_reduce, .sequence = 12};
  record.describe_tensor(t.dtype(), t.extents());
  return record;
}

std::string complaint(const Tensor& t) {
  try {
    check_finite_before(t, "input", record_of(t), 3, "dp");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Tensor zeros(const Extents& sizes, DType dtype) {
  Tensor t = Tensor::empty(sizes, dtype);
  std::fill_n(static_cast<char*>(t.raw_data()), t.nbytes(), 0);
  return t;
}

void put(const Tensor& t, int64_t i, double value) {
  store_from_double(static_cast<char*>(t.raw_data()) + i * itemsize(t.dtype()), t.dtype(), value);
}

TEST(FiniteCheck, NamesCallRoleRankGroupIndexAndValue) {
  const Tensor t = zeros({4, 5}, DType::f32);
  put(t, 13, kNan);
  put(t, 17, kInfinity);
  EXPECT_EQ(complaint(t),
            "all_reduce(f32 [4, 5], sum) #12 of group 'dp' on rank 3: the input has nan at [2, 3]; find out where it "
            "was computed (the check is on because of check_nan or TUTTI_COMM_CHECK_NAN)");
}

TEST(FiniteCheck, EveryFloatFormatAndPositionIsSeen) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::f8e4m3fn, DType::f8e5m2}) {
    for (const int64_t at : {0, 63, 4095, 4096, 9999}) {
      const Tensor t = zeros({10'000}, dtype);
      put(t, 500, dtype == DType::f8e4m3fn ? 448 : -1e4);
      EXPECT_EQ(complaint(t), "") << name_of(dtype);
      put(t, at, at % 2 == 0 || dtype == DType::f8e4m3fn ? kNan : -kInfinity);
      EXPECT_NE(complaint(t).find("[" + std::to_string(at) + "]"), std::string::npos) << name_of(dtype) << " " << at;
    }
  }
}

TEST(FiniteCheck, IntegersAndEmptyTensorsPass) {
  EXPECT_EQ(complaint(Tensor::of<int32_t>({0x7f800000, -1})), "");
  EXPECT_EQ(complaint(zeros({0, 3}, DType::f32)), "");
  EXPECT_NO_THROW(check_finite_before(Tensor(), "input", CallRecord{}, 0, "g"));
}

TEST(FiniteCheck, ViewsAreCheckedInTheirOwnOrder) {
  const Tensor t = zeros({3, 4}, DType::f32);
  put(t, 6, kInfinity);  // [1, 2]
  EXPECT_NE(complaint(t.view_as({4, 3}, {1, 4}, 0)).find("inf at [2, 1]"), std::string::npos);
  EXPECT_EQ(complaint(t.view_as({3, 2}, {4, 1}, 0)), "");  // does not see it
}

TEST(FiniteCheck, DeviceTensorsAreLookedAtOnTheHost) {
  MockDevice mock;
  const Tensor t = zeros({8}, DType::f64);
  put(t, 5, kNan);
  EXPECT_NE(complaint(to_device(t, {DeviceKind::mock, 1})).find("nan at [5]"), std::string::npos);
}

TEST(FiniteCheck, TheEnvironmentTurnsItOn) {
  unsetenv("TUTTI_COMM_CHECK_NAN");
  EXPECT_FALSE(checks_nan_by_default());
  setenv("TUTTI_COMM_CHECK_NAN", "1", 1);
  EXPECT_TRUE(checks_nan_by_default());
  setenv("TUTTI_COMM_CHECK_NAN", "yes", 1);
  EXPECT_THROW(checks_nan_by_default(), UsageError);
  unsetenv("TUTTI_COMM_CHECK_NAN");
}

}  // namespace
}  // namespace tutti::comm
