#include "tutti/tensor/dlpack.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/devices/mock/mock_device.h"
#include "tutti/tensor/device_copy.h"

namespace tutti {
namespace {

using namespace dlpack;

// Another library's tensor: six floats with everything that may be said about them.
struct Foreign {
  alignas(8) float values[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 3};
  int64_t strides[2] = {3, 1};
  int deleted = 0;
  DLTensor tensor{values, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  DLManagedTensorVersioned versioned{{1, 1}, this, count<DLManagedTensorVersioned>, 0, {}};
  DLManagedTensor legacy{{}, this, count<DLManagedTensor>};

  template <class Managed>
  static void count(Managed* self) {
    ++static_cast<Foreign*>(self->manager_ctx)->deleted;
  }
  DLManagedTensorVersioned* managed() {
    versioned.dl_tensor = tensor;
    return &versioned;
  }
  DLManagedTensor* managed_legacy() {
    legacy.dl_tensor = tensor;
    return &legacy;
  }
};

std::string import_error(Foreign& foreign) {
  try {
    from_dlpack(foreign.managed());
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(ToDlpack, DescribesTheTensorWithoutCopying) {
  const Tensor t = Tensor::of<float>({0, 1, 2, 3, 4, 5}, {2, 3}).view_as({3, 1}, {1, 3}, 3);
  DLManagedTensorVersioned* managed = to_dlpack(t);
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->version.minor, 1u);
  EXPECT_EQ(managed->flags, 0u);
  const DLTensor& d = managed->dl_tensor;
  EXPECT_EQ(d.data, t.raw_data());
  EXPECT_EQ(d.byte_offset, 0u);
  EXPECT_EQ(d.device.device_type, kDLCPU);
  EXPECT_EQ(d.ndim, 2);
  EXPECT_EQ(d.shape[0], 3);
  EXPECT_EQ(d.shape[1], 1);
  EXPECT_EQ(d.strides[0], 1);
  EXPECT_EQ(d.strides[1], 3);
  managed->deleter(managed);
}

TEST(ToDlpack, HoldsTheTensorUntilTheDeleterIsCalled) {
  int released = 0;
  float values[2] = {7, 8};
  Tensor t = Tensor::from_memory(values, {2}, DType::f32, [&] { ++released; });
  DLManagedTensorVersioned* managed = to_dlpack(t);
  t = {};
  EXPECT_EQ(released, 0);
  EXPECT_EQ(static_cast<float*>(managed->dl_tensor.data)[1], 8);
  managed->deleter(managed);
  EXPECT_EQ(released, 1);
}

TEST(ToDlpack, FlagsReadOnlyStorageAndCopies) {
  const Tensor t = Tensor::of<float>({1, 2});
  t.storage()->set_read_only();
  DLManagedTensorVersioned* plain = to_dlpack(t);
  EXPECT_EQ(plain->flags, kFlagReadOnly);
  EXPECT_TRUE(from_dlpack(plain).storage()->is_read_only());
  DLManagedTensorVersioned* copy = to_dlpack(t, {.copy = true});
  EXPECT_EQ(copy->flags, kFlagIsCopied);
  EXPECT_NE(copy->dl_tensor.data, t.raw_data());
  EXPECT_FALSE(from_dlpack(copy).storage()->is_read_only());
}

TEST(ToDlpack, TheLegacyStructureCannotSayReadOnly) {
  const Tensor t = Tensor::of<float>({1, 2});
  t.storage()->set_read_only();
  EXPECT_THROW(to_dlpack_legacy(t), UsageError);
  EXPECT_EQ(from_dlpack(to_dlpack_legacy(t, {.copy = true})).data<float>()[1], 2);
}

TEST(ToDlpack, NoElementsAreANullPointer) {
  DLManagedTensorVersioned* managed = to_dlpack(Tensor::of<float>({1, 2}).view_as({0, 2}, {2, 1}, 1));
  EXPECT_EQ(managed->dl_tensor.data, nullptr);
  EXPECT_EQ(from_dlpack(managed).extents(), (Extents{0, 2}));
}

TEST(ToDlpack, RefusesAnUndefinedTensor) {
  EXPECT_THROW(to_dlpack(Tensor()), UsageError);
  EXPECT_THROW(to_dlpack_legacy(Tensor()), UsageError);
}

TEST(Dlpack, EveryDTypeComesBack) {
  const struct {
    DType dtype;
    int code, bits;
  } expected[] = {{DType::f64, 2, 64},      {DType::f32, 2, 32},    {DType::bf16, 4, 16}, {DType::f16, 2, 16},
                  {DType::f8e4m3fn, 10, 8}, {DType::f8e5m2, 12, 8}, {DType::i64, 0, 64},  {DType::i32, 0, 32},
                  {DType::i16, 0, 16},      {DType::i8, 0, 8},      {DType::u8, 1, 8},    {DType::boolean, 6, 8}};
  for (const auto& row : expected) {
    const Tensor t = Tensor::empty({2}, row.dtype);
    DLManagedTensorVersioned* managed = to_dlpack(t);
    EXPECT_EQ(managed->dl_tensor.dtype.code, row.code) << name_of(row.dtype);
    EXPECT_EQ(managed->dl_tensor.dtype.bits, row.bits) << name_of(row.dtype);
    EXPECT_EQ(managed->dl_tensor.dtype.lanes, 1);
    const Tensor back = from_dlpack(managed);
    EXPECT_EQ(back.dtype(), row.dtype);
    EXPECT_EQ(back.raw_data(), t.raw_data());
  }
}

TEST(Dlpack, AViewComesBackAsTheSameView) {
  const Tensor base = Tensor::of<int32_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor column = base.view_as({2, 2}, {3, -1}, 2);
  const Tensor back = from_dlpack(to_dlpack(column));
  EXPECT_EQ(back.extents(), column.extents());
  EXPECT_EQ(back.strides(), column.strides());
  EXPECT_EQ(back.raw_data(), column.raw_data());
  EXPECT_EQ(to_contiguous(back).data<int32_t>()[3], 4);
}

TEST(Dlpack, AScalarComesBack) { EXPECT_EQ(from_dlpack(to_dlpack_legacy(Tensor::scalar(2.5))).item(), 2.5); }

TEST(Dlpack, DeviceMemoryKeepsItsDevice) {
  MockDevice mock;
  const Device device{DeviceKind::mock, 1};
  {
    const Tensor there = to_device(Tensor::of<float>({1, 2}), device);
    DLManagedTensorVersioned* managed = to_dlpack(there);
    EXPECT_EQ(managed->dl_tensor.device.device_type, kDLExtDev);
    EXPECT_EQ(managed->dl_tensor.device.device_id, 1);
    const Tensor back = from_dlpack(managed);
    EXPECT_EQ(back.device(), device);
    EXPECT_EQ(to_device(back, kCpu).data<float>()[1], 2);
  }
  EXPECT_EQ(mock.report(), "");
}

TEST(FromDlpack, SharesTheMemoryAndDeletesItOnceAtTheEnd) {
  Foreign foreign;
  {
    Tensor t = from_dlpack(foreign.managed());
    EXPECT_EQ(t.raw_data(), foreign.values);
    const Tensor view = t.view_as({1}, {1}, 5);
    t = {};
    EXPECT_EQ(view.item(), 5);
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(FromDlpack, ReadsTheLegacyStructure) {
  Foreign foreign;
  EXPECT_EQ(from_dlpack(foreign.managed_legacy()).data<float>()[4], 4);
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(FromDlpack, TakesNullStridesAsRowMajor) {
  Foreign foreign;
  foreign.tensor.strides = nullptr;
  EXPECT_EQ(from_dlpack(foreign.managed()).strides(), (Extents{3, 1}));
}

TEST(FromDlpack, AppliesTheByteOffset) {
  Foreign foreign;
  foreign.tensor.byte_offset = 8;
  foreign.shape[0] = 1;
  EXPECT_EQ(from_dlpack(foreign.managed()).data<float>()[0], 2);
}

TEST(FromDlpack, AMissingDeleterIsFine) {
  Foreign foreign;
  foreign.versioned.deleter = nullptr;
  EXPECT_EQ(from_dlpack(foreign.managed()).numel(), 6);
}

TEST(FromDlpack, PinnedHostMemoryIsHostMemory) {
  Foreign foreign;
  foreign.tensor.device = {kDLCUDAHost, 0};
  EXPECT_EQ(from_dlpack(foreign.managed()).device(), kCpu);
}

TEST(FromDlpack, AnotherMinorVersionIsRead) {
  Foreign foreign;
  foreign.versioned.version = {1, 7};
  EXPECT_EQ(from_dlpack(foreign.managed()).numel(), 6);
}

TEST(FromDlpack, AnotherMajorVersionIsRefusedAndDeleted) {
  Foreign foreign;
  foreign.versioned.version = {2, 0};
  EXPECT_EQ(import_error(foreign),
            "from_dlpack: the structure has DLPack version 2.0, this library knows 1.1; major versions must agree");
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(FromDlpack, WhatItCannotHoldIsRefusedAndDeleted) {
  const struct {
    void (*spoil)(Foreign&);
    const char* expected;
  } cases[] = {
      {[](Foreign& f) { f.tensor.dtype = {kDLComplex, 64, 1}; }, "no dtype for code 5 of 64 bits"},
      {[](Foreign& f) { f.tensor.dtype = {kDLFloat, 32, 4}; }, "a dtype of 4 lanes"},
      {[](Foreign& f) { f.tensor.device = {static_cast<DLDeviceType>(7), 0}; }, "device type 7 is not known"},
      {[](Foreign& f) { f.tensor.device = {kDLExtDev, 0}; }, "registered for mock:0"},
      {[](Foreign& f) { f.tensor.device = {kDLCUDA, 70000}; }, "device index 70000 does not exist"},
      {[](Foreign& f) { f.tensor.ndim = 9; }, "9 dimensions; a tensor has at most 8"},
      {[](Foreign& f) { f.tensor.ndim = -1; }, "-1 dimensions"},
      {[](Foreign& f) { f.tensor.shape = nullptr; }, "2 dimensions without a shape"},
      {[](Foreign& f) { f.shape[1] = -3; }, "sizes [2, -3] hold a negative size"},
      {[](Foreign& f) { f.shape[0] = f.shape[1] = int64_t{1} << 40; }, "does not fit in 64 bits"},
      {[](Foreign& f) { f.tensor.data = nullptr; }, "null data for sizes [2, 3] of f32"},
      {[](Foreign& f) { f.tensor.byte_offset = 2; }, "not aligned to its 4 bytes"},
  };
  for (const auto& c : cases) {
    Foreign foreign;
    c.spoil(foreign);
    EXPECT_NE(import_error(foreign).find(c.expected), std::string::npos) << import_error(foreign);
    EXPECT_GE(foreign.deleted, 1) << c.expected;
  }
}

TEST(FromDlpack, RefusesNull) {
  EXPECT_THROW(from_dlpack(static_cast<DLManagedTensor*>(nullptr)), UsageError);
  EXPECT_THROW(from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)), UsageError);
}

}  // namespace
}  // namespace tutti
