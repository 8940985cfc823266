#include "tests/comm/support/transport_ranks.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <thread>

#include "tutti/core/error.h"

namespace tutti::comm {

using namespace std::chrono_literals;

void expect_says(const char* file, int line, const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) ADD_FAILURE_AT(file, line) << "'" << text << "'\nlacks '" << part << "'";
  }
}

std::vector<std::byte> bytes_for(int from, int to, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  uint32_t x = static_cast<uint32_t>(from * 131 + to * 17 + 1);
  for (std::byte& b : bytes) {
    x = x * 1664525 + 1013904223;
    b = static_cast<std::byte>(x >> 24);
  }
  return bytes;
}

KeepingReceiver::KeepingReceiver(std::vector<int64_t> takes) : got(takes.size()), takes_(std::move(takes)) {
  for (const int64_t bytes : takes_) together_ &= bytes == takes_[0];
}

void KeepingReceiver::receive(std::span<const Arrival> from) {
  ++calls;
  if (from.size() != takes_.size()) throw std::logic_error("a receiver got arrivals of another number of ranks");
  for (size_t p = 0; p < from.size(); ++p) {
    const Arrival& a = from[p];
    if (together_ && (a.bytes != from[0].bytes || a.offset != from[0].offset))
      throw std::logic_error("equal offers came in unequal parts");
    if (a.bytes == 0) continue;
    if (a.offset != static_cast<int64_t>(got[p].size())) throw std::logic_error("parts out of order");
    if (a.offset % 64 != 0) throw std::logic_error("a part begins at no multiple of 64");
    got[p].insert(got[p].end(), a.data, a.data + a.bytes);
    const int64_t have = static_cast<int64_t>(got[p].size());
    if (have > takes_[p]) throw std::logic_error("more came than was to be taken");
    if (have < takes_[p] && a.bytes % 64 != 0) throw std::logic_error("a part is no multiple of 64 long");
  }
}

void finish_round(Transport& transport) {
  const auto end = Clock::now() + 20s;
  for (uint32_t attempt = 0; !transport.advance(); ++attempt) {
    transport.pause(attempt, 10ms);
    if (Clock::now() > end) throw std::runtime_error("a round did not finish");
  }
}

void finish_messages(Transport& transport, std::vector<Message*> messages) {
  const auto end = Clock::now() + 20s;
  for (uint32_t attempt = 0;; ++attempt) {
    transport.advance_messages();
    bool all = true;
    for (const Message* m : messages) all &= m->finished;
    if (all) return;
    transport.pause(attempt, 10ms);
    if (Clock::now() > end) throw std::runtime_error("messages did not finish");
  }
}

CallRecord barrier_call(int64_t sequence) {
  CallRecord call;
  call.kind = CollectiveKind::barrier;
  call.sequence = sequence;
  return call;
}

CallRecord uneven_call(int64_t sequence) {
  CallRecord call;
  call.kind = CollectiveKind::all_to_all_v_single;
  call.sequence = sequence;
  call.same_sizes = false;
  return call;
}

CallRecord tensor_call(int64_t sequence, int64_t numel) {
  CallRecord call;
  call.kind = CollectiveKind::all_gather_single;
  call.sequence = sequence;
  call.describe_tensor(DType::u8, Extents{numel});
  return call;
}

void exchange_and_check(Transport& transport, CallRecord call, const std::vector<std::vector<int64_t>>& sizes,
                        int64_t step) {
  const int me = transport.rank(), world = transport.size();
  std::vector<std::vector<std::byte>> outgoing;
  std::vector<ConstBlock> offers;
  std::vector<int64_t> takes;
  for (int p = 0; p < world; ++p) {
    outgoing.push_back(bytes_for(me, p, sizes[static_cast<size_t>(me)][static_cast<size_t>(p)]));
    offers.push_back({outgoing.back().data(), static_cast<int64_t>(outgoing.back().size())});
    takes.push_back(sizes[static_cast<size_t>(p)][static_cast<size_t>(me)]);
  }
  const Exchange exchange{.offers = offers, .takes = takes};
  KeepingReceiver receiver(takes);
  transport.start(call, step, exchange, receiver);
  finish_round(transport);
  for (int p = 0; p < world; ++p) {
    const auto& got = receiver.got[static_cast<size_t>(p)];
    if (got != bytes_for(p, me, takes[static_cast<size_t>(p)])) {
      throw std::logic_error(fmt::format("rank {} got wrong bytes from rank {}: {} of {}", me, p, got.size(),
                                         takes[static_cast<size_t>(p)]));
    }
  }
}

void exchange_one_block(Transport& transport, CallRecord call, int64_t bytes) {
  const int me = transport.rank();
  const auto mine = bytes_for(me, 0, bytes);
  const ConstBlock offer{mine.data(), bytes};
  const Exchange exchange{.offers = {&offer, 1}, .takes = {&bytes, 1}};
  KeepingReceiver receiver(std::vector<int64_t>(static_cast<size_t>(transport.size()), bytes));
  transport.start(call, 0, exchange, receiver);
  finish_round(transport);
  for (int p = 0; p < transport.size(); ++p) {
    if (receiver.got[static_cast<size_t>(p)] != bytes_for(p, 0, bytes))
      throw std::logic_error(fmt::format("rank {} got wrong bytes from rank {}", me, p));
  }
}

std::vector<std::string> on_ranks(int ranks, const MakeTransport& make, const std::function<void(Transport&)>& fn) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      std::string& error = errors[static_cast<size_t>(r)];
      try {
        const auto transport = make(r);
        fn(*transport);
      } catch (const UsageError& e) {
        error = std::string("UsageError: ") + e.what();
      } catch (const PeerError& e) {
        error = std::string("PeerError: ") + e.what();
      } catch (const EnvironmentError& e) {
        error = std::string("EnvironmentError: ") + e.what();
      } catch (const std::exception& e) {
        error = std::string("other: ") + e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

void expect_on_ranks(int ranks, const MakeTransport& make, const std::function<void(Transport&)>& fn) {
  const auto errors = on_ranks(ranks, make, fn);
  for (int r = 0; r < ranks; ++r) EXPECT_EQ(errors[static_cast<size_t>(r)], "") << "rank " << r << " of " << ranks;
}

void check_rounds(Transport& transport, uint64_t seed, int rounds, int64_t largest) {
  std::mt19937_64 random(seed);  // the same on every rank
  const auto world = static_cast<size_t>(transport.size());
  const auto any_size = [&]() -> int64_t {
    switch (random() % 6) {
      case 0:
        return 0;
      case 1:
        return static_cast<int64_t>(random() % 100);
      case 2:
        return 64 * static_cast<int64_t>(random() % 100);
      case 3:
        return (16 << 10) + static_cast<int64_t>(random() % 3) - 1;
      default:
        return static_cast<int64_t>(random() % static_cast<uint64_t>(largest + 1));
    }
  };
  int64_t sequence = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<int64_t>> sizes(world, std::vector<int64_t>(world));
    ++sequence;
    switch (random() % 5) {
      case 0: {  // each offers everybody the same
        const int64_t bytes = any_size();
        exchange_one_block(transport, tensor_call(sequence, bytes), bytes);
        break;
      }
      case 1: {  // one offers all
        const size_t root = random() % world;
        const int64_t bytes = any_size();
        for (int64_t& s : sizes[root]) s = bytes;
        exchange_and_check(transport, tensor_call(sequence, bytes), sizes);
        break;
      }
      case 2: {  // to each rank all offer equally much
        for (size_t to = 0; to < world; ++to) {
          const int64_t bytes = any_size();
          for (size_t from = 0; from < world; ++from) sizes[from][to] = bytes;
        }
        exchange_and_check(transport, uneven_call(sequence), sizes);
        break;
      }
      case 3: {  // several steps
        for (int64_t step = 0; step < 3; ++step) {
          const int64_t bytes = any_size();
          for (auto& row : sizes) std::fill(row.begin(), row.end(), bytes);
          exchange_and_check(transport, tensor_call(sequence, 5), sizes, step);
        }
        break;
      }
      default:
        for (auto& row : sizes) {
          for (int64_t& s : row) s = any_size();
        }
        exchange_and_check(transport, uneven_call(sequence), sizes);
    }
  }
}

void check_messages(Transport& transport, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int me = transport.rank(), world = transport.size();
  // From every rank to every other, three messages on each of three tags, received in another order.
  std::vector<int64_t> sizes(9);
  for (int64_t& s : sizes) s = random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 300'000);
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::unique_ptr<Message>> messages;
  std::vector<Message*> all;
  const auto add = [&](bool is_send, int peer, int index) {
    const int64_t bytes = sizes[static_cast<size_t>(index)];
    memory.push_back(is_send ? bytes_for(me, peer * 100 + index, bytes)
                             : std::vector<std::byte>(static_cast<size_t>(bytes)));
    messages.push_back(std::make_unique<Message>());
    Message& m = *messages.back();
    m.is_send = is_send;
    m.peer = peer;
    m.tag = static_cast<uint32_t>(index % 3);
    m.data = memory.back().data();
    m.bytes = bytes;
    transport.post(m);
    all.push_back(&m);
  };
  for (int index = 0; index < 9; ++index) {
    for (int p = 0; p < world; ++p) {
      if (p != me) add(true, p, index);
    }
  }
  std::vector<std::pair<int, int>> expected;
  for (int tag = 2; tag >= 0; --tag) {
    for (int nth = 0; nth < 3; ++nth) {
      for (int p = world - 1; p >= 0; --p) {
        if (p == me) continue;
        expected.push_back({p, nth * 3 + tag});
        add(false, p, nth * 3 + tag);
      }
    }
  }
  finish_messages(transport, all);
  const size_t first = memory.size() - expected.size();
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto [peer, index] = expected[i];
    if (!messages[first + i]->error.empty()) throw std::logic_error(messages[first + i]->error);
    if (memory[first + i] != bytes_for(peer, me * 100 + index, sizes[static_cast<size_t>(index)])) {
      throw std::logic_error(fmt::format("rank {}: message {} of rank {} has wrong bytes", me, index, peer));
    }
  }
}

}  // namespace tutti::comm
