// Templates that strangers wrote to hold up or crash the program.
#include <gtest/gtest.h>

#include <thread>

#include "tests/io/support/chat_inputs.h"
#include "tests/support/message_of.h"

namespace tutti {
namespace {

using testing::render_with;

std::string refusal_of(const std::string& source, const ChatTemplateLimits& limits = {}) {
  return message_of([&] { render_with(source, R"({"text": "0123456789"})", limits); });
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(HostileChatTemplate, EndsInTheEnd) {
  const std::string loop = "{% for i in range(100000) %}";
  EXPECT_EQ(refusal_of(loop + loop + "{% endfor %}{% endfor %}"),
            "chat:1: this takes more than 16777216 steps; the template may not end");
  EXPECT_EQ(refusal_of("{% for a in range(20) %}\n{{ a }}{% endfor %}", {.steps = 150}),
            "chat:2: this takes more than 150 steps; the template may not end");
  const std::string ten = repeated("{% for i in range(10) %}", 30) + repeated("{% endfor %}", 30);
  EXPECT_NE(refusal_of(ten).find("may not end"), std::string::npos);
  EXPECT_NE(refusal_of("{% macro m(n) %}{{ m(n) ~ m(n) }}{% endmacro %}{{ m(1) }}").find("too deeply"),
            std::string::npos);
  EXPECT_NE(refusal_of("{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}")
                .find("may not end"),
            std::string::npos);
  EXPECT_NE(refusal_of("{{ 1 ** 9223372036854775807 }}").find("may not end"), std::string::npos);
}

TEST(HostileChatTemplate, MakesNoHugeValues) {
  EXPECT_EQ(refusal_of("{{ 'a' * 9223372036854775807 }}"), "chat:1: this makes a text of more than 16777216 bytes");
  EXPECT_EQ(refusal_of("{{ [1] * 99999999 }}"), "chat:1: this makes a list of more than 1048576 values");
  EXPECT_EQ(refusal_of("{{ range(100001) }}"), "chat:1: range has more than 100000 values");
  const std::string doubling =
      "{% set ns = namespace(t='x') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}";
  EXPECT_EQ(refusal_of(doubling), "chat:1: this makes a text of more than 16777216 bytes");
  EXPECT_EQ(refusal_of("{% for i in range(100000) %}{{ text }}{% endfor %}", {.text_nbytes = 5000}),
            "chat:1: this makes a text of more than 5000 bytes");
  EXPECT_NE(refusal_of("{% set t = 'a' * 999999 %}{{ t | replace('a', t) }}").find("a text of more than"),
            std::string::npos);
  EXPECT_NE(refusal_of("{% set t = 'a' * 999999 %}{{ t.replace('', t) }}").find("a text of more than"),
            std::string::npos);
  EXPECT_NE(
      refusal_of("{{ [1, 2] | tojson(indent=9999999) | length }}{% set t = ['a'] * 999999 %}{{ t | join('b' * 99) }}")
          .find("a text of more than"),
      std::string::npos);
  EXPECT_NE(refusal_of("{% set l = ['a' * 99999] * 9999 %}{{ l }}").find("a text of more than"), std::string::npos);
  EXPECT_NE(refusal_of("{% set l = ['a' * 99999] * 9999 %}{{ l | tojson }}").find("a text of more than"),
            std::string::npos);
  EXPECT_NE(refusal_of("{{ ('a\n' * 999999) | indent(9999) }}").find("a text of more than"), std::string::npos);
  EXPECT_NE(refusal_of("{{ 'a' | indent(9223372036854775807) }}").find("a text of more than"), std::string::npos);
  EXPECT_NE(refusal_of("{{ ('{0}' * 9999).format('a' * 9999) }}").find("a text of more than"), std::string::npos);
}

TEST(HostileChatTemplate, SearchesInLinearTime) {
  // Each of these would take hours if every place of the text were compared with all of what is looked for.
  const std::string texts = "{% set t = 'a' * 400000 %}{% set w = 'a' * 200000 ~ 'b' %}";
  for (const char* search :
       {"{{ t.find(w) }}", "{{ w in t }}", "{{ t.rfind('b' ~ t[:200000]) }}", "{{ t.split(w) | length }}",
        "{{ t.rsplit('b' ~ t[:200000]) | length }}", "{{ t | replace(w, '') | length }}", "{{ t.count(w) }}",
        "{{ t.partition(w)[1] }}", "{{ t.strip('b' * 200000 ~ 'a') | length }}"})
    EXPECT_EQ(refusal_of(texts + search), "no error") << search;
  const std::string many = "{% set t = 'a' * 1000000 %}{% set l = [t ~ 'x', t ~ 'y'] * 1000 %}";
  EXPECT_NE(refusal_of(many + "{{ l | sort | length }}").find("may not end"), std::string::npos);
  EXPECT_NE(refusal_of(many + "{{ (t ~ 'z') in l }}").find("may not end"), std::string::npos);
  EXPECT_NE(refusal_of(many + "{{ l | unique | list | length }}").find("may not end"), std::string::npos);
  EXPECT_NE(refusal_of("{{ ('a' * 9999999).split('a') }}").find("a list of more than"), std::string::npos);
  EXPECT_NE(refusal_of("{{ ('a ' * 4999999).split() }}").find("a list of more than"), std::string::npos);
  EXPECT_NE(refusal_of("{{ ('\n' * 9999999).splitlines() }}").find("a list of more than"), std::string::npos);
  EXPECT_NE(refusal_of("{{ ('a' * 9999999) | list }}").find("a list of more than"), std::string::npos);
}

TEST(HostileChatTemplate, KnowsManyNames) {
  std::string names = "{% for i in range(100) %}";
  for (int i = 0; i < 20000; ++i) names += fmt::format("{{% set v{} = 1 %}}", i);
  EXPECT_EQ(refusal_of(names + "{% endfor %}"), "no error");
  std::string call = "{{ namespace(";
  for (int i = 0; i < 300; ++i) call += fmt::format("v{}=1,", i);
  EXPECT_EQ(refusal_of(call + ") }}"), "chat:1: a call has more than 255 arguments");
  std::string macro = "{% macro m(";
  for (int i = 0; i < 300; ++i) macro += fmt::format("v{},", i);
  EXPECT_EQ(refusal_of(macro + ") %}{% endmacro %}"), "chat:1: a macro has more than 255 parameters");
}

TEST(HostileChatTemplate, NestsNothingDeeply) {
  const std::pair<const char*, const char*> kBrackets[] = {
      {"(", ")"},  {"[", "]"},          {"{1:", "}"}, {"-", ""},      {"not ", ""}, {"1 if 1 else ", ""},
      {"a(", ")"}, {"a|default(", ")"}, {"a[", "]"},  {"1 - (", ")"}, {"+", ""}};
  for (const auto& [open, close] : kBrackets)
    EXPECT_NE(refusal_of("{{ " + repeated(open, 50000) + "1" + repeated(close, 50000) + " }}").find("deep"),
              std::string::npos)
        << open;
  for (const char* open :
       {"{% if 1 %}", "{% for i in a %}", "{% set x %}", "{% generation %}", "{% filter trim %}", "{% with %}"})
    EXPECT_NE(refusal_of(repeated(open, 10000)).find("deep"), std::string::npos) << open;
  EXPECT_NE(refusal_of("{{ a" + repeated(".a", 10000) + " }}").find("deep"), std::string::npos);
  EXPECT_NE(refusal_of("{{ a" + repeated("|trim", 10000) + " }}").find("deep"), std::string::npos);
  EXPECT_NE(refusal_of("{{ 1" + repeated("-1", 10000) + " }}").find("deep"), std::string::npos);
  EXPECT_EQ(render_with("{{ 1" + repeated("+1", 10000) + " }}", "{}").text(), "10001") << "a sum is not deep";
  EXPECT_EQ(render_with("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% else %}x{% endif %}", "{}").text(), "x");
}

TEST(HostileChatTemplate, BuildsNoDeepValues) {
  const std::string grow =
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}";
  EXPECT_EQ(refusal_of(grow), "chat:1: lists and dicts are nested more than 200 deep");
  EXPECT_NE(refusal_of("{% set ns = namespace(l=1) %}{% for i in range(999) %}{% set ns.l = {'a': ns.l} %}{% endfor %}")
                .find("nested more than 200 deep"),
            std::string::npos);
  // Namespaces that hold each other are freed; the sanitizer would say.
  EXPECT_EQ(render_with("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}"
                        "{% for i in [1] %}{% set a.l = loop %}{% endfor %}{{ a.l.last }}",
                        "{}")
                .text(),
            "True");
}

TEST(HostileChatTemplate, RecursesWithinTheStackOfAThread) {
  // Every level of the recursion of macros passes through as many levels of the tree as may be.
  const std::string deep = "{% macro m(n) %}" + repeated("{% if 1 %}", 40) + "{{ " + repeated("[", 30) + "m(n)" +
                           repeated("]", 30) + " }}" + repeated("{% endif %}", 40) + "{% endmacro %}{{ m(1) }}";
  std::string message;
  std::thread([&] { message = refusal_of(deep); }).join();
  EXPECT_NE(message.find("macros call each other too deeply"), std::string::npos) << message;
}

TEST(HostileChatTemplate, SortsValuesWithoutAnOrder) {
  // NaN is less than nothing, which no order of a set is.
  const std::string nan = "(1e308 * 10 - 1e308 * 10)";
  const std::string list = "[3, " + nan + ", 1, " + nan + ", 2]";
  EXPECT_EQ(render_with("{{ (" + list + " * 50) | sort | length }}", "{}").text(), "250");
}

}  // namespace
}  // namespace tutti
