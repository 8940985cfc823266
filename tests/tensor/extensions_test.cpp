#include "tutti/tensor/extensions.h"

#include <gtest/gtest.h>

#include "tutti/core/error.h"
#include "tutti/tensor/rebind.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

constexpr ExtensionKind kScale{"scale"}, kWrapper{"wrapper"}, kOwner{"owner"};

// Counts how many of it live.
struct Scale final : TensorExtension {
  explicit Scale(double v) : value(v) { ++alive; }
  ~Scale() override { --alive; }
  double value;
  static inline int alive = 0;
};

// Follows the elements to every alias.
struct Wrapper final : TensorExtension {
  explicit Wrapper(int n) : number(n) {}
  std::unique_ptr<TensorExtension> for_alias() const override { return std::make_unique<Wrapper>(number + 1); }
  int number;
};

Tensor make() { return Tensor::of<float>({1, 2, 3}); }

TEST(Extensions, OfSeveralKindsLiveSideBySide) {
  const Tensor t = make();
  EXPECT_TRUE(t.extensions().empty());
  EXPECT_EQ(t.extensions().find<Scale>(kScale), nullptr);
  t.extensions().put(kScale, std::make_unique<Scale>(0.5));
  t.extensions().put(kWrapper, std::make_unique<Wrapper>(7));
  t.extensions().put(kOwner, std::make_unique<Scale>(3.0));
  EXPECT_EQ(t.extensions().find<Scale>(kScale)->value, 0.5);
  EXPECT_EQ(t.extensions().find<Wrapper>(kWrapper)->number, 7);
  EXPECT_EQ(t.extensions().find<Scale>(kOwner)->value, 3.0);
  const Tensor copy = t;
  EXPECT_EQ(copy.extensions().find<Scale>(kScale), t.extensions().find<Scale>(kScale)) << "copies are the same tensor";
}

TEST(Extensions, OneOfAKindReplacesTheOther) {
  {
    const Tensor t = make();
    t.extensions().put(kScale, std::make_unique<Scale>(1.0));
    t.extensions().put(kWrapper, std::make_unique<Wrapper>(1));
    t.extensions().put(kScale, std::make_unique<Scale>(2.0));
    EXPECT_EQ(Scale::alive, 1);
    EXPECT_EQ(t.extensions().find<Scale>(kScale)->value, 2.0);
    EXPECT_EQ(t.extensions().newest().name(), "scale");
    EXPECT_NE(t.extensions().take(kWrapper), nullptr);
    EXPECT_EQ(t.extensions().take(kWrapper), nullptr);
    EXPECT_EQ(t.extensions().find<Scale>(kScale)->value, 2.0);
  }
  EXPECT_EQ(Scale::alive, 0) << "they end with the tensor";
}

TEST(Extensions, FollowAnAliasWhenTheySaySo) {
  const Tensor t = make();
  t.extensions().put(kScale, std::make_unique<Scale>(1.0));
  t.extensions().put(kWrapper, std::make_unique<Wrapper>(1));
  const Tensor alias = t.alias();
  EXPECT_EQ(alias.extensions().find<Scale>(kScale), nullptr);
  ASSERT_NE(alias.extensions().find<Wrapper>(kWrapper), nullptr);
  EXPECT_EQ(alias.extensions().find<Wrapper>(kWrapper)->number, 2);
  EXPECT_TRUE(t.view_as({3}, {1}, 0).extensions().empty()) << "a view begins without";
}

TEST(Extensions, NothingCannotBeAttached) {
  EXPECT_THROW(make().extensions().put(kScale, nullptr), UsageError);
  EXPECT_THROW(make().extensions().newest(), InternalError);
  EXPECT_THROW(Tensor().extensions(), UndefinedTensorError);
}

TEST(Extensions, KeepATensorFromBecomingAnotherOne) {
  const Tensor t = make();
  t.extensions().put(kScale, std::make_unique<Scale>(1.0));
  try {
    rebind(t, make());
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("takes part in scale and cannot become another one; detach() it first"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace tutti
