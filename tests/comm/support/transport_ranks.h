// Ranks as threads that speak through Transports directly, for the tests of transports.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/transport.h"

namespace tutti::comm {

// The text has every one of the parts.
void expect_says(const char* file, int line, const std::string& text, std::initializer_list<std::string> parts);
#define EXPECT_SAYS(text, ...) ::tutti::comm::expect_says(__FILE__, __LINE__, text, {__VA_ARGS__})

// Bytes of rank `from` meant for rank `to`.
std::vector<std::byte> bytes_for(int from, int to, int64_t count);

// Keeps what a round brings, and throws when the promises of Receiver are broken.
class KeepingReceiver final : public Receiver {
 public:
  // One entry of `takes` per rank.
  explicit KeepingReceiver(std::vector<int64_t> takes);
  void receive(std::span<const Arrival> from) override;

  std::vector<std::vector<std::byte>> got;
  int calls = 0;

 private:
  std::vector<int64_t> takes_;
  bool together_ = true;
};

// Until the round is finished, or for 20 seconds.
void finish_round(Transport& transport);
void finish_messages(Transport& transport, std::vector<Message*> messages);

// sizes[from][to], the whole table known to every rank. A round in which all is exchanged and compared.
void exchange_and_check(Transport& transport, CallRecord call, const std::vector<std::vector<int64_t>>& sizes,
                        int64_t step = 0);
// Every rank offers all peers one block of `bytes`.
void exchange_one_block(Transport& transport, CallRecord call, int64_t bytes);

CallRecord barrier_call(int64_t sequence);
CallRecord uneven_call(int64_t sequence);
CallRecord tensor_call(int64_t sequence, int64_t numel);

// Runs fn for each rank on its own thread; returns what each threw, "" when nothing: "UsageError: text".
using MakeTransport = std::function<std::unique_ptr<Transport>(int rank)>;
std::vector<std::string> on_ranks(int ranks, const MakeTransport& make, const std::function<void(Transport&)>& fn);
// The same, and fails the test when any throws.
void expect_on_ranks(int ranks, const MakeTransport& make, const std::function<void(Transport&)>& fn);

// Checks that every transport must pass, with up to `ranks` ranks; called by the test of each.
void check_rounds(Transport& transport, uint64_t seed, int rounds, int64_t largest);
void check_messages(Transport& transport, uint64_t seed);

}  // namespace tutti::comm
