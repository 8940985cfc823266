// Post-processors of tokenizer.json, as far as they put ids around one text. Those of pairs of texts are not read.
#include <algorithm>
#include <utility>

#include "tutti/io/tokenizer_json.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::io {
namespace {

class FrameReader {
 public:
  explicit FrameReader(const std::function<bool(int32_t)>& is_token) : is_token_(is_token) {}

  void read(const JsonValue& step) {
    const std::string type = step_type(step);
    if (type == "Sequence") {
      const JsonValue steps = step.at("processors");
      if (!steps.is_array()) steps.fail("is {}, expected an array", steps.shown());
      for (const auto& [none, inner] : steps) {
        if (step_type(inner) == "Sequence") inner.fail("is a Sequence inside another");
        read(inner);
      }
    } else if (type == "TemplateProcessing") {
      read_template(step);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      add({id_of_pair(step.at("cls"))}, {id_of_pair(step.at("sep"))});
    } else if (type != "ByteLevel") {
      step.fail(
          "is '{}'; supported are ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing and a Sequence of "
          "them",
          type);
    }
  }

  SequenceFrame frame;

 private:
  int32_t known_id(const JsonValue& value) const {
    const int32_t id = token_id_of(value);
    if (!is_token_(id)) value.fail("is {}, which is no token", id);
    return id;
  }

  // ["[CLS]", 101]
  int32_t id_of_pair(const JsonValue& pair) const {
    if (!pair.is_array() || pair.size() != 2) pair.fail("is {}, expected a token and its id", pair.shown());
    auto entry = pair.begin();
    return known_id((*++entry).value);
  }

  // Each step of a Sequence puts its ids around those of the steps before it.
  void add(std::vector<int32_t> before, const std::vector<int32_t>& after) {
    before.insert(before.end(), frame.before.begin(), frame.before.end());
    frame.before = std::move(before);
    frame.after.insert(frame.after.end(), after.begin(), after.end());
  }

  void read_template(const JsonValue& step) {
    const JsonValue parts = step.at("single"), tokens = step.at("special_tokens");
    if (!parts.is_array()) parts.fail("is {}, expected an array", parts.shown());
    std::vector<int32_t> before, after;
    int texts = 0;
    for (const auto& [none, part] : parts) {
      if (const auto text = part.find_set("Sequence")) {
        if (text->at("id").text() != "A") text->fail("names {}, expected \"A\"", text->at("id").shown());
        ++texts;
        continue;
      }
      const JsonValue ids = tokens.at(part.at("SpecialToken").at("id").text()).at("ids");
      if (!ids.is_array()) ids.fail("is {}, expected an array", ids.shown());
      for (const auto& [no_key, id] : ids) (texts == 0 ? before : after).push_back(known_id(id));
    }
    if (texts != 1) parts.fail("has the text {} times, expected once", texts);
    add(std::move(before), after);
  }

  const std::function<bool(int32_t)>& is_token_;
};

}  // namespace

SequenceFrame read_post_processor(const JsonValue& top, const std::function<bool(int32_t)>& is_token) {
  FrameReader reader(is_token);
  if (const auto step = top.find_set("post_processor")) reader.read(*step);
  return std::move(reader.frame);
}

void write_template(const SequenceFrame& frame, const std::function<std::string(int32_t)>& content_of,
                    JsonWriter& json) {
  const auto text = [&](const char* name, int type) {
    json.object().key("Sequence").object().member("id", name).member("type_id", type).end().end();
  };
  const auto tokens = [&](const std::vector<int32_t>& ids, int type) {
    for (const int32_t id : ids) {
      json.object().key("SpecialToken").object().member("id", content_of(id)).member("type_id", type).end().end();
    }
  };
  json.object().member("type", "TemplateProcessing").key("single").array();
  tokens(frame.before, 0);
  text("A", 0);
  tokens(frame.after, 0);
  json.end().key("pair").array();
  tokens(frame.before, 0);
  text("A", 0);
  tokens(frame.after, 0);
  text("B", 1);
  tokens(frame.after, 1);
  json.end().key("special_tokens").object();
  std::vector<int32_t> written;
  for (const std::vector<int32_t>* side : {&frame.before, &frame.after}) {
    for (const int32_t id : *side) {
      if (std::find(written.begin(), written.end(), id) != written.end()) continue;
      written.push_back(id);
      json.key(content_of(id)).object().member("id", content_of(id)).key("ids").array().value(id).end();
      json.key("tokens").array().value(content_of(id)).end().end();
    }
  }
  json.end().end();
}

}  // namespace tutti::io
