// The methods of dicts and lists, and which methods of Python are refused.
#include <algorithm>

#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/method_tables.h"

namespace tutti::jinja {
namespace {

Value get(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto [key, otherwise] = arguments.bind<2>("get", {"", ""}, interpreter.meter());
  if (!key) interpreter.meter().fail("get: the key is missing");
  if (!key_of(*key)) interpreter.meter().fail("get: a {} cannot be a key", key->type_name());
  const Value* found = self.dict()->find(*key, interpreter.meter());
  return found != nullptr ? *found : otherwise.value_or(Value());
}

template <ListKind kind>
Value view(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  arguments.bind<0>("items, keys, values", {}, meter);
  meter.values(self.dict()->entries.size());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries) {
    if (kind == ListKind::items) items.emplace_back(List({key, value}, ListKind::tuple));
    else items.push_back(kind == ListKind::keys ? key : value);
  }
  return List(std::move(items), kind);
}

Value copy(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("copy", {}, interpreter.meter());
  return self;  // values do not change
}

Value list_index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [wanted] = arguments.bind<1>("index", {""}, meter);
  if (!wanted) meter.fail("index: the value is missing");
  const std::vector<Value>& items = self.list()->items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equals(items[i], *wanted, meter)) return static_cast<int64_t>(i);
  meter.fail("index: the value is not there");
}

Value list_count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [wanted] = arguments.bind<1>("count", {""}, meter);
  if (!wanted) meter.fail("count: the value is missing");
  const std::vector<Value>& items = self.list()->items;
  return std::count_if(items.begin(), items.end(), [&](const Value& item) { return equals(item, *wanted, meter); });
}

template <size_t N>
bool is_among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_plain_list(const Value& value) { return value.list() != nullptr && value.list()->kind == ListKind::list; }

}  // namespace

Builtin find_method(const Value& self, std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> kDict[] = {{"get", get},
                                                                   {"items", view<ListKind::items>},
                                                                   {"keys", view<ListKind::keys>},
                                                                   {"values", view<ListKind::values>},
                                                                   {"copy", copy}};
  static constexpr std::pair<std::string_view, Builtin> kList[] = {{"index", list_index}, {"count", list_count}};
  if (self.text() != nullptr) return find_text_method(name);
  if (self.dict() != nullptr) return find_in(kDict, name);
  if (self.list() == nullptr || self.list()->kind > ListKind::tuple) return nullptr;
  return name == "copy" && is_plain_list(self) ? copy : find_in(kList, name);
}

bool is_forbidden_method(const Value& self, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  return self.dict() != nullptr ? is_among(kDict, name) : is_plain_list(self) && is_among(kList, name);
}

bool is_unsupported_method(const Value& self, std::string_view name) {
  static constexpr std::string_view kText[] = {
      "casefold",  "center",    "encode",       "expandtabs", "format_map",  "isalnum",   "isalpha",
      "isascii",   "isdecimal", "isidentifier", "isnumeric",  "isprintable", "istitle",   "ljust",
      "maketrans", "rindex",    "rjust",        "swapcase",   "title",       "translate", "zfill"};
  return self.text() != nullptr ? is_among(kText, name) : self.dict() != nullptr && name == "fromkeys";
}

}  // namespace tutti::jinja
