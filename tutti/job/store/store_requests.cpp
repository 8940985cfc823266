#include "tutti/job/store/store_requests.h"

#include <new>

#include "tutti/job/store/store_rules.h"

namespace tutti::comm {

template <class Make>
void StoreRequests::answer(Client client, const Make& fn) {
  const auto fail = [](WireStatus status, std::string_view text) {
    return WireWriter(status).put_bytes(text).finish();
  };
  std::string frame;
  try {
    frame = fn();
  } catch (const WireError&) {
    throw;
  } catch (const UsageError& error) {
    frame = fail(WireStatus::kUsageError, error.what());
  } catch (const Error& error) {
    frame = fail(WireStatus::kEnvironmentError, error.what());
  } catch (const std::bad_alloc&) {
    frame = fail(WireStatus::kEnvironmentError, "store: the server is out of memory");
  }
  if (!frame.empty()) reply_(client, std::move(frame));
}

void StoreRequests::handle(Client client, uint8_t code, std::string_view bytes) {
  WireReader body(bytes);
  // Replies of calls that change the table are sent before those who wait for the change are served.
  switch (static_cast<WireOp>(code)) {
    case WireOp::kGet:
      return get(client, body);
    case WireOp::kQueuePop:
      return queue_pop(client, body);
    case WireOp::kBarrier:
      return barrier(client, body);
    default:
      return dispatch(client, static_cast<WireOp>(code), body);
  }
}

void StoreRequests::dispatch(Client client, WireOp op, WireReader& body) {
  Store::Keys changed;
  std::string pushed;
  answer(client, [&]() -> std::string {
    WireWriter reply(WireStatus::kOk);
    switch (op) {
      case WireOp::kSet: {
        const std::string_view key = body.read_bytes(), value = body.read_bytes();
        body.expect_end();
        table_.set(key, value);
        changed = {std::string(key)};
        break;
      }
      case WireOp::kAdd: {
        const std::string_view key = body.read_bytes();
        const int64_t amount = body.read_i64();
        body.expect_end();
        reply.put_i64(table_.add(key, amount));
        changed = {std::string(key)};
        break;
      }
      case WireOp::kCompareSet: {
        const std::string_view key = body.read_bytes(), expected = body.read_bytes(), desired = body.read_bytes();
        body.expect_end();
        reply.put_bytes(table_.compare_set(key, expected, desired));
        changed = {std::string(key)};
        break;
      }
      case WireOp::kAppend: {
        const std::string_view key = body.read_bytes(), value = body.read_bytes();
        body.expect_end();
        table_.append(key, value);
        changed = {std::string(key)};
        break;
      }
      case WireOp::kMultiSet: {
        const Store::Keys keys = body.read_list(kMaxStoreKeys);
        const std::vector<std::string> values = body.read_list(kMaxStoreKeys);
        body.expect_end();
        table_.set_all(keys, values);
        changed = keys;
        break;
      }
      case WireOp::kQueuePush: {
        const std::string_view key = body.read_bytes(), value = body.read_bytes();
        body.expect_end();
        table_.push(key, value);
        pushed = key;
        break;
      }
      case WireOp::kDelete: {
        const std::string_view key = body.read_bytes();
        body.expect_end();
        reply.put_u8(table_.erase(key));
        break;
      }
      case WireOp::kCheck: {
        const Store::Keys keys = body.read_list(kMaxStoreKeys);
        body.expect_end();
        reply.put_u8(table_.first_missing(keys) == keys.size());
        break;
      }
      case WireOp::kCount:
        body.expect_end();
        reply.put_i64(table_.size());
        break;
      case WireOp::kList: {
        const std::string_view prefix = body.read_bytes();
        body.expect_end();
        reply.put_list(table_.list(prefix));
        break;
      }
      case WireOp::kQueueLen: {
        const std::string_view key = body.read_bytes();
        body.expect_end();
        reply.put_i64(table_.queue_len(key));
        break;
      }
      default:
        throw WireError(fmt::format("unknown request code {}", static_cast<int>(op)));
    }
    return reply.finish();
  });
  for (const std::string& key : changed) key_changed(key);
  if (!pushed.empty()) value_pushed(pushed);
}

std::string StoreRequests::values_frame(const Store::Keys& keys, bool wants_values) const {
  WireWriter reply(WireStatus::kOk);
  if (wants_values) {
    for (const std::string& key : keys) reply.put_bytes(*table_.find(key));
  }
  return reply.finish();
}

void StoreRequests::get(Client client, WireReader& body) {
  answer(client, [&]() -> std::string {
    Waiting waiting{.reason = Reason::kKeys};
    waiting.wants_values = body.read_u8() != 0;
    const int64_t timeout_ms = body.read_i64();
    waiting.keys = body.read_list(kMaxStoreKeys);
    body.expect_end();
    waiting.first_missing = table_.first_missing(waiting.keys);
    waiting.num_erased = table_.num_erased();
    if (waiting.first_missing == waiting.keys.size()) return values_frame(waiting.keys, waiting.wants_values);
    if (timeout_ms <= 0) return timeout_frame(waiting);
    park(client, std::move(waiting), timeout_ms);
    return "";
  });
}

void StoreRequests::queue_pop(Client client, WireReader& body) {
  answer(client, [&]() -> std::string {
    Waiting waiting{.reason = Reason::kQueue};
    const bool block = body.read_u8() != 0;
    const int64_t timeout_ms = body.read_i64();
    waiting.keys = {std::string(body.read_bytes())};
    body.expect_end();
    if (const auto value = table_.pop(waiting.keys[0])) {
      return WireWriter(WireStatus::kOk).put_u8(1).put_bytes(*value).finish();
    }
    if (!block) return WireWriter(WireStatus::kOk).put_u8(0).put_bytes("").finish();
    if (timeout_ms <= 0) return timeout_frame(waiting);
    park(client, std::move(waiting), timeout_ms);
    return "";
  });
}

void StoreRequests::barrier(Client client, WireReader& body) {
  answer(client, [&]() -> std::string {
    Waiting waiting{.reason = Reason::kBarrier};
    waiting.keys = {std::string(body.read_bytes())};
    const int64_t world_size = body.read_i64();
    const int64_t timeout_ms = body.read_i64();
    body.expect_end();
    waiting.round = table_.arrive(waiting.keys[0], world_size);
    const std::string name = name_of(Reason::kBarrier, waiting.keys[0]);
    if (waiting.round->is_complete()) {
      const std::string done = WireWriter(WireStatus::kOk).finish();
      while (by_name_.contains(name)) {
        const Client other = by_name_.find(name)->second.begin()->second;
        unpark(other);
        reply_(other, done);
      }
      return done;
    }
    if (timeout_ms <= 0) {
      std::string frame = timeout_frame(waiting);
      table_.leave(waiting.keys[0]);
      return frame;
    }
    park(client, std::move(waiting), timeout_ms);
    return "";
  });
}

void StoreRequests::park(Client client, Waiting waiting, int64_t timeout_ms) {
  waiting.ticket = next_ticket_++;
  waiting.deadline = StoreDeadline(std::chrono::milliseconds(timeout_ms)).moment();
  deadlines_.emplace(waiting.deadline, client);
  const std::string key = waiting.keys[waiting.first_missing];
  stand_under(client, waiting_.emplace(client, std::move(waiting)).first->second, key);
}

void StoreRequests::stand_under(Client client, Waiting& waiting, std::string_view key) {
  waiting.name = name_of(waiting.reason, key);
  by_name_[waiting.name][waiting.ticket] = client;
}

StoreRequests::Waiting StoreRequests::unpark(Client client) {
  const auto found = waiting_.find(client);
  Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  deadlines_.erase({waiting.deadline, client});
  if (const auto named = by_name_.find(waiting.name); named != by_name_.end()) {
    named->second.erase(waiting.ticket);
    if (named->second.empty()) by_name_.erase(named);
  }
  return waiting;
}

void StoreRequests::key_changed(std::string_view key) {
  const auto named = by_name_.find(name_of(Reason::kKeys, key));
  if (named == by_name_.end() || table_.find(key) == nullptr) return;
  const std::map<uint64_t, Client> clients = std::move(named->second);
  by_name_.erase(named);
  for (const auto& [ticket, client] : clients) {
    Waiting& waiting = waiting_.at(client);
    waiting.first_missing = table_.first_missing(waiting.keys, waiting.first_missing);
    if (waiting.first_missing == waiting.keys.size() && table_.num_erased() != waiting.num_erased) {
      waiting.first_missing = table_.first_missing(waiting.keys);
      waiting.num_erased = table_.num_erased();
    }
    if (waiting.first_missing < waiting.keys.size()) {
      stand_under(client, waiting, waiting.keys[waiting.first_missing]);
      continue;
    }
    const Waiting served = unpark(client);
    answer(client, [&] { return values_frame(served.keys, served.wants_values); });
  }
}

void StoreRequests::value_pushed(std::string_view key) {
  const std::string name = name_of(Reason::kQueue, key);
  while (by_name_.contains(name)) {
    const auto value = table_.pop(key);
    if (!value) return;
    const Client client = by_name_.find(name)->second.begin()->second;
    unpark(client);
    answer(client, [&] { return WireWriter(WireStatus::kOk).put_u8(1).put_bytes(*value).finish(); });
  }
}

std::string StoreRequests::timeout_frame(const Waiting& waiting) const {
  WireWriter frame(WireStatus::kTimeout);
  if (waiting.reason == Reason::kKeys) frame.put_list(table_.find_missing(waiting.keys));
  if (waiting.reason == Reason::kBarrier) frame.put_i64(waiting.round->arrived);
  return frame.finish();
}

void StoreRequests::forget(Client client) {
  if (!is_waiting(client)) return;
  const Waiting waiting = unpark(client);
  if (waiting.round != nullptr) table_.leave(waiting.keys[0]);
}

void StoreRequests::expire(Moment now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Client client = deadlines_.begin()->second;
    const Waiting waiting = unpark(client);
    answer(client, [&] { return timeout_frame(waiting); });
    if (waiting.round != nullptr) table_.leave(waiting.keys[0]);
  }
}

std::optional<StoreRequests::Moment> StoreRequests::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

}  // namespace tutti::comm
