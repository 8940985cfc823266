// nvshmem: the symmetric heap of the job. NVSHMEM knows one world, so the group that first meets must be the whole job,
// and all ranks must allocate in the same order (its allocation is collective). connect_group() must come before it.
#include <cstring>
#include <mutex>

#include "tutti/job/errors.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/group_state.h"
#include "tutti/symm/library.h"

namespace tutti::comm::symm {
namespace {

struct NvshmemUniqueId {
  int32_t version = (1 << 16) + 128;
  char bytes[124] = {};
};
static_assert(sizeof(NvshmemUniqueId) == 128);

struct NvshmemInit {
  int32_t version = (1 << 16) + 144;
  void* mpi_communicator = nullptr;
  struct {
    int32_t version = (1 << 16) + 128;
    struct {
      int32_t version = (1 << 16) + 24;
      NvshmemUniqueId* id = nullptr;
      int32_t rank = 0;
      int32_t size = 0;
    } unique;
    char content[96] = {};
  } arguments;
};
static_assert(sizeof(NvshmemInit) == 144);

constexpr unsigned kInitWithUniqueId = 1u << 3;
constexpr int kRequiredMajor = 3;

struct Nvshmem {
  Library library{"nvshmem", "TUTTI_SYMM_NVSHMEM_LIB", {"libnvshmem_host.so.3", "libnvshmem_host.so"}};
  bool is_open = false;
  void (*version)(int*, int*, int*) = nullptr;
  int (*unique_id)(NvshmemUniqueId*) = nullptr;
  int (*set_unique_id)(int, int, NvshmemUniqueId*, NvshmemInit*) = nullptr;
  int (*init)(unsigned, NvshmemInit*) = nullptr;
  void* (*allocate)(size_t) = nullptr;
  void (*free)(void*) = nullptr;
  void* (*peer_address)(const void*, int) = nullptr;
  void (*barrier_all)() = nullptr;

  void open() {
    if (is_open) return;
    library.load(version, "nvshmemx_vendor_get_version_info");
    int major = 0, minor = 0, patch = 0;
    version(&major, &minor, &patch);
    if (major < kRequiredMajor) {
      throw LibraryError(fmt::format("symmetric memory backend nvshmem: {} is version {}; {} or newer is required",
                                     library.path(), version_text(major, minor, patch),
                                     version_text(kRequiredMajor, 0, 0)));
    }
    library.load(unique_id, "nvshmemx_get_uniqueid");
    library.load(set_unique_id, "nvshmemx_set_attr_uniqueid_args");
    library.load(init, "nvshmemx_hostlib_init_attr");
    library.load(allocate, "nvshmem_malloc");
    library.load(free, "nvshmem_free");
    library.load(peer_address, "nvshmem_ptr");
    library.load(barrier_all, "nvshmem_barrier_all");
    is_open = true;
  }
};

struct NvshmemBlock final : Block {
  explicit NvshmemBlock(Nvshmem* owning) : library(owning) {}
  ~NvshmemBlock() override {
    if (library != nullptr) library->free(base);
  }
  Nvshmem* library;  // null: a peer's memory
};

class NvshmemBackend final : public Backend {
 public:
  const BackendTraits& traits() const override {
    static const BackendTraits traits{.name = "nvshmem",
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
    nvshmem_.open();
  }

  std::shared_ptr<Block> allocate(int64_t nbytes, Device) override {
    TUTTI_CHECK(size_ > 0,
                "symmetric memory backend nvshmem: no communicator; call connect_group() with the group of the "
                "whole job before allocating");
    auto block = std::make_shared<NvshmemBlock>(&nvshmem_);
    block->nbytes = nbytes;
    block->base = static_cast<std::byte*>(nvshmem_.allocate(static_cast<size_t>(nbytes)));
    if (block->base == nullptr) {
      block->library = nullptr;
      throw EnvironmentError(
          fmt::format("symmetric memory backend nvshmem: no {} bytes in the symmetric heap "
                      "(NVSHMEM_SYMMETRIC_SIZE)",
                      nbytes));
    }
    return block;
  }

  std::string ticket(const Block&) override { return ""; }

  void prepare_group(const Meeting& meeting) override {
    const SymmGroup& group = meeting.group;
    if (size_ > 0) {
      TUTTI_CHECK(
          group.size() == size_ && group.rank() == rank_,
          "symmetric memory backend nvshmem: its world has {} ranks and this is rank {}; group '{}' has {} and {}. "
          "NVSHMEM serves the whole job only; native, cuda and nccl serve subgroups",
          size_, rank_, group.name(), group.size(), group.rank());
      return;
    }
    Store& store = *group.store();
    const std::string key = meeting.key + "/nvshmem";
    NvshmemUniqueId id;
    if (group.rank() == 0) {
      check(nvshmem_.unique_id(&id), "nvshmemx_get_uniqueid");
      store.set(key, std::string_view(reinterpret_cast<const char*>(&id), sizeof id));
    } else {
      std::string text;
      while (text.empty()) {
        try {
          text = store.get(key, std::chrono::milliseconds(100));
        } catch (const StoreTimeout&) {
          meeting.look_around();
          if (std::chrono::steady_clock::now() >= meeting.deadline) {
            throw TimeoutError("backend nvshmem: rank 0 gave no communicator id before the deadline");
          }
        }
      }
      TUTTI_CHECK_ENV(text.size() == sizeof id, "backend nvshmem: a communicator id of {} bytes", text.size());
      std::memcpy(&id, text.data(), sizeof id);
    }
    NvshmemInit attributes;
    check(nvshmem_.set_unique_id(group.rank(), group.size(), &id, &attributes), "nvshmemx_set_attr_uniqueid_args");
    check(nvshmem_.init(kInitWithUniqueId, &attributes), "nvshmemx_hostlib_init_attr");
    if (group.rank() == 0) store.delete_key(key);
    rank_ = group.rank();
    size_ = group.size();
  }

  std::vector<std::shared_ptr<Block>> exchange(const Meeting& meeting, const std::shared_ptr<Block>& own) override {
    std::vector<std::shared_ptr<Block>> blocks;
    for (int r = 0; r < meeting.group.size(); ++r) {
      if (r == meeting.group.rank()) {
        blocks.push_back(own);
        continue;
      }
      auto peer = std::make_shared<NvshmemBlock>(nullptr);
      peer->base = static_cast<std::byte*>(nvshmem_.peer_address(own->base, r));  // null: another host
      peer->nbytes = own->nbytes;
      blocks.push_back(std::move(peer));
    }
    return blocks;
  }

  void barrier(const SymmGroup&, int channel, Moment) override {
    TUTTI_CHECK(channel == 0, "symmetric memory backend nvshmem: barrier: channel {}; the largest legal channel is 0",
                channel);
    nvshmem_.barrier_all();
  }

 private:
  static void check(int result, const char* call) {
    TUTTI_CHECK_ENV(result == 0, "symmetric memory backend nvshmem: {} failed ({})", call, result);
  }

  std::mutex mutex_;
  Nvshmem nvshmem_;
  int rank_ = -1;
  int size_ = 0;  // 0: not initialised
};

}  // namespace

TUTTI_SYMM_BACKEND(nvshmem, NvshmemBackend);

}  // namespace tutti::comm::symm
