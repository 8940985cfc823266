#include "tutti/io/tokenizer_json.h"

#include <gtest/gtest.h>

#include "tutti/core/error.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

SequenceFrame frame_of(std::string_view json) {
  return read_post_processor(JsonDocument(json, {.name = "file"}).top(), [](int32_t id) { return id < 300; });
}

std::string refusal_of(std::string_view json) {
  try {
    frame_of(json);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

constexpr const char* kTemplate =
    R"("type": "TemplateProcessing", "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 2]}})";

std::string with_single(const std::string& single) {
  return std::string("{\"post_processor\": {") + kTemplate + ", \"single\": " + single + "}}";
}

const std::string kText = R"({"Sequence": {"id": "A", "type_id": 0}})";
const std::string kStart = R"({"SpecialToken": {"id": "<s>", "type_id": 0}})";

TEST(PostProcessor, IsTheFrameOfATemplate) {
  const SequenceFrame frame = frame_of(with_single("[" + kStart + "," + kText + "," + kStart + "," + kStart + "]"));
  EXPECT_EQ(frame.before, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(frame.after, (std::vector<int32_t>{1, 2, 1, 2}));
}

TEST(PostProcessor, MayBeThatOfBertOrAbsentOrASequence) {
  EXPECT_TRUE(frame_of("{}").is_empty());
  EXPECT_TRUE(frame_of(R"({"post_processor": {"type": "ByteLevel"}})").is_empty());
  const SequenceFrame frame = frame_of(R"({"post_processor": {"type": "Sequence", "processors": [
      {"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]},
      {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}]}})");
  EXPECT_EQ(frame.before, (std::vector<int32_t>{0, 101})) << "the second goes around the first";
  EXPECT_EQ(frame.after, (std::vector<int32_t>{102, 2}));
}

TEST(PostProcessor, SaysWhatItDoesNotSupport) {
  const auto expect_refused = [](const std::string& json, const std::string& says) {
    EXPECT_NE(refusal_of(json).find(says), std::string::npos) << refusal_of(json);
  };
  expect_refused(R"({"post_processor": {"type": "Other"}})", "file: post_processor: is 'Other'; supported are");
  expect_refused(R"({"post_processor": {"type": "Sequence", "processors": 1}})", "processors: is 1, expected an array");
  expect_refused(R"({"post_processor": {"type": "Sequence", "processors": [{"type": "Sequence"}]}})",
                 "processors[0]: is a Sequence inside another");
  expect_refused(R"({"post_processor": {"type": "BertProcessing", "cls": ["x"], "sep": ["y", 1]}})",
                 "cls: is an array of 1, expected a token and its id");
  expect_refused(R"({"post_processor": {"type": "BertProcessing", "cls": ["x", 300], "sep": ["y", 1]}})",
                 "is 300, which is no token");
  expect_refused(with_single("1"), "single: is 1, expected an array");
  expect_refused(with_single("[" + kStart + "]"), "single: has the text 0 times, expected once");
  expect_refused(with_single("[" + kText + "," + kText + "]"), "has the text 2 times");
  expect_refused(with_single(R"([{"Sequence": {"id": "B"}}])"), "names \"B\", expected \"A\"");
  expect_refused(with_single(R"([{"SpecialToken": {"id": "<t>"}}])"), "special_tokens: has no '<t>'");
}

TEST(PostProcessor, IsWrittenAsItIsRead) {
  JsonWriter json;
  const SequenceFrame frame{.before = {1, 7}, .after = {7}};
  json.object().key("post_processor");
  write_template(frame, [](int32_t id) { return "<" + std::to_string(id) + ">"; }, json);
  const SequenceFrame again = frame_of(json.end().take());
  EXPECT_EQ(again.before, frame.before);
  EXPECT_EQ(again.after, frame.after);
}

}  // namespace
}  // namespace tutti::io
