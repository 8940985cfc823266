// What JsonWriter writes, compared with the text of another library and with what it reads back.
#include "tutti/runtime/json_writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>

#include "tutti/core/error.h"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

std::string quoted_by_other(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

TEST(JsonWriter, WritesNestedValuesInTheOrderOfTheCalls) {
  JsonWriter json;
  json.object()
      .member("step", 3)
      .key("ranks")
      .array()
      .value(0)
      .value(1)
      .end()
      .member("none", nullptr)
      .key("empty")
      .object()
      .end();
  json.member("yes", true).member("text", "a").member("large", std::numeric_limits<uint64_t>::max()).end();
  EXPECT_EQ(json.take(),
            R"({"step":3,"ranks":[0,1],"none":null,"empty":{},"yes":true,"text":"a","large":18446744073709551615})");
}

TEST(JsonWriter, IndentsAsTheOtherLibraryDoes) {
  const Json other = {{"a", 1}, {"b", {true, nullptr, {{"c", "d"}}}}, {"e", Json::array()}, {"f", Json::object()}};
  for (const int indent : {0, 1, 2, 4}) {
    JsonWriter json(indent);
    json.object().member("a", 1).key("b").array().value(true).value(nullptr).object().member("c", "d").end().end();
    json.key("e").array().end().key("f").object().end().end();
    EXPECT_EQ(json.take(), other.dump(indent == 0 ? -1 : indent)) << "indent " << indent;
  }
}

TEST(JsonWriter, StandsAtTheTopWithAnyValue) {
  JsonWriter json;
  EXPECT_EQ(json.value("a").take(), "\"a\"");
  EXPECT_EQ(json.raw("1.250").take(), "1.250");
  EXPECT_EQ(json.array().end().take(), "[]");
}

TEST(JsonWriter, NumbersReadBackAsTheyWere) {
  for (const double number :
       {0.0, -0.0, 1.0, 0.1, -1.0 / 3.0, 1e22, 1e-300, 5e-324, 1.7976931348623157e308, 123456789.125}) {
    JsonWriter json;
    const Json read = Json::parse(json.value(number).take());
    ASSERT_TRUE(read.is_number_float()) << number;
    EXPECT_EQ(std::bit_cast<uint64_t>(read.get<double>()), std::bit_cast<uint64_t>(number)) << number;
  }
  for (const int64_t number :
       {std::numeric_limits<int64_t>::min(), int64_t{-1}, int64_t{0}, std::numeric_limits<int64_t>::max()}) {
    JsonWriter json;
    EXPECT_EQ(Json::parse(json.value(number).take()).get<int64_t>(), number);
  }
}

TEST(JsonWriter, WhatIsNotFiniteIsNull) {
  JsonWriter json;
  json.array().value(std::numeric_limits<double>::infinity()).value(std::numeric_limits<double>::quiet_NaN()).end();
  EXPECT_EQ(json.take(), "[null,null]");
}

TEST(JsonQuoted, EveryByteIsEscapedAsByTheOtherLibrary) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = std::string("a") + static_cast<char>(byte) + "b";
    EXPECT_EQ(json_quoted(text), quoted_by_other(text)) << "byte " << byte;
  }
}

TEST(JsonQuoted, SequencesThatAreNotUtf8AreReplacedAsByTheOtherLibrary) {
  // Bytes at the borders of every rule: leads of each length, bounds of the second byte, continuations, ASCII.
  const std::string bytes = "\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xed\xef\xf0\xf4\xf5\xff";
  std::vector<std::string> texts = {"", "a\"\\/", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  for (const char a : bytes)
    for (const char b : bytes)
      for (const char c : bytes) {
        texts.push_back({a, b, c});
        texts.push_back({a, b, c, '\x80', '"', '\x80'});
      }
  for (const std::string& text : texts) EXPECT_EQ(json_quoted(text), quoted_by_other(text));
}

TEST(JsonWriter, MisuseIsAnInternalError) {
  EXPECT_THROW(JsonWriter().array().key("a"), InternalError);
  EXPECT_THROW(JsonWriter().object().value(1), InternalError);
  EXPECT_THROW(JsonWriter().end(), InternalError);
  EXPECT_THROW(JsonWriter().object().key("a").end(), InternalError);
  EXPECT_THROW(JsonWriter().object().take(), InternalError);
}

}  // namespace
}  // namespace tutti
