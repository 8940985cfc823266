// Chat templates against Jinja2; tests/io/chat_templates/make_cases.py made the files.
#include "tutti/io/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include "tests/io/support/chat_inputs.h"
#include "tests/support/message_of.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

using testing::chat_input;
using testing::render_with;

using Spans = std::vector<ChatSpan>;

const JsonDocument& cases() {
  static const auto document = JsonDocument::read(TUTTI_SOURCE_DIR "/tests/io/chat_templates/cases.json");
  return document;
}

std::string refusal_of(const std::string& source, const char* input = "{}") {
  return message_of([&] { render_with(source, input); });
}

Spans spans_of(const std::string& source, const char* input) { return render_with(source, input).spans; }

TEST(ChatTemplate, MakesOfEachFeatureWhatJinja2Makes) {
  const JsonValue top = cases().top();
  const ChatInput input = chat_input(top.at("variables"));
  int raised = 0;
  for (const auto& [key, row] : top.at("cases")) {
    const auto part = [row = row](int i) { return testing::json_item(row, i); };
    const std::string source = part(0).string();
    SCOPED_TRACE(source);
    if (part(1).is_null()) {
      EXPECT_THROW(ChatTemplate::parse(source, "case").render(input), UsageError);
      ++raised;
      continue;
    }
    const RenderedChat chat = ChatTemplate::parse(source, "case").render(input);
    EXPECT_EQ(chat.text(), part(1).text());
    std::vector<std::pair<int64_t, int64_t>> expected, found;
    for (const auto& [index, span] : part(2))
      expected.emplace_back(testing::json_item(span, 0).whole(), testing::json_item(span, 1).whole());
    int64_t at = 0;
    for (const ChatSpan& span : chat.spans) {
      const int64_t end = at + std::ssize(span.text);
      if (span.is_assistant && !found.empty() && found.back().second == at) found.back().second = end;
      else if (span.is_assistant) found.emplace_back(at, end);
      at = end;
    }
    EXPECT_EQ(found, expected);
  }
  EXPECT_GT(raised, 50);
}

TEST(ChatTemplate, MarksWhatComesFromAUser) {
  const char* const chat = R"({"messages": [{"role": "user", "content": " <|im_end|> "}]})";
  EXPECT_EQ(spans_of("<s>{{ messages[0].content | trim }}</s>", chat),
            (Spans{{"<s>"}, {.text = "<|im_end|>", .is_from_user = true}, {"</s>"}}));
  EXPECT_EQ(spans_of("{{ 'a' + messages[0].content.split('|')[1] ~ 'b' }}", chat),
            (Spans{{"a"}, {.text = "im_end", .is_from_user = true}, {"b"}}));
  EXPECT_EQ(spans_of("{{ ['x', messages[0].content.strip()] | join('-') }}", chat),
            (Spans{{"x-"}, {.text = "<|im_end|>", .is_from_user = true}}));
  EXPECT_EQ(spans_of("{{ 'x y' | replace('y', messages[0].content[1:4]) | upper }}", chat),
            (Spans{{"X "}, {.text = "<|I", .is_from_user = true}}));
  EXPECT_EQ(spans_of("{{ messages[0].content.replace('im_', 'IM_') }}", chat),
            (Spans{{.text = " <|", .is_from_user = true}, {"IM_"}, {.text = "end|> ", .is_from_user = true}}));
  EXPECT_EQ(
      spans_of("{% macro m(x) %}[{{ x }}]{% endmacro %}{% set y %}{{ m(messages[0].role) }}{% endset %}{{ y }}", chat),
      (Spans{{"["}, {.text = "user", .is_from_user = true}, {"]"}}));
  EXPECT_EQ(spans_of("{{ 'tr{}e'.format(messages[0].role) }}", chat),
            (Spans{{"tr"}, {.text = "user", .is_from_user = true}, {"e"}}));
}

TEST(ChatTemplate, MarksKeysAndValuesOfJsonFromAUser) {
  EXPECT_EQ(spans_of("{{ tools | tojson }}", R"({"tools": [{"a\n": "b"}, 1.5]})"),
            (Spans{{"[{\""},
                   {.text = "a\\n", .is_from_user = true},
                   {"\": \""},
                   {.text = "b", .is_from_user = true},
                   {"\"}, 1.5]"}}));
  EXPECT_EQ(spans_of("{{ documents[0] }}{{ hint }}", R"({"documents": [["x"]], "hint": "y"})"),
            (Spans{{"['"}, {.text = "x", .is_from_user = true}, {"']"}, {.text = "y", .is_from_user = true}}));
}

TEST(ChatTemplate, MarksWhatTheAssistantSays) {
  EXPECT_EQ(spans_of("<a>{% generation %}{{ messages[0].content }}</a>{% endgeneration %}\n",
                     R"({"messages": [{"role": "assistant", "content": "yes"}]})"),
            (Spans{{"<a>"},
                   {.text = "yes", .is_from_user = true, .is_assistant = true},
                   {.text = "</a>", .is_assistant = true}}));
  EXPECT_TRUE(ChatTemplate::parse("{% generation %}{% endgeneration %}", "t").has_generation());
  EXPECT_FALSE(ChatTemplate::parse("generation", "t").has_generation());
}

TEST(ChatTemplate, GivesReasoningAllNamesThatTemplatesKnow) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const std::string chat =
        fmt::format(R"({{"messages": [{{"role": "assistant", "{}": "r", "content": null}}]}})", name);
    EXPECT_EQ(
        render_with("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}{{ messages[0].content is defined }}",
                    chat.c_str())
            .text(),
        "rrFalse");
  }
}

TEST(ChatTemplate, RefusesByNameWhatItDoesNotSupport) {
  EXPECT_EQ(refusal_of("a\n{% include 'x' %}"), "chat:2: the tag 'include' is not supported");
  EXPECT_EQ(refusal_of("{% call m() %}{% endcall %}"), "chat:1: the tag 'call' is not supported");
  EXPECT_EQ(refusal_of("\n\n{{ 1 | pprint }}"), "chat:3: the filter 'pprint' is not supported");
  EXPECT_EQ(refusal_of("{{ 1 is escaped }}"), "chat:1: the test 'escaped' is not supported");
  EXPECT_EQ(refusal_of("{{ 'a'.title() }}"), "chat:1: the method 'title' of a str is not supported");
  EXPECT_EQ(refusal_of("{{ f(*[1]) }}"), "chat:1: arguments that a list or dict holds (*) are not supported");
  EXPECT_EQ(refusal_of("{{ 'a' % 1 }}"), "chat:1: the operator % on a text is not supported");
  EXPECT_EQ(refusal_of("{{ strftime_now('%Q') }}"), "chat:1: strftime_now: the directive '%Q' is not supported");
  EXPECT_EQ(refusal_of("{% for x in [1] recursive %}{% endfor %}"), "chat:1: a recursive loop is not supported");
  EXPECT_EQ(refusal_of("{% macro m() %}{{ kwargs }}{% endmacro %}"), "chat:1: 'kwargs' of a macro is not supported");
  EXPECT_EQ(refusal_of("{% for x in [1] %}{% macro m() %}{% endmacro %}{% endfor %}"),
            "chat:1: the macro 'm' inside a loop, macro or captured block is not supported");
}

TEST(ChatTemplate, SaysWhereAndWhatIsWrong) {
  EXPECT_EQ(refusal_of("a\nb {{ nope.x }}"), "chat:2: 'nope' is undefined");
  EXPECT_EQ(refusal_of("{{ messages[0].content.x }}", R"({"messages": [{"role": "user"}]})"),
            "chat:1: a dict has no attribute 'content'");
  EXPECT_EQ(refusal_of("{{ 'a' + 1 }}"), "chat:1: the operator + does not take a str and a int");
  EXPECT_EQ(refusal_of("{{ raise_exception('roles must alternate') }}"),
            "chat:1: the template refuses this chat: roles must alternate");
  EXPECT_EQ(refusal_of("{{ [1].append(2) }}"),
            "chat:1: the method 'append' would change a list, which the sandbox of templates forbids");
  EXPECT_EQ(refusal_of("{{ 9223372036854775807 + 1 }}"), "chat:1: 9223372036854775807 + 1 does not fit 64 bits");
  EXPECT_EQ(refusal_of("{% if 1 %}"), "chat:1: the template ends where a tag 'endif' is expected");
  EXPECT_EQ(refusal_of("{% endfor %}"), "chat:1: the tag 'endfor' closes nothing that is open");
  EXPECT_EQ(refusal_of("{{ (1] }}"), "chat:1: unexpected ']'");
  EXPECT_EQ(refusal_of("{{ ä }}"), "chat:1: unexpected character 'ä' in a tag");
  EXPECT_EQ(refusal_of("\xff"), "chat: byte 1 of the template is not UTF-8");
  EXPECT_EQ(refusal_of("", R"({"messages": {}})"), "input: messages: is an object; expected the list of messages");
  EXPECT_EQ(refusal_of("", R"({"messages": ["hi"]})"),
            "input: messages[0]: is \"hi\"; a message is an object with role and content");
}

}  // namespace
}  // namespace tutti
