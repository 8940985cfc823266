// Ranks as threads of one process that lie on several imagined hosts, each under a HierTransport.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tests/comm/support/local_engine.h"
#include "tests/comm/support/transport_ranks.h"
#include "tutti/comm/hier/hier_transport.h"
#include "tutti/comm/message/message_transport.h"

namespace tutti::comm {

// The transport between hosts, which counts the bytes that rounds offer.
class CountedTransport final : public MessageTransport {
 public:
  CountedTransport(std::unique_ptr<MessageEngine> engine, std::string group,
                   std::shared_ptr<std::atomic<int64_t>> bytes)
      : MessageTransport(std::move(engine), std::move(group)), bytes_(std::move(bytes)) {}
  void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) override {
    for (int p = 0; p < size(); ++p) *bytes_ += exchange.offer_to(p).bytes;
    MessageTransport::start(call, step, exchange, receiver);
  }

 private:
  const std::shared_ptr<std::atomic<int64_t>> bytes_;
};

// hosts[r] is the host of rank r.
struct Hosts {
  explicit Hosts(std::vector<int> of_rank) : hosts(std::move(of_rank)) {
    all = std::make_shared<LocalNetwork>(static_cast<int>(hosts.size()));
    for (size_t h = 0; h < hosts.size(); ++h) {
      const auto count = std::count(hosts.begin(), hosts.end(), static_cast<int>(h));
      inside.push_back(std::make_shared<LocalNetwork>(std::max<int>(1, static_cast<int>(count))));
    }
  }
  MakeTransport make() const {
    return [*this](int rank) {
      const int host = hosts[static_cast<size_t>(rank)];
      const auto inner_rank = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank, host));
      auto inner = std::make_unique<MessageTransport>(inside[static_cast<size_t>(host)]->engine(inner_rank), "inside");
      return std::make_unique<HierTransport>(
          std::move(inner), std::make_unique<CountedTransport>(all->engine(rank), "test", bytes_between), hosts,
          "test");
    };
  }
  int size() const { return static_cast<int>(hosts.size()); }
  std::vector<int> hosts;
  std::shared_ptr<LocalNetwork> all;
  std::vector<std::shared_ptr<LocalNetwork>> inside;
  std::shared_ptr<std::atomic<int64_t>> bytes_between =
      std::make_shared<std::atomic<int64_t>>(0);  // offered between hosts, by all ranks
};

}  // namespace tutti::comm
