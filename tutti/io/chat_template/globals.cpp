// The functions that every template can call.
#include "tutti/io/chat_template/date_text.h"
#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/method_tables.h"
#include "tutti/io/chat_template/value_text.h"

namespace tutti::jinja {
namespace {

constexpr int64_t kMostRange = 100000;  // Jinja2's sandbox has the same bound

// The entries of dict(mapping or pairs, name=value, ...).
Dict dict_of(Interpreter& interpreter, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  if (arguments.positional.size() > 1) meter.fail("dict and namespace take one argument without a name");
  Dict made;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.dict() != nullptr) made = *source.dict();
    else {
      for (const Value& entry : iterate(source, meter)) {
        const std::vector<Value> pair = iterate(entry, meter);
        if (pair.size() != 2) meter.fail("dict: an entry has {} parts instead of a key and a value", pair.size());
        made.set(pair[0], pair[1], meter);
      }
    }
    meter.values(made.entries.size());
  }
  for (const auto& [name, value] : arguments.keywords) made.set(Value::of_text(name), value, meter);
  return made;
}

Value make_dict(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  return dict_of(interpreter, arguments);
}

Value make_names(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  const Dict entries = dict_of(interpreter, arguments);
  const Value names = interpreter.make_namespace();
  for (const auto& [key, value] : entries.entries) {
    const std::string& name = text_argument(key, "namespace: a name", interpreter.meter()).bytes();
    if (name.starts_with('_'))
      interpreter.meter().fail("the attribute '{}' of a namespace begins with an underscore", name);
    names.names()->set(name, value);
  }
  return names;
}

Value make_range(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [first, second, third] = arguments.bind<3>("range", {"start", "stop", "step"}, meter);
  const int64_t start = second ? whole_argument(first, "range: start", meter) : 0;
  const int64_t stop = whole_argument(second ? second : first, "range: stop", meter);
  const int64_t step = third ? whole_argument(third, "range: step", meter) : 1;
  if (step == 0) meter.fail("range: step is 0");
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (std::ssize(items) == kMostRange) meter.fail("range has more than {} values", kMostRange);
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  meter.values(items.size());
  return List(std::move(items), ListKind::range);
}

Value raise_exception(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [message] = arguments.bind<1>("raise_exception", {"message"}, meter);
  constexpr size_t kMostShown = 1000;
  const std::string text = message ? to_text(*message, meter).bytes() : "";
  meter.fail("the template refuses this chat: {}",
             text.size() > kMostShown ? text.substr(0, kMostShown) + "..." : text);
}

Value strftime_now(Interpreter& interpreter, const Value&, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [format] = arguments.bind<1>("strftime_now", {"format"}, meter);
  const MarkedText& wanted = text_argument(format, "strftime_now: format", meter);
  meter.text(wanted.size() * kMostDateGrowth);
  const DateText made = date_text(wanted.bytes(), interpreter.now());
  if (!made.fault.empty()) meter.fail_with("strftime_now: " + made.fault);
  return Value::of_text(made.text);
}

}  // namespace

Builtin find_global(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> kGlobals[] = {{"dict", make_dict},
                                                                      {"namespace", make_names},
                                                                      {"range", make_range},
                                                                      {"raise_exception", raise_exception},
                                                                      {"strftime_now", strftime_now}};
  return find_in(kGlobals, name);
}

}  // namespace tutti::jinja
