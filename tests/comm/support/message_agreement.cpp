#include "tests/comm/support/message_agreement.h"

#include <chrono>
#include <functional>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Kind = PointToPoint::Kind;

constexpr int kSender = 0, kReceiver = 2;
constexpr int64_t kSizes[] = {3, 100'000};  // taken by the transport at once, and under way until it is received

// What one end gives to the message.
struct Ends {
  const char* field;
  DType sent, received;
  int64_t sent_more = 0;  // elements beyond the receiver's
};
constexpr Ends kEnds[] = {
    {"the dtypes differ", DType::f32, DType::i32},     {"the dtypes differ", DType::i64, DType::f64},
    {"the dtypes differ", DType::bf16, DType::f16},    {"the dtypes differ", DType::f32, DType::f64},
    {"the lengths differ", DType::f32, DType::f32, 1}, {"the lengths differ", DType::u8, DType::u8, -1},
};

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

void expect_refusal(const std::string& text, const Ends& ends, uint32_t tag) {
  for (const std::string& part :
       {fmt::format("rank {} refuses the message with tag {} from rank {}", kReceiver, tag, kSender),
        std::string(ends.field), fmt::format("of {}, rank {} receives", name_of(ends.sent), kReceiver),
        fmt::format("of {}", name_of(ends.received))}) {
    TUTTI_CHECK(text.find(part) != std::string::npos, "'{}' is not in '{}'", part, text);
  }
}

// The group works, messages between the two included.
void expect_working(ProcessGroup& group) {
  const Tensor word = Tensor::of<int64_t>({group.rank()});
  if (group.rank() == kSender) group.send(word, kReceiver, 77);
  if (group.rank() == kReceiver) group.recv(word, kSender, 77);
  TUTTI_CHECK(group.rank() == 1 || word.item_int() == kSender, "the word is {}", word.item_int());
  const Tensor one = Tensor::of<float>({1});
  group.all_reduce(one);
  TUTTI_CHECK(one.item() == static_cast<double>(group.size()), "the sum is {}", one.item());
}

using Call = std::function<void(ProcessGroup&, const Tensor&, uint32_t tag)>;

// The sender's call ends with the refusal or, when it has ended before, the next message that it posts, which is sent
// all the same.
void check_pair(ProcessGroup& group, const Ends& ends, int64_t count, bool receive_first, const Call& send,
                const Call& receive) {
  const uint32_t tag = receive_first ? 5 : 6;
  const Tensor out = Tensor::empty({count + ends.sent_more}, ends.sent), in = Tensor::empty({count}, ends.received);
  std::fill_n(static_cast<char*>(in.raw_data()), in.nbytes(), '\x11');
  std::string text;
  if (group.rank() == kSender) {
    if (receive_first) group.barrier();
    text = refusal_of([&] { send(group, out, tag); });
    if (!receive_first && count < 100) group.barrier();
  } else if (group.rank() == kReceiver) {
    if (receive_first) {
      Work work;
      text = refusal_of([&] {
        work = group.irecv(in, kSender, tag);
        group.barrier();
        work.wait();
      });
    } else {
      if (count < 100) group.barrier();
      text = refusal_of([&] { receive(group, in, tag); });
    }
  } else if (receive_first || count < 100) {
    group.barrier();
  }
  group.barrier();
  if (group.rank() == kSender) {
    const std::string late = refusal_of([&] { group.send(Tensor::of<float>({7}), kReceiver, 9); });
    TUTTI_CHECK(text.empty() != late.empty(), "refused twice or never: '{}', '{}'", text, late);
    TUTTI_CHECK(late.empty() || (late.find("send(f32 [1], peer 2, tag 9), was carried out") != std::string::npos &&
                                 late.find("(message #") != std::string::npos),
                "{}", late);
    text += late;
  } else if (group.rank() == kReceiver) {
    const Tensor seven = Tensor::of<float>({0});
    group.recv(seven, kSender, 9);
    TUTTI_CHECK(seven.item() == 7, "{} arrived", seven.item());
  }
  if (group.rank() != 1) expect_refusal(text, ends, tag);
  for (int64_t i = 0; i < in.nbytes(); ++i)
    TUTTI_CHECK(static_cast<char*>(in.raw_data())[i] == '\x11', "byte {} was written", i);
  expect_working(group);
}

// Both wait for the other's answer in the same call, or in the next.
void check_answers(ProcessGroup& group, int64_t count) {
  const Ends& ends = kEnds[0];
  const Tensor out = Tensor::empty({count}, ends.sent), in = Tensor::empty({count}, ends.received),
               answer = Tensor::empty({100'000});
  const auto batch = [&](std::initializer_list<PointToPoint> operations) {
    group.batch_isend_irecv(std::vector<PointToPoint>(operations)).wait();
  };
  std::string text;
  if (group.rank() == kSender)
    text = refusal_of([&] { batch({{Kind::isend, out, kReceiver, 1}, {Kind::irecv, answer, kReceiver, 2}}); });
  if (group.rank() == kReceiver)
    text = refusal_of([&] { batch({{Kind::irecv, in, kSender, 1}, {Kind::isend, answer, kSender, 2}}); });
  if (group.rank() != 1) expect_refusal(text, ends, 1);
  group.barrier();
  if (group.rank() == kSender) {
    answer.data<float>()[99'999] = 0;
    text = refusal_of([&] { group.send(out, kReceiver, 3); });
    text += refusal_of([&] { group.recv(answer, kReceiver, 4); });
    TUTTI_CHECK(answer.data<float>()[99'999] == 8, "the answer was not received");
  }
  if (group.rank() == kReceiver) {
    text = refusal_of([&] { group.recv(in, kSender, 3); });
    answer.data<float>()[99'999] = 8;
    group.send(answer, kSender, 4);
  }
  if (group.rank() != 1) expect_refusal(text, ends, 3);
  group.barrier();
  expect_working(group);
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Each refusal is told once, however many there are and whatever the call that learns of them ends with.
void check_late(ProcessGroup& group) {
  const Tensor word = Tensor::of<float>({0});
  const auto send_refused = [&](int messages) {
    for (int i = 0; i < messages && group.rank() == kSender; ++i) group.send(Tensor::of<float>({1, 2}), kReceiver, 11);
    group.barrier();  // a refusal that came earlier would end one of these sends
    for (int i = 0; i < messages && group.rank() == kReceiver; ++i) {
      TUTTI_CHECK(!refusal_of([&] { group.recv(word, kSender, 11); }).empty(), "message {} was taken", i);
    }
    group.barrier();
  };
  send_refused(3);
  if (group.rank() == kSender) {
    const std::string text = refusal_of([&] { group.send(word, kReceiver, 12); });
    TUTTI_CHECK(count_of(text, "refuses the message with tag 11") == 3, "{}", text);
  }
  if (group.rank() == kReceiver) group.recv(word, kSender, 12);
  group.barrier();
  expect_working(group);

  // More than a transport may keep while the sender does not look.
  send_refused(40);
  if (group.rank() == kSender) {
    const std::string text = refusal_of([&] { group.send(word, kReceiver, 12); });
    TUTTI_CHECK(
        count_of(text, "refuses the message") == 40 || text.find("further messages from rank 0") != std::string::npos,
        "{}", text);
  }
  if (group.rank() == kReceiver) group.recv(word, kSender, 12);
  group.barrier();
  expect_working(group);

  // Nothing arrives: the error of the receive says the refusal as well, which may be why.
  send_refused(1);
  if (group.rank() == kSender) {
    std::string text;
    try {
      group.recv(word, kReceiver, 13, {.timeout = std::chrono::milliseconds(200)});
    } catch (const TimeoutError& error) {
      text = error.what();
    }
    TUTTI_CHECK(count_of(text, "refuses the message with tag 11") == 1, "{}", text);
  }
  group.barrier();
  expect_working(group);
}

void check_bytes(ProcessGroup& group) {
  std::string text;
  if (group.rank() == kSender) {
    group.send_bytes("some", 1, 8);
    group.send(Tensor::of<int64_t>({7, 4}), 1, 8);
    group.send(Tensor::of<int64_t>({4}), kReceiver, 8);
  }
  group.barrier();  // a refusal that came earlier would end one of these sends
  if (group.rank() == 1) {
    const Tensor size = Tensor::of<int64_t>({0});
    text = refusal_of([&] { group.recv(size, kSender, 8); });
    TUTTI_CHECK(
        text.find("the lengths differ: rank 0 sends 2 elements of i64, rank 1 receives 1 of i64") != std::string::npos,
        "{}", text);
  }
  if (group.rank() == kReceiver) {
    text = refusal_of([&] { group.recv_bytes(kSender, 8); });
    TUTTI_CHECK(
        text.find("the lengths differ: rank 0 sends 1 elements of i64, rank 2 receives 2 of i64") != std::string::npos,
        "{}", text);
  }
  group.barrier();
}

}  // namespace

void check_message_agreement(ProcessGroup& group) {
  const auto begin = std::chrono::steady_clock::now();
  const Call sends[] = {[](ProcessGroup& g, const Tensor& t, uint32_t tag) { g.send(t, kReceiver, tag); },
                        [](ProcessGroup& g, const Tensor& t, uint32_t tag) { g.isend(t, kReceiver, tag).wait(); },
                        [](ProcessGroup& g, const Tensor& t, uint32_t tag) {
                          const PointToPoint operation{Kind::isend, t, kReceiver, tag};
                          g.batch_isend_irecv({&operation, 1}).wait();
                        }};
  const Call receives[] = {[](ProcessGroup& g, const Tensor& t, uint32_t tag) { g.recv(t, kSender, tag); },
                           [](ProcessGroup& g, const Tensor& t, uint32_t tag) { g.irecv(t, kSender, tag).wait(); },
                           [](ProcessGroup& g, const Tensor& t, uint32_t tag) {
                             const PointToPoint operation{Kind::irecv, t, kSender, tag};
                             g.batch_isend_irecv({&operation, 1}).wait();
                           }};
  for (const int64_t count : kSizes) {
    for (const Ends& ends : kEnds) {
      for (size_t style = 0; style < std::size(sends); ++style) {
        for (const bool receive_first : {false, true})
          check_pair(group, ends, count, receive_first, sends[style], receives[style]);
      }
    }
    check_answers(group, count);
  }
  check_late(group);
  check_bytes(group);
  const auto time = std::chrono::steady_clock::now() - begin;
  TUTTI_CHECK(time < std::chrono::seconds(60), "the refusals took {} ms",
              std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

}  // namespace tutti::comm
