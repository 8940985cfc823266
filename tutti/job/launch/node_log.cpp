#include "tutti/job/launch/node_log.h"

#include <fmt/format.h>

#include <climits>
#include <utility>

#include "tutti/job/printable.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::comm {
namespace {

// `writer` and `sequence` make every item another text, by which its writer finds it again.
std::string encode(const NewsItem& item, const std::string& writer, int64_t sequence) {
  JsonWriter json;
  json.object()
      .member("kind", static_cast<int>(item.kind))
      .member("node", item.node)
      .member("number", item.number)
      .member("interrupted", item.interrupted);
  json.member("writer", writer).member("sequence", sequence);
  if (item.kind == NewsItem::Kind::failure) {
    const LaunchFailure& failure = item.failure;
    json.member("cause", static_cast<int>(failure.kind))
        .member("status", failure.status)
        .member("text", failure.text)
        .key("lines")
        .array();
    for (const std::string& line : failure.last_lines) json.value(line);
    json.end();
  }
  if (item.kind == NewsItem::Kind::notice) json.member("notice", item.notice);
  return json.end().take();
}

NewsItem decode(const std::string& text, const std::string& key) {
  const JsonDocument document(text, {.name = fmt::format("store key '{}'", key)},
                              {.depth = 8, .nbytes = size_t{16} << 20, .values = size_t{1} << 20});
  const JsonValue top = document.top();
  const auto number = [&](const char* name, int most) { return static_cast<int>(top.at(name).whole(0, most)); };
  NewsItem item{.kind = static_cast<NewsItem::Kind>(number("kind", static_cast<int>(NewsItem::Kind::notice))),
                .node = number("node", INT_MAX),
                .number = number("number", INT_MAX),
                .interrupted = top.at("interrupted").boolean(),
                .failure = {}};
  if (item.kind == NewsItem::Kind::failure) {
    item.failure = {
        .kind = static_cast<LaunchFailure::Kind>(number("cause", static_cast<int>(LaunchFailure::Kind::lost))),
        .status = number("status", INT_MAX),
        .text = printable(top.at("text").string()),
        .last_lines = {}};
    for (const auto& [none, line] : top.at("lines")) item.failure.last_lines.push_back(printable(line.string()));
  }
  if (item.kind == NewsItem::Kind::notice) item.notice = printable(top.at("notice").string());
  return item;
}

}  // namespace

NodeLog::NodeLog(std::shared_ptr<Store> store, int restart, std::string writer)
    : store_(std::move(store)), restart_(restart), writer_(std::move(writer)) {}

std::string NodeLog::key(int64_t number) const { return fmt::format("{}/news/{}", restart_, number); }

void NodeLog::write(const NewsItem& item) {
  const std::string text = encode(item, writer_, written_ + 1);
  // The store returns the item that is there where a number is taken. Only after success does the search begin further
  // on.
  int64_t number = free_;
  while (store_->compare_set(key(number), "", text) != text) ++number;
  free_ = number + 1;
  ++written_;
}

std::optional<NewsItem> NodeLog::read(std::chrono::milliseconds limit) {
  std::string text;
  try {
    text = store_->get(key(next_), limit);
  } catch (const StoreTimeout&) {
    return std::nullopt;
  }
  NewsItem item = decode(text, key(next_));
  ++next_;
  return item;
}

}  // namespace tutti::comm
