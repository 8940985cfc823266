#include "tutti/core/error.h"

#include <gtest/gtest.h>

#include <vector>

#include "tutti/core/device.h"

namespace tutti {
namespace {

const std::vector<std::string> kKnown = {"all_reduce", "all_gather", "broadcast"};

TEST(NearestMatch, FindsATypingError) {
  EXPECT_EQ(nearest_match("all_redcue", kKnown), "all_reduce");
  EXPECT_EQ(nearest_match("brodcast", kKnown), "broadcast");
}

TEST(NearestMatch, IsEmptyWhenNothingIsNear) {
  EXPECT_EQ(nearest_match("matmul", kKnown), "");
  EXPECT_EQ(nearest_match("x", {}), "");
}

TEST(NearestMatch, TakesTheFirstOfEquallyNearNames) {
  EXPECT_EQ(nearest_match("aa", std::vector<std::string>{"ab", "ac"}), "ab");
}

TEST(UnknownNameMessage, ListsWhatIsKnown) {
  EXPECT_EQ(unknown_name_message("collective", "brodcast", kKnown),
            "unknown collective 'brodcast'; did you mean 'broadcast'? Known: all_reduce, all_gather, broadcast");
  EXPECT_EQ(unknown_name_message("collective", "matmul", kKnown),
            "unknown collective 'matmul'. Known: all_reduce, all_gather, broadcast");
}

TEST(Check, PrintsBothSides) {
  const auto compare = [](int a, int b) { TUTTI_CHECK_EQ(a, b, "sizes of '{}' differ", "w"); };
  EXPECT_NO_THROW(compare(1, 1));
  try {
    compare(3, 4);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "sizes of 'w' differ (3 vs 4)");
  }
}

TEST(Check, EveryKindHasItsType) {
  EXPECT_THROW(TUTTI_CHECK(false, "x"), UsageError);
  EXPECT_THROW(TUTTI_CHECK_ENV(false, "x"), EnvironmentError);
  EXPECT_THROW(TUTTI_ASSERT(false), InternalError);
  EXPECT_THROW(TUTTI_ASSERT(false, "x"), Error);
}

TEST(Check, AnInternalErrorSaysWhereAndAsksForAReport) {
  try {
    TUTTI_ASSERT(1 == 2, "value {}", 7);
    FAIL();
  } catch (const InternalError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("error_test.cpp"), std::string::npos) << text;
    EXPECT_NE(text.find("1 == 2 does not hold: value 7. Please report"), std::string::npos) << text;
  }
}

TEST(Device, IsReadBackFromItsText) {
  for (Device device : {kCpu, Device{DeviceKind::mock, 0}, Device{DeviceKind::cuda, 3}, Device{DeviceKind::cpu, 1}})
    EXPECT_EQ(device_from_string(to_string(device)), device);
  EXPECT_EQ(to_string(kCpu), "cpu");
  EXPECT_EQ(to_string(Device{DeviceKind::mock, 1}), "mock:1");
}

TEST(Device, MalformedTextIsRefused) {
  for (const char* text : {"", "gpu", "mock:", "mock:x", "mock:-1", "mock:1x", "mock:99999", ":1"})
    EXPECT_THROW(device_from_string(text), UsageError) << text;
}

TEST(Device, AnUnknownKindNamesTheNearest) {
  try {
    device_from_string("cudo:0");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "unknown device kind 'cudo'; did you mean 'cuda'? Known: cpu, mock, cuda");
  }
}

}  // namespace
}  // namespace tutti
