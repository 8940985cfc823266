#include "tutti/core/dtype.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace tutti {
namespace {

std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  for (int i = 0; i < kNumDTypes; ++i) all.push_back(static_cast<DType>(i));
  return all;
}

// Row and column in the order f64 f32 bf16 f16 i64 i32 i16 i8 u8 bool.
constexpr DType kOrder[] = {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64,
                            DType::i32, DType::i16, DType::i8,   DType::u8,  DType::boolean};
constexpr const char* kTable[10] = {
    "f64 f64 f64  f64 f64 f64 f64 f64 f64 f64",        //
    "f64 f32 f32  f32 f32 f32 f32 f32 f32 f32",        //
    "f64 f32 bf16 f32 bf16 bf16 bf16 bf16 bf16 bf16",  //
    "f64 f32 f32  f16 f16 f16 f16 f16 f16 f16",        //
    "f64 f32 bf16 f16 i64 i64 i64 i64 i64 i64",        //
    "f64 f32 bf16 f16 i64 i32 i32 i32 i32 i32",        //
    "f64 f32 bf16 f16 i64 i32 i16 i16 i16 i16",        //
    "f64 f32 bf16 f16 i64 i32 i16 i8  i16 i8",         //
    "f64 f32 bf16 f16 i64 i32 i16 i16 u8  u8",         //
    "f64 f32 bf16 f16 i64 i32 i16 i8  u8  bool",       //
};

TEST(Promote, FollowsTheTable) {
  for (size_t row = 0; row < 10; ++row) {
    std::istringstream words(kTable[row]);
    for (DType column : kOrder) {
      std::string expected;
      words >> expected;
      EXPECT_EQ(name_of(promote(kOrder[row], column)), expected) << name_of(kOrder[row]) << " with " << name_of(column);
    }
  }
}

TEST(Promote, RefusesFp8WithAnythingElse) {
  for (DType fp8 : {DType::f8e4m3fn, DType::f8e5m2}) {
    EXPECT_EQ(promote(fp8, fp8), fp8);
    for (DType other : all_dtypes()) {
      if (other == fp8) continue;
      EXPECT_THROW(promote(fp8, other), UsageError);
      EXPECT_THROW(promote(other, fp8), UsageError);
    }
  }
}

TEST(DType, NamesAreReadBack) {
  for (DType dtype : all_dtypes()) EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
}

TEST(DType, AnUnknownNameListsTheKnownOnes) {
  try {
    dtype_from_name("bf1");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("unknown dtype 'bf1'; did you mean 'bf16'? Known: f64, f32"),
              std::string::npos)
        << e.what();
  }
}

TEST(DType, VisitGivesTheTypeOfTheItemsize) {
  for (DType dtype : all_dtypes()) {
    const auto size = visit_dtype(dtype, []<class T>() { return static_cast<int64_t>(sizeof(T)); });
    EXPECT_EQ(size, itemsize(dtype));
    EXPECT_EQ(visit_dtype(dtype, []<class T>() { return dtype_of<T>; }), dtype);
  }
}

TEST(DType, NarrowFloatsComputeInF32) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8e4m3fn, DType::f8e5m2})
    EXPECT_EQ(compute_dtype(dtype), DType::f32);
  for (DType dtype : {DType::f64, DType::i64, DType::u8, DType::boolean}) EXPECT_EQ(compute_dtype(dtype), dtype);
}

TEST(DType, KindsPartitionTheList) {
  for (DType dtype : all_dtypes())
    EXPECT_EQ(is_floating(dtype) + is_integral(dtype) + (dtype == DType::boolean), 1) << name_of(dtype);
}

}  // namespace
}  // namespace tutti
