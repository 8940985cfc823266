// An NCCL for ranks that are threads of one process: communicators meet, windows are numbers, signals are counters.
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {
struct Id {
  char bytes[128];
};
struct Wait {
  int count, peer, signal, context;
};
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0, present = 0, windows = 0;
  std::map<std::pair<int, int>, int> signals;  // from, to
};
struct Rank {
  World* world;
  int rank;
};
std::mutex g_mutex;
int g_ids = 0;
std::map<std::string, World*>& worlds() {
  static auto& all = *new std::map<std::string, World*>;
  return all;
}
}  // namespace

extern "C" {
int ncclGetVersion(int* version) {
  const char* text = std::getenv("FAKE_NCCL_VERSION");
  *version = text == nullptr ? 22900 : std::atoi(text);
  return 0;
}
const char* ncclGetErrorString(int) { return "invalid usage"; }
int ncclGetUniqueId(Id* id) {
  const std::lock_guard lock(g_mutex);
  std::memset(id->bytes, 0, sizeof id->bytes);
  const std::string text = "id" + std::to_string(++g_ids);
  std::memcpy(id->bytes, text.data(), text.size());
  return 0;
}
int ncclCommInitRank(void** comm, int size, Id id, int rank) {
  World* world = nullptr;
  {
    const std::lock_guard lock(g_mutex);
    World*& entry = worlds()[id.bytes];
    if (entry == nullptr) entry = new World;
    world = entry;
  }
  std::unique_lock lock(world->mutex);
  world->size = size;
  ++world->present;
  world->changed.notify_all();
  world->changed.wait(lock, [&] { return world->present >= size; });
  *comm = new Rank{world, rank};
  return 0;
}
int ncclCommDestroy(void* comm) {
  delete static_cast<Rank*>(comm);
  return 0;
}
int ncclMemAlloc(void** memory, size_t size) {
  *memory = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (*memory != nullptr) std::memset(*memory, 0, size);
  return *memory == nullptr ? 1 : 0;
}
int ncclMemFree(void* memory) {
  std::free(memory);
  return 0;
}
int ncclCommWindowRegister(void* comm, void*, size_t, void** window, int) {
  World& world = *static_cast<Rank*>(comm)->world;
  const std::lock_guard lock(world.mutex);
  *window = std::getenv("FAKE_NCCL_NO_WINDOW") != nullptr ? nullptr
                                                          : reinterpret_cast<void*>(static_cast<long>(++world.windows));
  return 0;
}
int ncclCommWindowDeregister(void*, void*) { return 0; }
int ncclSignal(int peer, int, int, unsigned, void* comm, void*) {
  const Rank& own = *static_cast<Rank*>(comm);
  const std::lock_guard lock(own.world->mutex);
  ++own.world->signals[{own.rank, peer}];
  own.world->changed.notify_all();
  return 0;
}
int ncclWaitSignal(int count, Wait* waits, void* comm, void*) {
  const Rank& own = *static_cast<Rank*>(comm);
  std::unique_lock lock(own.world->mutex);
  for (int i = 0; i < count; ++i) {
    int& signals = own.world->signals[{waits[i].peer, own.rank}];
    own.world->changed.wait(lock, [&] { return signals >= waits[i].count; });
    signals -= waits[i].count;
  }
  return 0;
}
}
