#include "tutti/job/launch/node_news.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "tutti/core/error.h"
#include "tutti/job/printable.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::comm {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(250);

std::string encode(const NewsItem& item) {
  JsonWriter json;
  json.object().member("kind", static_cast<int>(item.kind)).member("node", item.node).member("number", item.number).member("interrupted", item.interrupted);
  if (item.kind == NewsItem::Kind::failure) {
    const LaunchFailure& failure = item.failure;
    json.member("cause", static_cast<int>(failure.kind)).member("status", failure.status).member("text", failure.text).key("lines").array();
    for (const std::string& line : failure.last_lines) json.value(line);
    json.end();
  }
  if (item.kind == NewsItem::Kind::notice) json.member("notice", item.notice);
  return json.end().take();
}

NewsItem decode(const std::string& text, const std::string& key) {
  const JsonDocument document(text, {.name = fmt::format("store key '{}'", key)}, {.depth = 8, .nbytes = size_t{16} << 20, .values = size_t{1} << 20});
  const JsonValue top = document.top();
  const auto number = [&](const char* name, int most) { return static_cast<int>(top.at(name).whole(0, most)); };
  NewsItem item{.kind = static_cast<NewsItem::Kind>(number("kind", static_cast<int>(NewsItem::Kind::notice))), .node = number("node", INT_MAX),
                .number = number("number", INT_MAX), .interrupted = top.at("interrupted").boolean(), .failure = {}};
  if (item.kind == NewsItem::Kind::failure) {
    item.failure = {.kind = static_cast<LaunchFailure::Kind>(number("cause", static_cast<int>(LaunchFailure::Kind::lost))), .status = number("status", INT_MAX),
                    .text = printable(top.at("text").string()), .last_lines = {}};
    for (const auto& [none, line] : top.at("lines")) item.failure.last_lines.push_back(printable(line.string()));
  }
  if (item.kind == NewsItem::Kind::notice) item.notice = printable(top.at("notice").string());
  return item;
}

}  // namespace

NodeNews::NodeNews(NodeMeeting& meeting, const NodeMeeting::Plan& plan, const NodeOptions& options)
    : plan_(plan), options_(options), writer_(meeting.connect()), reader_(meeting.connect()), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      has_ended_(plan.nodes.size(), false), beats_(plan.nodes.size(), {"", std::chrono::steady_clock::now()}) {
  TUTTI_CHECK_ENV(event_, "cannot watch the other nodes: {}", detail::errno_text(errno));
  thread_ = std::thread([this] { run(); });
}

NodeNews::~NodeNews() {
  stop_ = true;
  thread_.join();
}

std::string NodeNews::key(const char* name, int64_t number) const { return fmt::format("{}/{}/{}", plan_.first.restart, name, number); }

std::vector<NewsItem> NodeNews::take() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(items_, {});
}

void NodeNews::append(const NewsItem& item) {
  if (is_cut_off_) return;
  try {
    write(*writer_, item);
  } catch (const EnvironmentError&) {
    // The reading thread will say so.
  }
}

void NodeNews::write(Store& store, const NewsItem& item) {
  store.set(key("news", store.add(fmt::format("{}/count", plan_.first.restart), 1)), encode(item));
}

void NodeNews::push(NewsItem item) {
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(item));
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(event_.get(), &one, sizeof one);
}

void NodeNews::run() {
  int64_t next = 1, beat = 0;
  try {
    while (!stop_) {
      reader_->set(key("beat", plan_.first.node), std::to_string(++beat));
      if (plan_.first.node == 0) watch_the_others();
      try {
        const NewsItem item = decode(reader_->get(key("news", next), kBeat), key("news", next));
        ++next;
        TUTTI_CHECK_ENV(item.node >= 0 && item.node < static_cast<int>(has_ended_.size()), "news of node {}, which is not there", item.node);
        if (item.kind == NewsItem::Kind::ended) has_ended_[static_cast<size_t>(item.node)] = true;
        push(item);
      } catch (const StoreTimeout&) {
      }
    }
  } catch (const std::exception& error) {
    is_cut_off_ = true;
    push({.kind = NewsItem::Kind::failure, .node = plan_.first.node,
          .failure = {.kind = LaunchFailure::Kind::lost, .status = 1,
                      .text = fmt::format("the launcher{} no longer answers: {}", text_of(plan_.nodes[0]), error.what())}});
  }
}

void NodeNews::watch_the_others() {
  const auto now = std::chrono::steady_clock::now();
  for (size_t node = 1; node < beats_.size(); ++node) {
    Beat& beat = beats_[node];
    const std::string name = key("beat", static_cast<int64_t>(node));
    const std::string value = reader_->check({name}) ? reader_->get(name) : "";
    if (value != beat.value) beat = {value, now};
    if (has_ended_[node] || now - beat.since < options_.lost_after) continue;
    const int n = static_cast<int>(node);
    write(*reader_, {.kind = NewsItem::Kind::failure, .node = n,
                     .failure = {.kind = LaunchFailure::Kind::lost, .status = 1,
                                 .text = fmt::format("node {} ({}, launcher pid {}) has not given a sign of life for {} s", plan_.nodes[node].rank,
                                                     plan_.nodes[node].host, plan_.nodes[node].pid, options_.lost_after.count() / 1000)}});
    write(*reader_, {.kind = NewsItem::Kind::ended, .node = n});
    has_ended_[node] = true;
  }
}

}  // namespace tutti::comm
