#include "tutti/job/store/tcp_store.h"

#include "tutti/job/store/store_rules.h"
#include "tutti/job/store/tcp_connection.h"

namespace tutti::comm {
namespace {

// The server tells when a deadline has passed and what was missing; this long after it the server itself counts as
// lost.
constexpr std::chrono::milliseconds kReplyTime = std::chrono::seconds(5);

// Reads one value from a reply that holds nothing else.
template <class Read>
auto read_reply(const WireReply& reply, const Read& read) {
  WireReader reader(reply.body);
  auto value = read(reader);
  reader.expect_end();
  return value;
}

}  // namespace

TcpStore::TcpStore(TcpStoreOptions options)
    : Store(options.timeout),
      options_(std::move(options)),
      connection_(std::make_unique<TcpConnection>(options_.host, options_.port, options_.job_key, options_.timeout)) {}

TcpStore::~TcpStore() = default;

std::string TcpStore::address() const { return connection_->address(); }

std::shared_ptr<TcpStore> TcpStore::clone(std::chrono::milliseconds timeout) const {
  TcpStoreOptions options = options_;
  options.timeout = timeout;
  return std::make_shared<TcpStore>(std::move(options));
}

WireReply TcpStore::call(std::string_view op, std::string_view key, std::chrono::milliseconds limit,
                         const std::function<std::string(int64_t left)>& make) {
  check_store_timeout(op, limit);
  if (process_.is_in_child()) process_.check(fmt::format("the connection to the store at {}", address()));
  const StoreDeadline deadline(limit);
  std::unique_lock lock(mutex_);
  while (busy_) {
    if (deadline.has_passed()) {
      throw StoreTimeout(
          fmt::format("store at {}: {} of '{}' waited {:.3f} s for another call on the same handle; give "
                      "each thread a clone()",
                      address(), op, printable_key(key), static_cast<double>(limit.count()) / 1000));
    }
    free_again_.wait_until(lock, deadline.moment());
  }
  busy_ = true;
  lock.unlock();
  struct Turn {
    TcpStore& store;
    ~Turn() {
      const std::lock_guard guard(store.mutex_);
      store.busy_ = false;
      store.free_again_.notify_one();
    }
  } const turn{*this};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.moment() - std::chrono::steady_clock::now());
  return connection_->call(make(std::max<int64_t>(0, left.count())), deadline.later(kReplyTime), op, key);
}

WireReply TcpStore::call_now(std::string_view op, std::string_view key, const std::function<std::string()>& make) {
  return call(op, key, timeout(), [&](int64_t) { return make(); });
}

void TcpStore::set(std::string_view key, std::string_view value) {
  check_store_key(key);
  check_store_value(key, value.size());
  call_now("set", key, [&] { return WireWriter(WireOp::kSet).put_bytes(key).put_bytes(value).finish(); });
}

int64_t TcpStore::add(std::string_view key, int64_t amount) {
  check_store_key(key);
  return read_reply(
      call_now("add", key, [&] { return WireWriter(WireOp::kAdd).put_bytes(key).put_i64(amount).finish(); }),
      [](WireReader& reader) { return reader.read_i64(); });
}

std::string TcpStore::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  check_store_key(key);
  check_store_value(key, expected.size());
  check_store_value(key, desired.size());
  return read_reply(
      call_now("compare_set", key,
               [&] {
                 return WireWriter(WireOp::kCompareSet).put_bytes(key).put_bytes(expected).put_bytes(desired).finish();
               }),
      [](WireReader& reader) { return std::string(reader.read_bytes()); });
}

bool TcpStore::delete_key(std::string_view key) {
  check_store_key(key);
  return read_reply(call_now("delete_key", key, [&] { return WireWriter(WireOp::kDelete).put_bytes(key).finish(); }),
                    [](WireReader& reader) { return reader.read_u8() != 0; });
}

bool TcpStore::check(const Keys& keys) {
  check_store_keys(keys);
  return read_reply(call_now("check", keys.empty() ? "" : keys[0],
                             [&] { return WireWriter(WireOp::kCheck).put_list(keys).finish(); }),
                    [](WireReader& reader) { return reader.read_u8() != 0; });
}

int64_t TcpStore::num_keys() {
  return read_reply(call_now("num_keys", "", [&] { return WireWriter(WireOp::kCount).finish(); }),
                    [](WireReader& reader) { return reader.read_i64(); });
}

void TcpStore::append(std::string_view key, std::string_view value) {
  check_store_key(key);
  check_store_value(key, value.size());
  call_now("append", key, [&] { return WireWriter(WireOp::kAppend).put_bytes(key).put_bytes(value).finish(); });
}

void TcpStore::multi_set(const Keys& keys, const std::vector<std::string>& values) {
  TUTTI_CHECK(keys.size() == values.size(), "store: multi_set with {} keys and {} values", keys.size(), values.size());
  check_store_keys(keys);
  for (size_t i = 0; i < keys.size(); ++i) check_store_value(keys[i], values[i].size());
  call_now("multi_set", keys.empty() ? "" : keys[0],
           [&] { return WireWriter(WireOp::kMultiSet).put_list(keys).put_list(values).finish(); });
}

Store::Keys TcpStore::list_keys(std::string_view prefix) {
  return read_reply(call_now("list_keys", prefix, [&] { return WireWriter(WireOp::kList).put_bytes(prefix).finish(); }),
                    [](WireReader& reader) { return reader.read_list(); });
}

WireReply TcpStore::fetch(std::string_view op, const Keys& keys, Timeout timeout, bool wants_values) {
  check_store_keys(keys);
  const auto limit = timeout.value_or(this->timeout());
  WireReply reply = call(op, keys.empty() ? "" : keys[0], limit, [&](int64_t left) {
    return WireWriter(WireOp::kGet).put_u8(wants_values).put_i64(left).put_list(keys).finish();
  });
  if (reply.status == WireStatus::kTimeout) {
    throw_keys_timeout(op, address(), read_reply(reply, [](WireReader& reader) { return reader.read_list(); }),
                       keys.size(), limit);
  }
  return reply;
}

std::string TcpStore::get(std::string_view key, Timeout timeout) {
  return read_reply(fetch("get", {std::string(key)}, timeout, true),
                    [](WireReader& reader) { return std::string(reader.read_bytes()); });
}

void TcpStore::wait(const Keys& keys, Timeout timeout) { fetch("wait", keys, timeout, false); }

std::vector<std::string> TcpStore::multi_get(const Keys& keys, Timeout timeout) {
  return read_reply(fetch("multi_get", keys, timeout, true), [&](WireReader& reader) {
    std::vector<std::string> values;
    for (size_t i = 0; i < keys.size(); ++i) values.emplace_back(reader.read_bytes());
    return values;
  });
}

void TcpStore::queue_push(std::string_view key, std::string_view value) {
  check_store_key(key);
  check_store_value(key, value.size());
  call_now("queue_push", key, [&] { return WireWriter(WireOp::kQueuePush).put_bytes(key).put_bytes(value).finish(); });
}

std::optional<std::string> TcpStore::queue_pop(std::string_view key, bool block, Timeout timeout) {
  check_store_key(key);
  const auto limit = timeout.value_or(this->timeout());
  const WireReply reply = call("queue_pop", key, limit, [&](int64_t left) {
    return WireWriter(WireOp::kQueuePop).put_u8(block).put_i64(left).put_bytes(key).finish();
  });
  if (reply.status == WireStatus::kTimeout) throw_queue_timeout(address(), key, limit);
  return read_reply(reply, [](WireReader& reader) {
    const bool found = reader.read_u8() != 0;
    const std::string_view value = reader.read_bytes();
    return found ? std::optional<std::string>(value) : std::nullopt;
  });
}

int64_t TcpStore::queue_len(std::string_view key) {
  check_store_key(key);
  return read_reply(call_now("queue_len", key, [&] { return WireWriter(WireOp::kQueueLen).put_bytes(key).finish(); }),
                    [](WireReader& reader) { return reader.read_i64(); });
}

void TcpStore::barrier(std::string_view key, int64_t world_size, Timeout timeout) {
  check_store_key(key);
  check_store_world_size(key, world_size);
  const auto limit = timeout.value_or(this->timeout());
  const WireReply reply = call("barrier", key, limit, [&](int64_t left) {
    return WireWriter(WireOp::kBarrier).put_bytes(key).put_i64(world_size).put_i64(left).finish();
  });
  if (reply.status != WireStatus::kTimeout) return;
  throw_barrier_timeout(address(), key, read_reply(reply, [](WireReader& reader) { return reader.read_i64(); }),
                        world_size, limit);
}

}  // namespace tutti::comm
