#include "tutti/job/launch/node_news.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/job/launch/node_log.h"

namespace tutti::comm {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(250);

}  // namespace

NodeNews::NodeNews(std::shared_ptr<Store> store, const NodeMeeting::Plan& plan, const NodeOptions& options)
    : plan_(plan),
      options_(options),
      reading_store_(store->clone()),
      log_(std::make_unique<NodeLog>(std::move(store), plan.first.restart, fmt::format("{}", plan.first.node))),
      reading_log_(
          std::make_unique<NodeLog>(reading_store_, plan.first.restart, fmt::format("{}, watching", plan.first.node))),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      has_ended_(plan.nodes.size(), false),
      beats_(plan.nodes.size(), {"", std::chrono::steady_clock::now()}) {
  TUTTI_CHECK_ENV(event_, "cannot watch the other nodes: {}", detail::errno_text(errno));
  thread_ = std::thread([this] { run(); });
}

NodeNews::~NodeNews() {
  stop_ = true;
  thread_.join();
}

std::string NodeNews::beat_key(int node) const { return fmt::format("{}/beat/{}", plan_.first.restart, node); }

std::vector<NewsItem> NodeNews::take() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(items_, {});
}

void NodeNews::append(const NewsItem& item) {
  if (is_cut_off_) return;
  try {
    log_->write(item);
  } catch (const std::exception& error) {
    cut_off(error.what());
  }
}

void NodeNews::push(NewsItem item) {
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(item));
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(event_.get(), &one, sizeof one);
}

// Whichever thread notices first.
void NodeNews::cut_off(const std::string& why) {
  if (is_cut_off_.exchange(true)) return;
  push({.kind = NewsItem::Kind::failure,
        .node = plan_.first.node,
        .failure = {.kind = LaunchFailure::Kind::lost,
                    .status = 1,
                    .text = fmt::format("the launcher{} no longer answers: {}", text_of(plan_.nodes[0]), why),
                    .last_lines = {}}});
}

void NodeNews::run() {
  int64_t beat = 0;
  try {
    while (!stop_ && !is_cut_off_) {
      reading_store_->set(beat_key(plan_.first.node), std::to_string(++beat));
      if (plan_.first.node == 0) watch_the_others();
      std::optional<NewsItem> item = reading_log_->read(kBeat);
      if (!item) continue;
      TUTTI_CHECK_ENV(item->node >= 0 && item->node < static_cast<int>(has_ended_.size()),
                      "news of node {}, which is not there", item->node);
      if (item->kind == NewsItem::Kind::ended) has_ended_[static_cast<size_t>(item->node)] = true;
      push(std::move(*item));
    }
  } catch (const std::exception& error) {
    cut_off(error.what());
  }
}

void NodeNews::watch_the_others() {
  const auto now = std::chrono::steady_clock::now();
  for (size_t node = 1; node < beats_.size(); ++node) {
    Beat& beat = beats_[node];
    const int n = static_cast<int>(node);
    const std::string name = beat_key(n);
    const std::string value = reading_store_->check({name}) ? reading_store_->get(name) : "";
    if (value != beat.value) beat = {value, now};
    if (has_ended_[node] || now - beat.since < options_.lost_after) continue;
    reading_log_->write(
        {.kind = NewsItem::Kind::failure,
         .node = n,
         .failure = {.kind = LaunchFailure::Kind::lost,
                     .status = 1,
                     .text = fmt::format("node {} ({}, launcher pid {}) has not given a sign of life for {} s",
                                         plan_.nodes[node].rank, plan_.nodes[node].host, plan_.nodes[node].pid,
                                         options_.lost_after.count() / 1000),
                     .last_lines = {}}});
    reading_log_->write({.kind = NewsItem::Kind::ended, .node = n, .failure = {}});
    has_ended_[node] = true;
  }
}

}  // namespace tutti::comm
