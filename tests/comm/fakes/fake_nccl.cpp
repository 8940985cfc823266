// An NCCL whose ranks are threads of one process and whose GPUs are host memory. It really computes, in rank order.
//
// TUTTI_FAKE_NCCL_VERSION is the version it reports. fake_nccl_fail_call(n, result): the n-th call from now returns
// `result`. fake_nccl_async_error(rank, result): the communicators of that rank are broken from now on.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/comm/fakes/fake_stream.h"
#include "tutti/comm/nccl/nccl_api.h"

using tutti::DType;
using tutti::comm::NcclApi;

namespace {

constexpr int kInvalidUsage = 5;

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter, send, recv };

struct Op {
  Kind kind;
  const char* input;
  char* output;
  size_t count;
  int type, op, root;  // root: of messages the peer
  double factor = 1;
  bool scaled = false;  // by factor, before the sum
};

struct Step {
  std::vector<const Op*> ops;
  int arrived = 0, computed = 0, left = 0;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0, joined = 0;
  std::map<int64_t, Step> steps;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail;
};

struct Rank {
  std::shared_ptr<World> world;
  int rank = 0;
  bool aborted = false;  // guarded by the world's mutex, as
  int running = 0;       // the launches that a stream is at
  std::atomic<int> error{0};
  int64_t next_step = 0;
  std::map<int, double> factors;  // of user ops
  int next_op = 16;
};

std::mutex all_mutex;
std::map<uint64_t, std::weak_ptr<World>> worlds;
std::vector<std::weak_ptr<Rank>> ranks;
std::atomic<uint64_t> next_id{1};
std::atomic<int> fail_countdown{0}, fail_result{0};

int outcome() {
  if (fail_countdown > 0 && --fail_countdown == 0) return fail_result;
  return NcclApi::kSuccess;
}

DType dtype_of_type(int type) {
  switch (type) {
    case NcclApi::kI8:
      return DType::i8;
    case NcclApi::kU8:
      return DType::u8;
    case NcclApi::kI32:
      return DType::i32;
    case NcclApi::kI64:
      return DType::i64;
    case NcclApi::kF16:
      return DType::f16;
    case NcclApi::kF32:
      return DType::f32;
    case NcclApi::kF64:
      return DType::f64;
    case NcclApi::kBF16:
      return DType::bf16;
    case NcclApi::kF8E4M3:
      return DType::f8e4m3fn;
    default:
      return DType::f8e5m2;
  }
}

template <class T>
T combine(int op, T a, T b) {
  switch (op) {
    case NcclApi::kProduct:
      return a * b;
    case NcclApi::kMax:
      return a > b ? a : b;
    case NcclApi::kMin:
      return a < b ? a : b;
    default:
      return a + b;
  }
}

// Element `e` of all ranks' inputs, each from its element `e`, into `out`.
void reduce_element(const std::vector<const Op*>& ops, const Op& mine, size_t e, char* out) {
  const DType dtype = dtype_of_type(mine.type);
  const auto at = [&](const Op* op) { return op->input + e * static_cast<size_t>(tutti::itemsize(dtype)); };
  if (tutti::is_floating(dtype)) {
    double value = 0;
    for (size_t r = 0; r < ops.size(); ++r) {
      double x = tutti::load_as_double(at(ops[r]), dtype);
      if (ops[r]->scaled)
        x = dtype == DType::f64 ? x * ops[r]->factor : static_cast<float>(x) * static_cast<float>(ops[r]->factor);
      value = r == 0 ? x : combine(mine.op, value, x);
    }
    if (mine.op == NcclApi::kAvg) value /= static_cast<double>(ops.size());
    tutti::store_from_double(out, dtype, value);
    return;
  }
  uint64_t wrapped = 0;
  int64_t value = 0;
  for (size_t r = 0; r < ops.size(); ++r) {
    const int64_t x = tutti::load_as_int64(at(ops[r]), dtype);
    wrapped += static_cast<uint64_t>(x);
    value = r == 0 ? x
            : mine.op == NcclApi::kMax || mine.op == NcclApi::kMin
                ? combine(mine.op, value, x)
                : static_cast<int64_t>(static_cast<uint64_t>(value) * static_cast<uint64_t>(x));
  }
  if (mine.op == NcclApi::kSum) value = static_cast<int64_t>(wrapped);
  if (mine.op == NcclApi::kAvg) value = static_cast<int64_t>(wrapped) / static_cast<int64_t>(ops.size());
  tutti::store_from_int64(out, dtype, value);
}

size_t bytes_of(const Op& op) { return op.count * static_cast<size_t>(tutti::itemsize(dtype_of_type(op.type))); }

// What this rank's output becomes. Nobody writes until all have computed, so that work in place is right.
std::vector<char> compute(const std::vector<const Op*>& ops, int rank) {
  const Op& mine = *ops[static_cast<size_t>(rank)];
  const size_t bytes = bytes_of(mine);
  std::vector<char> out;
  switch (mine.kind) {
    case Kind::broadcast: {
      const char* source = ops[static_cast<size_t>(mine.root)]->input;
      return {source, source + bytes};
    }
    case Kind::all_gather:
      for (const Op* op : ops) out.insert(out.end(), op->input, op->input + bytes);
      return out;
    default:
      break;
  }
  if (mine.kind == Kind::reduce && rank != mine.root) return {};
  const size_t first = mine.kind == Kind::reduce_scatter ? mine.count * static_cast<size_t>(rank) : 0;
  out.resize(bytes);
  for (size_t e = 0; e < mine.count; ++e) reduce_element(ops, mine, first + e, out.data() + e * (bytes / mine.count));
  return out;
}

void collective(Rank& me, const Op& op, int64_t number) {
  World& world = *me.world;
  std::unique_lock lock(world.mutex);
  Step& step = world.steps[number];
  if (step.ops.empty()) step.ops.resize(static_cast<size_t>(world.size));
  step.ops[static_cast<size_t>(me.rank)] = &op;
  ++step.arrived;
  world.changed.notify_all();
  world.changed.wait(lock, [&] { return step.arrived == world.size || me.aborted; });
  if (step.arrived != world.size) {
    step.ops[static_cast<size_t>(me.rank)] = nullptr;
    --step.arrived;
    return;
  }
  bool alike = true;
  for (const Op* other : step.ops)
    alike &= other->kind == op.kind && other->count == op.count && other->type == op.type;
  if (!alike) me.error = kInvalidUsage;
  lock.unlock();
  const std::vector<char> result = alike ? compute(step.ops, me.rank) : std::vector<char>();
  lock.lock();
  ++step.computed;
  world.changed.notify_all();
  world.changed.wait(lock, [&] { return step.computed == world.size; });
  if (!result.empty()) std::memcpy(op.output, result.data(), result.size());
  if (++step.left == world.size) world.steps.erase(number);
}

void receive(Rank& me, const Op& op) {
  World& world = *me.world;
  std::unique_lock lock(world.mutex);
  auto& box = world.mail[{op.root, me.rank}];
  world.changed.wait(lock, [&] { return !box.empty() || me.aborted; });
  if (box.empty()) return;
  if (box.front().size() != bytes_of(op)) me.error = kInvalidUsage;
  else std::memcpy(op.output, box.front().data(), box.front().size());
  box.pop_front();
}

// A launch that the stream comes to after an abort does nothing, and an abort waits for one that runs: their buffers
// may go.
void run(const std::shared_ptr<Rank>& me, const std::vector<Op>& ops, int64_t number) {
  {
    const std::lock_guard lock(me->world->mutex);
    if (me->aborted) return;
    ++me->running;
  }
  for (const Op& op : ops) {
    if (op.kind != Kind::send) continue;
    std::lock_guard lock(me->world->mutex);
    me->world->mail[{me->rank, op.root}].emplace_back(op.input, op.input + bytes_of(op));
    me->world->changed.notify_all();
  }
  for (const Op& op : ops) {
    if (op.kind == Kind::recv) receive(*me, op);
    else if (op.kind != Kind::send) collective(*me, op, number++);
  }
  {
    const std::lock_guard lock(me->world->mutex);
    --me->running;
  }
  me->world->changed.notify_all();
}

}  // namespace

struct NcclComm {
  std::shared_ptr<Rank> rank;
};

namespace {

struct Group {
  int depth = 0;
  std::shared_ptr<Rank> rank;
  CudaStream* stream = nullptr;
  std::vector<Op> ops;
};
thread_local Group group;

int launch() {
  if (group.ops.empty()) return NcclApi::kSuccess;
  const int64_t number = group.rank->next_step;
  for (const Op& op : group.ops) group.rank->next_step += op.kind != Kind::send && op.kind != Kind::recv;
  group.stream->submit([rank = group.rank, ops = std::move(group.ops), number] { run(rank, ops, number); });
  group.ops.clear();
  return NcclApi::kInProgress;
}

int add(NcclComm* comm, CudaStream* stream, Op op) {
  if (const int failure = outcome()) return failure;
  if (const auto factor = comm->rank->factors.find(op.op); factor != comm->rank->factors.end()) {
    op.factor = factor->second;
    op.scaled = true;
    op.op = NcclApi::kSum;
  }
  group.rank = comm->rank;
  group.stream = stream;
  group.ops.push_back(op);
  return group.depth > 0 ? int{NcclApi::kSuccess} : launch();
}

const char* chars(const void* data) { return static_cast<const char*>(data); }
char* chars(void* data) { return static_cast<char*>(data); }

}  // namespace

extern "C" {

void fake_nccl_fail_call(int n, int result) {
  fail_result = result;
  fail_countdown = n;
}
void fake_nccl_async_error(int rank, int result) {
  std::lock_guard lock(all_mutex);
  for (const auto& entry : ranks) {
    if (const auto r = entry.lock(); r && r->rank == rank) r->error = result;
  }
}

int ncclGetVersion(int* version) {
  const char* text = std::getenv("TUTTI_FAKE_NCCL_VERSION");
  *version = text != nullptr ? std::atoi(text) : 22703;
  return NcclApi::kSuccess;
}
int ncclGetUniqueId(NcclApi::UniqueId* id) {
  if (const int failure = outcome()) return failure;
  const uint64_t number = next_id++;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &number, sizeof number);
  return NcclApi::kSuccess;
}
int ncclCommInitRankConfig(NcclComm** comm, int size, NcclApi::UniqueId id, int rank, NcclApi::Config* config) {
  if (const int failure = outcome()) return failure;
  if (config->magic != 0xcafebeef || config->blocking != 0) return kInvalidUsage;
  uint64_t number = 0;
  std::memcpy(&number, &id, sizeof number);
  std::lock_guard lock(all_mutex);
  std::shared_ptr<World> world = worlds[number].lock();
  if (!world) worlds[number] = world = std::make_shared<World>();
  auto r = std::make_shared<Rank>();
  r->world = world;
  r->rank = rank;
  ranks.push_back(r);
  std::lock_guard world_lock(world->mutex);
  world->size = size;
  ++world->joined;
  *comm = new NcclComm{r};
  return NcclApi::kInProgress;
}
int ncclCommFinalize(NcclComm*) { return NcclApi::kSuccess; }
int ncclCommDestroy(NcclComm* comm) {
  delete comm;
  return NcclApi::kSuccess;
}
int ncclCommAbort(NcclComm* comm) {
  {
    World& world = *comm->rank->world;
    std::unique_lock lock(world.mutex);
    comm->rank->aborted = true;
    world.changed.notify_all();
    world.changed.wait(lock, [&] { return comm->rank->running == 0; });
  }
  delete comm;
  return NcclApi::kSuccess;
}
int ncclCommGetAsyncError(NcclComm* comm, int* result) {
  std::lock_guard lock(comm->rank->world->mutex);
  *result = comm->rank->error != 0                                ? comm->rank->error.load()
            : comm->rank->world->joined < comm->rank->world->size ? int{NcclApi::kInProgress}
                                                                  : int{NcclApi::kSuccess};
  return NcclApi::kSuccess;
}
const char* ncclGetErrorString(int result) { return result == NcclApi::kRemoteError ? "remote error" : "fake error"; }
const char* ncclGetLastError(NcclComm*) { return "said by the fake"; }
int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, NcclComm* comm) {
  if (const int failure = outcome()) return failure;
  if (residence != 1) return kInvalidUsage;
  *op = comm->rank->next_op++;
  comm->rank->factors[*op] = tutti::load_as_double(scalar, dtype_of_type(type));
  return NcclApi::kSuccess;
}
int ncclRedOpDestroy(int op, NcclComm* comm) {
  comm->rank->factors.erase(op);
  return NcclApi::kSuccess;
}
int ncclAllReduce(const void* input, void* output, size_t count, int type, int op, NcclComm* comm, CudaStream* stream) {
  return add(comm, stream, {Kind::all_reduce, chars(input), chars(output), count, type, op, 0});
}
int ncclBroadcast(const void* input, void* output, size_t count, int type, int root, NcclComm* comm,
                  CudaStream* stream) {
  return add(comm, stream, {Kind::broadcast, chars(input), chars(output), count, type, -1, root});
}
int ncclReduce(const void* input, void* output, size_t count, int type, int op, int root, NcclComm* comm,
               CudaStream* stream) {
  return add(comm, stream, {Kind::reduce, chars(input), chars(output), count, type, op, root});
}
int ncclAllGather(const void* input, void* output, size_t count, int type, NcclComm* comm, CudaStream* stream) {
  return add(comm, stream, {Kind::all_gather, chars(input), chars(output), count, type, -1, 0});
}
int ncclReduceScatter(const void* input, void* output, size_t count, int type, int op, NcclComm* comm,
                      CudaStream* stream) {
  return add(comm, stream, {Kind::reduce_scatter, chars(input), chars(output), count, type, op, 0});
}
int ncclSend(const void* data, size_t count, int type, int peer, NcclComm* comm, CudaStream* stream) {
  return add(comm, stream, {Kind::send, chars(data), nullptr, count, type, -1, peer});
}
int ncclRecv(void* data, size_t count, int type, int peer, NcclComm* comm, CudaStream* stream) {
  return add(comm, stream, {Kind::recv, nullptr, chars(data), count, type, -1, peer});
}
int ncclGroupStart() {
  if (const int failure = outcome()) return failure;
  ++group.depth;
  return NcclApi::kSuccess;
}
int ncclGroupEnd() {
  --group.depth;
  if (const int failure = outcome()) {
    group.ops.clear();
    return failure;
  }
  return group.depth == 0 ? launch() : int{NcclApi::kSuccess};
}

}  // extern "C"
