// nccl: windows of an NCCL communicator. The library moves the data: peers' memory is not reached by load and store,
// but barrier and signals work from 2.29 on, on its channel 0. Streams are the default stream.
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "tutti/job/errors.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/group_state.h"
#include "tutti/symm/library.h"

namespace tutti::comm::symm {
namespace {

constexpr int kRequired = 22700;  // 10000 x major + 100 x minor + patch
constexpr int kSignals = 22900;

struct NcclUniqueId {
  char bytes[128] = {};
};
struct NcclWaitSignal {
  int count = 1;
  int peer = 0;
  int signal = 0;
  int context = 0;
};

std::string text_of(int version) { return version_text(version / 10000, version / 100 % 100, version % 100); }

struct Nccl {
  Library library{"nccl", "TUTTI_SYMM_NCCL_LIB", {"libnccl.so.2", "libnccl.so"}};
  int version = 0;
  int (*get_version)(int*) = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*unique_id)(NcclUniqueId*) = nullptr;
  int (*init_rank)(void**, int, NcclUniqueId, int) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*allocate)(void**, size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*register_window)(void*, void*, size_t, void**, int) = nullptr;
  int (*deregister_window)(void*, void*) = nullptr;
  int (*signal)(int, int, int, unsigned, void*, void*) = nullptr;    // from 2.29
  int (*wait_signal)(int, NcclWaitSignal*, void*, void*) = nullptr;  // from 2.29

  void check(int result, const char* call) const {
    if (result == 0) return;
    throw EnvironmentError(
        fmt::format("symmetric memory backend nccl: {} failed: {} ({})", call, error_text(result), result));
  }

  void open() {
    if (version != 0) return;
    library.load(get_version, "ncclGetVersion");
    library.load(error_text, "ncclGetErrorString");
    int found = 0;
    check(get_version(&found), "ncclGetVersion");
    if (found < kRequired) {
      throw LibraryError(fmt::format("symmetric memory backend nccl: {} is version {}; {} or newer is required",
                                     library.path(), text_of(found), text_of(kRequired)));
    }
    library.load(unique_id, "ncclGetUniqueId");
    library.load(init_rank, "ncclCommInitRank");
    library.load(destroy, "ncclCommDestroy");
    library.load(allocate, "ncclMemAlloc");
    library.load(free, "ncclMemFree");
    library.load(register_window, "ncclCommWindowRegister");
    library.load(deregister_window, "ncclCommWindowDeregister");
    if (found >= kSignals) {
      library.load(signal, "ncclSignal");
      library.load(wait_signal, "ncclWaitSignal");
    }
    version = found;
  }
};

// The communicator of a group; goes with its last window and the group.
struct Communicator {
  explicit Communicator(Nccl& library) : nccl(library) {}
  ~Communicator() {
    if (comm != nullptr) nccl.destroy(comm);
  }
  Nccl& nccl;
  void* comm = nullptr;
};

struct NcclBlock final : Block {
  explicit NcclBlock(Nccl& library) : nccl(library) {}
  ~NcclBlock() override { nccl.free(base); }
  Nccl& nccl;
};

// What this rank's memory is to one communicator. For peers only the fact that they have registered theirs.
struct NcclWindow final : Block {
  ~NcclWindow() override {
    if (window != nullptr) communicator->nccl.deregister_window(communicator->comm, window);
  }
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Block> memory;
  void* window = nullptr;
};

class NcclBackend final : public Backend {
 public:
  const BackendTraits& traits() const override {
    static const BackendTraits traits{.name = "nccl",
                                      .device = DeviceKind::cuda,
                                      .reaches_hosts = true,
                                      .host_access = false,
                                      .host_pads = false,
                                      .contiguous_view = false,
                                      .needs_library = true,
                                      .needs_communicator = true};
    return traits;
  }

  void open() override {
    const std::lock_guard lock(mutex_);
    nccl_.open();
  }

  std::shared_ptr<Block> allocate(int64_t nbytes, Device) override {
    auto block = std::make_shared<NcclBlock>(nccl_);
    void* memory = nullptr;
    nccl_.check(nccl_.allocate(&memory, static_cast<size_t>(nbytes)), "ncclMemAlloc");
    block->base = static_cast<std::byte*>(memory);
    block->nbytes = nbytes;
    return block;
  }

  std::string ticket(const Block&) override { return text_of(nccl_.version); }

  // The group's first rendezvous makes its communicator: rank 0 draws an id, the store carries it.
  void prepare_group(const Meeting& meeting) override {
    const SymmGroup& group = meeting.group;
    if (find(group) != nullptr) return;
    Store& store = *group.store();
    const std::string key = meeting.key + "/nccl";
    NcclUniqueId id;
    if (group.rank() == 0) {
      nccl_.check(nccl_.unique_id(&id), "ncclGetUniqueId");
      store.set(key, std::string_view(id.bytes, sizeof id.bytes));
    } else {
      std::string text;
      while (text.empty()) {
        try {
          text = store.get(key, std::chrono::milliseconds(100));
        } catch (const StoreTimeout&) {
          meeting.look_around();
          if (std::chrono::steady_clock::now() >= meeting.deadline) {
            throw TimeoutError("backend nccl: rank 0 gave no communicator id before the deadline");
          }
        }
      }
      TUTTI_CHECK_ENV(text.size() == sizeof id.bytes, "backend nccl: a communicator id of {} bytes", text.size());
      std::memcpy(id.bytes, text.data(), text.size());
    }
    auto made = std::make_shared<Communicator>(nccl_);
    nccl_.check(nccl_.init_rank(&made->comm, group.size(), id, group.rank()), "ncclCommInitRank");
    if (group.rank() == 0) store.delete_key(key);  // the call above returns when all have it
    const std::lock_guard lock(mutex_);
    std::erase_if(communicators_, [](const auto& entry) { return entry.first.expired(); });
    communicators_[group.state()] = std::move(made);
  }

  std::vector<std::shared_ptr<Block>> exchange(const Meeting& meeting, const std::shared_ptr<Block>& own) override {
    auto window = std::make_shared<NcclWindow>();
    window->communicator = need(meeting.group);
    window->memory = own;
    window->nbytes = own->nbytes;
    constexpr int kCollectiveSymmetric = 1;  // all ranks at the same offset
    nccl_.check(nccl_.register_window(window->communicator->comm, own->base, static_cast<size_t>(own->nbytes),
                                      &window->window, kCollectiveSymmetric),
                "ncclCommWindowRegister");
    // A success without a window is a failure.
    TUTTI_CHECK_ENV(window->window != nullptr, "symmetric memory backend nccl: ncclCommWindowRegister gave no window");
    std::vector<std::shared_ptr<Block>> blocks;
    for (int r = 0; r < meeting.group.size(); ++r) {
      auto block = r == meeting.group.rank() ? window : std::make_shared<NcclWindow>();
      if (r == meeting.group.rank()) block->base = own->base;
      block->nbytes = own->nbytes;
      blocks.push_back(std::move(block));
    }
    return blocks;
  }

  void barrier(const SymmGroup& group, int channel, Moment) override {
    const auto communicator = with_signals(group, "barrier", channel);
    for (int r = 0; r < group.size(); ++r) {
      if (r != group.rank()) nccl_.check(nccl_.signal(r, 0, 0, 0, communicator->comm, nullptr), "ncclSignal");
    }
    for (int r = 0; r < group.size(); ++r) {
      if (r != group.rank()) take(*communicator, r);
    }
  }

  void signal(const SymmGroup& group, int peer, int channel, Moment) override {
    const auto communicator = with_signals(group, "put_signal", channel);
    nccl_.check(nccl_.signal(peer, 0, 0, 0, communicator->comm, nullptr), "ncclSignal");
  }

  void wait_signal(const SymmGroup& group, int peer, int channel, Moment) override {
    take(*with_signals(group, "wait_signal", channel), peer);
  }

 private:
  std::shared_ptr<Communicator> find(const SymmGroup& group) {
    const std::lock_guard lock(mutex_);
    const auto found = communicators_.find(group.state());
    return found == communicators_.end() ? nullptr : found->second;
  }

  std::shared_ptr<Communicator> need(const SymmGroup& group) {
    auto communicator = find(group);
    TUTTI_CHECK(communicator != nullptr, "backend nccl: group '{}' has no communicator; rendezvous makes it",
                group.name());
    return communicator;
  }

  std::shared_ptr<Communicator> with_signals(const SymmGroup& group, const char* call, int channel) {
    if (nccl_.version < kSignals) {
      throw LibraryError(fmt::format("symmetric memory backend nccl: {}: {} is version {}; signals need {} or newer",
                                     call, nccl_.library.path(), text_of(nccl_.version), text_of(kSignals)));
    }
    TUTTI_CHECK(channel == 0, "symmetric memory backend nccl: {}: channel {}; the largest legal channel is 0", call,
                channel);
    return need(group);
  }

  void take(const Communicator& communicator, int peer) {
    NcclWaitSignal wanted{.count = 1, .peer = peer};
    nccl_.check(nccl_.wait_signal(1, &wanted, communicator.comm, nullptr), "ncclWaitSignal");
  }

  std::mutex mutex_;
  Nccl nccl_;
  // By group, never by its name: a group that is gone takes its communicator along at the next look.
  std::map<std::weak_ptr<GroupState>, std::shared_ptr<Communicator>, std::owner_less<>> communicators_;
};

}  // namespace

TUTTI_SYMM_BACKEND(nccl, NcclBackend);

}  // namespace tutti::comm::symm
