// Carries out the requests of TcpStoreServer's clients. It holds the table and the clients that wait, and knows no
// sockets.
//
// Used by one thread. A client has at most one request at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/job/store/key_table.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {

class StoreRequests {
 public:
  using Client = uint64_t;
  using Moment = std::chrono::steady_clock::time_point;

  // `reply` takes a whole frame for a client. It must not call back into this object.
  explicit StoreRequests(std::function<void(Client, std::string)> reply) : reply_(std::move(reply)) {}

  // Replies now, or later when what the client waits for has come or its deadline has passed. WireError when the body
  // is not what `code` asks for.
  void handle(Client client, uint8_t code, std::string_view body);
  bool is_waiting(Client client) const { return waiting_.contains(client); }
  // The client is gone: it waits for nothing and counts at no barrier.
  void forget(Client client);
  // Tells those whose deadline is not after `now` what they waited for in vain.
  void expire(Moment now);
  std::optional<Moment> next_deadline() const;

 private:
  // A client that waits stands under one name at a time: of its first missing key, of its queue, or of its barrier.
  enum class Reason : char { kKeys = 'k', kQueue = 'q', kBarrier = 'b' };
  struct Waiting {
    Reason reason;
    uint64_t ticket = 0;  // who waits longer has the smaller one
    Moment deadline;
    Store::Keys keys;  // one for a queue or barrier
    // Here stand the first of the keys that is missing, and what the table had erased when all before it were there. So
    // a change costs those who wait for it a look at the keys behind, each of which is looked at once, and at all of
    // them only after an erasure.
    size_t first_missing = 0;
    uint64_t num_erased = 0;
    bool wants_values = false;
    std::shared_ptr<BarrierRound> round;
    std::string name;
  };
  static std::string name_of(Reason reason, std::string_view key) {
    return static_cast<char>(reason) + std::string(key);
  }

  void dispatch(Client client, WireOp op, WireReader& body);
  void get(Client client, WireReader& body);
  void queue_pop(Client client, WireReader& body);
  void barrier(Client client, WireReader& body);
  void park(Client client, Waiting waiting, int64_t timeout_ms);
  void stand_under(Client client, Waiting& waiting, std::string_view key);
  Waiting unpark(Client client);
  void key_changed(std::string_view key);
  void value_pushed(std::string_view key);
  std::string values_frame(const Store::Keys& keys, bool wants_values) const;
  std::string timeout_frame(const Waiting& waiting) const;
  // Sends what fn() returns, or the error it throws.
  template <class Make>
  void answer(Client client, const Make& fn);

  std::function<void(Client, std::string)> reply_;
  KeyTable table_;
  std::map<Client, Waiting> waiting_;
  std::map<std::string, std::map<uint64_t, Client>, std::less<>> by_name_;  // ticket -> client
  std::set<std::pair<Moment, Client>> deadlines_;
  uint64_t next_ticket_ = 0;
};

}  // namespace tutti::comm
