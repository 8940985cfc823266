// SymmetricTensor, as its users write it.
#include "tutti/symm/symmetric_tensor.h"

#include <gtest/gtest.h>

#include "tests/symm/support/ranks.h"
#include "tutti/symm/workspace.h"

namespace tutti::comm::symm {
namespace {

class SymmTensor : public testing::TestWithParam<const char*> {
 protected:
  void on(int size, const RankFunction& fn) const { run_on(GetParam(), size, fn); }
};
INSTANTIATE_TEST_SUITE_P(Symm, SymmTensor, testing::ValuesIn(live_backends()),
                         [](const auto& info) { return info.param; });

TEST_P(SymmTensor, LocalWritesAreSeenRemotelyAndRemoteWritesLocally) {
  on(3, [](const World& world) {
    const SymmGroup group = world.group();
    SymmetricTensor t(SymmetricTensor::allocate({2, 3}, DType::i32, kCpu, {.group = group}), group);
    EXPECT_TRUE(t.remote_tensor(world.rank).is_same(t.local_tensor()));  // before the setup
    const int next = (world.rank + 1) % 3;
    EXPECT_NE(complaint_of([&] { t.remote_tensor(next); }).find("call setup_remote_handles()"), std::string::npos);
    EXPECT_NE(complaint_of([&] { t.remote_pointers_tensor(); }).find("call setup_remote_handles()"), std::string::npos);
    t.setup_remote_handles("weights");
    t.setup_remote_handles();  // at once, without the others
    t.remote_tensor(next).data<int32_t>()[5] = 100 + world.rank;
    t.handle().barrier();
    EXPECT_EQ(t.local_tensor().data<int32_t>()[5], 100 + (world.rank + 2) % 3);
    const Tensor pointers = t.remote_pointers_tensor();
    EXPECT_EQ(pointers.extents(), (Extents{3}));
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(reinterpret_cast<int32_t*>(pointers.data<int64_t>()[r])[5], 100 + (r + 2) % 3);
    }
    EXPECT_NE(complaint_of([&] { t.remote_tensor(3); }).find("ranks are 0 to 2"), std::string::npos);
    t.handle().barrier();
  });
}

TEST_P(SymmTensor, RemoteViewsKeepStrides) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    SymmetricTensor t(empty_strided_p2p({3, 2}, {1, 3}, DType::f32, kCpu, {.group = group}), group);
    t.local_tensor().data<float>()[4] = 10.0f + static_cast<float>(world.rank);
    t.setup_remote_handles();
    t.handle().barrier();
    const Tensor peer = t.remote_tensor(1 - world.rank);
    EXPECT_EQ(peer.strides(), (Extents{1, 3}));
    EXPECT_EQ(to_contiguous(peer).data<float>()[3], 11.0f - static_cast<float>(world.rank));
    t.handle().barrier();
  });
}

TEST_P(SymmTensor, ContiguousViewsExposeTheOuterStride) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    for (const Extents& sizes : {Extents{}, Extents{1}, Extents{1000}, Extents{3, 5}, Extents{1024}}) {
      SymmetricTensor t(SymmetricTensor::allocate(sizes, DType::f32, kCpu, {.group = group}), group);
      EXPECT_NE(complaint_of([&] { t.contiguous_view(); }).find("call setup_contiguous_view()"), std::string::npos);
      t.local_tensor().data<float>()[0] = static_cast<float>(world.rank + 1);
      t.setup_remote_handles();
      t.setup_contiguous_view();
      t.handle().barrier();
      const Tensor all = t.contiguous_view();
      EXPECT_EQ(all.ndim(), sizes.ndim() + 1);
      EXPECT_EQ(all.extent(0), 2);
      EXPECT_EQ(all.strides()[0] * 4 % 4096, 0);
      EXPECT_EQ(all.data<float>()[0], 1.0f);
      EXPECT_EQ(all.data<float>()[all.strides()[0]], 2.0f);
      t.handle().barrier();
    }
  });
}

TEST_P(SymmTensor, MulticastIsRefusedAloud) {
  on(2, [](const World& world) {
    const SymmGroup group = world.group();
    SymmetricTensor t(SymmetricTensor::allocate({4}, DType::f32, kCpu, {.group = group}), group);
    t.setup_remote_handles();
    for (int i = 0; i < 2; ++i) {
      const std::string text = complaint_of([&] { t.setup_multicast(0, "x"); });
      EXPECT_NE(text.find("SymmetricTensor 'x': setup_multicast: backend " + world.backend), std::string::npos) << text;
      EXPECT_NE(text.find("multicast_write reaches all ranks"), std::string::npos) << text;
    }
    EXPECT_NE(complaint_of([&] { t.multicast_ptr(); }).find("no multicast addresses"), std::string::npos);
    t.handle().barrier();
  });
}

TEST(SymmetricTensorValidation, SaysWhyATensorCannotBeOne) {
  EXPECT_EQ(SymmetricTensor::validate(Tensor()), "the tensor is undefined");
  EXPECT_NE(SymmetricTensor::validate(Tensor::empty({4})).find("is not in symmetric memory"), std::string::npos);
  for (const char* backend : live_backends()) {
    EXPECT_EQ(SymmetricTensor::validate(SymmetricTensor::allocate({4}, DType::f32, kCpu, {.backend = backend})), "");
    EXPECT_EQ(SymmetricTensor::validate(SymmetricTensor::allocate({0}, DType::f32, kCpu, {.backend = backend})), "");
    EXPECT_EQ(SymmetricTensor::validate(SymmetricTensor::allocate({}, DType::f32, kCpu, {.backend = backend})), "");
  }
  const std::string text = complaint_of([] { SymmetricTensor(Tensor::empty({4}), SymmGroup()); });
  EXPECT_EQ(text.rfind("SymmetricTensor: ", 0), 0u) << text;
}

TEST(SymmetricTensorGroups, OutsidersAndContradictionsMakeNoGroup) {
  const std::string key = make_group_key("g", std::vector<int>{0, 1}, 0);
  EXPECT_NE(complaint_of([&] { SymmGroup(key, 2, 2, nullptr); }).find("a rank outside the group must not make it"),
            std::string::npos);
  EXPECT_NE(complaint_of([&] { SymmGroup(key, 0, 2, nullptr); }).find("needs a store"), std::string::npos);
  EXPECT_NE(key, make_group_key("g", std::vector<int>{0, 2}, 0));
  EXPECT_NE(key, make_group_key("g", std::vector<int>{0, 1}, 1));
  EXPECT_NE(key, make_group_key("h", std::vector<int>{0, 1}, 0));
  EXPECT_EQ(key, make_group_key("g", std::vector<int>{0, 1}, 0));
  EXPECT_TRUE(key.starts_with("symm/"));
}

TEST(SymmetricTensorGroups, AllocIdsAreNeverGivenTwice) {
  const uint64_t first = next_alloc_id();
  EXPECT_GT(next_alloc_id(), first);
}

}  // namespace
}  // namespace tutti::comm::symm
