#include "tests/comm/support/forked_child.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "tutti/comm/functional/functional.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/matmul.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kSoon = 20s;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Runs `fn` in a child, which then ends like a program whose main() returns, and waits for it.
void in_child(const std::string& what, const std::function<void()>& fn) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(static_cast<unsigned>(kSoon.count()));
    try {
      fn();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", what.c_str(), error.what());
      _exit(1);
    }
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(status == 0, fmt::format("{}: the child ended with wait status {:#x}", what, status));
}

void expect_refused(const std::string& name, const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    const std::string text = error.what();
    require(text.find(fmt::format("belongs to process {}, and this is its fork()ed child {}", getppid(), getpid())) !=
                std::string::npos,
            fmt::format("{} says: {}", name, text));
    return;
  }
  throw std::runtime_error(fmt::format("{} was carried out in a child", name));
}

// Everything of a rank that a child inherits.
struct Inherited {
  ProcessGroup* group;
  Tensor sent, received;
  std::optional<Work> pending;              // a receive that no rank has answered yet
  Tensor functional;                        // the result of a collective that nobody has waited for
  std::unique_ptr<SymmetricBuffer> buffer;  // where the group has a store and its ranks share memory
};

using Calls = std::map<std::string, std::function<void()>>;

Calls calls_of(Inherited& own) {
  ProcessGroup& group = *own.group;
  const int peer = 1 % group.size();
  Calls calls{
      {"all_reduce", [&] { group.all_reduce(own.sent); }},
      {"broadcast", [&] { group.broadcast(own.sent, 0); }},
      {"barrier", [&] { group.barrier(); }},
      {"all_reduce, later", [&] { group.all_reduce(own.sent, {}, {.async = true}); }},
      {"all_gather_bytes", [&] { group.all_gather_bytes("bytes"); }},
      {"send", [&, peer] { group.send(own.sent, peer); }},
      {"recv_any", [&] { group.recv_any(own.sent); }},
      {"functional all_reduce", [&] { functional::all_reduce(own.sent, "sum", group.shared_from_this()); }},
      {"a wait for a receive", [&] { own.pending->wait(); }},
      {"a read of a result", [&] { own.functional.item(); }},
      {"monitored_barrier", [&] { group.monitored_barrier(1s); }},
      {"abort", [&] { group.abort("a child"); }},
      {"set_timeout", [&] { group.set_timeout(1s); }},
      {"split", [&] { group.split({0}); }},
      {"shrink", [&, peer] { group.shrink({peer}); }},
  };
  if (own.buffer) {
    calls["a barrier of symmetric memory"] = [&] { own.buffer->handle()->barrier(); };
    calls["a put"] = [&, peer] { own.buffer->handle()->put(own.sent, peer); };
    calls["signal_add"] = [&, peer] { own.buffer->handle()->signal_add(peer); };
    calls["rendezvous"] = [&] { symm::rendezvous(symm::empty_symm({4}, DType::f32), symm_group(group)); };
  }
  return calls;
}

void expect_all_refused(Inherited& own) {
  for (const auto& [name, call] : calls_of(own)) expect_refused(name, call);
  require(!own.group->health().ok, "the group calls itself healthy in a child");
}

// With threads of its own, which the parent's pool has not got here.
void compute() {
  RankContext::current().set_threads(2);
  const Tensor product = matmul(ones({128, 256}), ones({256, 128}));
  require(product.data<float>()[128 * 128 - 1] == 256.0f, "a product in a child is wrong");
}

void make_own_world() {
  require(!has_world(), "a child has the world of its parent");
  const auto world = init_process_group({.store = std::make_shared<HashStore>(), .rank = 0, .world_size = 1});
  const Tensor value = full({3}, 2.0);
  world->all_reduce(value);
  require(value.data<float>()[2] == 2.0f, "an all_reduce of a child's own world is wrong");
  in_child("a child's child", [&] { expect_refused("all_reduce", [&] { world->all_reduce(value); }); });
  destroy_process_group();
}

}  // namespace

void check_forked_child(ProcessGroup& group) {
  Inherited own{.group = &group,
                .sent = full({4}, 1.0 + group.rank()),
                .received = zeros({4}),
                .pending = {},
                .functional = {},
                .buffer = {}};
  const int last = group.size() - 1;
  group.all_reduce(own.sent);
  if (group.rank() == 0) own.pending = group.irecv(own.received, last);
  if (group.store() != nullptr) {
    const Tensor shared = symm::empty_symm({4}, DType::f32);
    own.buffer = std::make_unique<SymmetricBuffer>(group, shared);
  }
  // The others start theirs when the children are gone.
  if (group.rank() != 0) group.recv_bytes(0);
  own.functional = functional::all_reduce(full({1}, 1.0), "sum", group.shared_from_this());
  if (group.rank() == 0) {
    in_child("calls", [&] { expect_all_refused(own); });
    in_child("nothing", [] {});
    in_child("dropping", [&] {
      own = {};
      if (has_world()) throw std::runtime_error("a child has the world of its parent");
      destroy_process_group();
    });
    in_child("calls and dropping", [&] {
      expect_all_refused(own);
      own = {};
    });
    in_child("work", compute);
    in_child("a world", make_own_world);
    in_child("a thread", [&] { std::thread([&] { expect_all_refused(own); }).join(); });
    for (int r = 1; r < group.size(); ++r) group.send_bytes("go on", r);
  }
  if (group.rank() == last) group.send(full({4}, 7.0), 0);
  if (own.pending) own.pending->wait();
  if (own.pending) require(own.received.data<float>()[3] == 7.0f, "the message that a child did not wait for is wrong");
  require(own.functional.item() == group.size(), "the result that a child did not read is wrong");
  if (own.buffer) {
    own.buffer->handle()->barrier();
    for (int r = 0; r < group.size(); ++r) own.buffer->handle()->put(own.sent, r);
    own.buffer->handle()->barrier();
  }
  const Tensor value = full({5}, 1.0);
  group.all_reduce(value);
  require(value.data<float>()[4] == group.size(), "an all_reduce after the children is wrong");
}

}  // namespace tutti::comm
