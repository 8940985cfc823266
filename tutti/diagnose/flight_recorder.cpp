#include "tutti/diagnose/flight_recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/diagnose/dump_signal.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr int64_t kFewestSlots =
    64;  // more than the threads that are in the middle of a call, so that one finds a free slot

// The names threads had when they first recorded, for dumps that are taken when they may be gone.
struct ThreadNames {
  std::mutex mutex;
  std::map<int64_t, std::string> names;
  static ThreadNames& instance() {
    static auto* names = new ThreadNames;  // threads may record while the program ends
    return *names;
  }
};
constexpr size_t kMaxThreadNames = 4096;

thread_local int32_t this_thread_id = 0;

[[gnu::noinline]] int32_t register_this_thread() {
  this_thread_id = static_cast<int32_t>(syscall(SYS_gettid));
  char name[64] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  ThreadNames& all = ThreadNames::instance();
  std::lock_guard lock(all.mutex);
  if (all.names.size() >= kMaxThreadNames) all.names.clear();
  all.names[this_thread_id] = name;
  return this_thread_id;
}

int64_t entries_from_environment() {
  const char* text = std::getenv("TUTTI_FLIGHT_RECORDER_ENTRIES");
  if (text == nullptr || *text == '\0') return FlightRecorder::kDefaultEntries;
  char* end = nullptr;
  const long long entries = std::strtoll(text, &end, 10);
  TUTTI_CHECK(*end == '\0' && entries >= 1 && entries <= FlightRecorder::kMaxEntries,
              "TUTTI_FLIGHT_RECORDER_ENTRIES is '{}'; expected a whole number of calls from 1 to {}", text,
              FlightRecorder::kMaxEntries);
  return entries;
}

// Whether nobody but this user can see what is in the folder, or put something there.
bool is_private(const std::filesystem::path& folder) {
  const UniqueFd opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  return opened && fstat(opened.get(), &info) == 0 && info.st_uid == geteuid() && (info.st_mode & 0077) == 0;
}

// A folder for this user's dumps, which other users can neither read nor foresee to their advantage: one name for all
// jobs, or, where somebody has taken that, a name of this process.
std::filesystem::path dump_folder() {
  std::error_code error;
  std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  if (error) temporary = "/tmp";
  std::filesystem::path folder = temporary / fmt::format("tutti-flight-{}", geteuid());
  if (mkdir(folder.c_str(), 0700) == 0 || is_private(folder)) return folder;
  static std::mutex mutex;
  static std::string own;  // the ranks of a process share it
  const std::lock_guard lock(mutex);
  if (own.empty()) {
    std::string name = folder.string() + "-XXXXXX";
    TUTTI_CHECK_ENV(mkdtemp(name.data()) != nullptr,
                    "cannot make a folder for the flight recorder's dumps in '{}': {}; set TUTTI_FLIGHT_RECORDER_DUMP "
                    "to a prefix elsewhere",
                    temporary.string(), tutti::detail::errno_text(errno));
    own = name;
  }
  return own;
}

std::string prefix_from_environment() {
  const char* prefix = std::getenv("TUTTI_FLIGHT_RECORDER_DUMP");
  return prefix == nullptr ? "" : prefix;
}

// What a call names as its sizes, of the side that has `bytes`: those of the described tensor when they fit, else the
// number of elements. A coalesced call describes its first tensor only.
std::vector<std::vector<int64_t>> sizes_of(const CallRecord& r, int64_t bytes) {
  if (r.ndim < 0) return {};
  std::vector<int64_t> sizes(r.sizes, r.sizes + std::min<int>(r.ndim, kMaxRecordDims));
  if (r.tensors == 1 && bytes != r.numel() * itemsize(r.dtype)) sizes = {bytes / itemsize(r.dtype)};
  return {std::move(sizes)};
}

}  // namespace

// Words, so that a reader that meets a writer sees old or new values of each. `owner` says whose words they are and
// admits one writer at a time. A call of at most two dims touches the first two cache lines only.
struct alignas(64) FlightRecorder::Slot {
  using Word = std::atomic<uint64_t>;
  // What a thread does with the slot. A reader may look while a call is brought up to date: its fields are one call's.
  enum Phase : uint64_t { at_rest = 0, being_written = 1, being_updated = 2 };
  Word owner{0};  // id of the call << 2 | Phase
  Word group{0};
  Word what{0};                           // sequence << 16 | dtype << 8 | kind
  Word state{0};                          // FlightState
  Word created{0}, started{0}, ended{0};  // ticks; 0: not yet
  Word bytes_in{0}, bytes_out{0};
  Word origin{0};  // thread << 32 | timeout in ms, at most 2^32 - 1
  Word how{0};     // root << 32 | reduce << 16 | same_sizes << 8 | ndim + 1
  Word extra{0};   // tag << 32 | tensors
  Word splits{0};
  Word sizes[kMaxRecordDims] = {};

  static uint64_t owned(uint64_t id, Phase phase) { return id << 2 | phase; }

  // Takes the slot for call `id`. False: a thread that sleeps in the middle of an older call still writes here.
  bool claim(uint64_t id) {
    uint64_t before = owner.load(relaxed);
    if ((before & 3) != at_rest || !owner.compare_exchange_strong(before, owned(id, being_written), relaxed))
      return false;
    std::atomic_thread_fence(std::memory_order_release);  // no field is seen before the claim
    return true;
  }
  // Takes the slot to change call `id` in it. False: the ring has gone round.
  bool reopen(uint64_t id) {
    uint64_t before = owned(id, at_rest);
    return owner.compare_exchange_strong(before, owned(id, being_updated), std::memory_order_acquire, relaxed);
  }
  void release(uint64_t id) { owner.store(owned(id, at_rest), std::memory_order_release); }

  FlightGroup* group_pointer() const { return reinterpret_cast<FlightGroup*>(group.load(relaxed)); }

  CallRecord record() const {
    CallRecord r;
    const uint64_t w = what.load(relaxed), h = how.load(relaxed), e = extra.load(relaxed);
    r.kind = static_cast<CollectiveKind>(w & 0xff);
    r.dtype = static_cast<DType>(w >> 8 & 0xff);
    r.sequence = static_cast<int64_t>(w >> 16);
    r.ndim = static_cast<int8_t>(static_cast<int>(h & 0xff) - 1);
    r.same_sizes = (h >> 8 & 1) != 0;
    r.reduce = static_cast<ReduceKind>(h >> 16 & 0xff);
    r.root = static_cast<int32_t>(h >> 32);
    r.tensors = static_cast<int32_t>(e & UINT32_MAX);
    r.tag = static_cast<uint32_t>(e >> 32);
    r.splits = splits.load(relaxed);
    for (int d = 0; d < r.ndim; ++d) r.sizes[d] = static_cast<int64_t>(sizes[d].load(relaxed));
    return r;
  }
};

FlightRecorder::FlightRecorder(const Options& options)
    : entries_(options.entries != 0 ? options.entries : entries_from_environment()),
      rank_(options.rank >= 0 ? options.rank : RankContext::current().rank()),
      world_size_(options.world_size > 0 ? options.world_size : RankContext::current().world_size()),
      prefix_(options.prefix.empty() ? prefix_from_environment() : options.prefix) {
  TUTTI_CHECK(entries_ >= 1 && entries_ <= kMaxEntries, "a flight recorder of {} entries; legal: 1 to {}", entries_,
              kMaxEntries);
  const auto slots = std::bit_ceil(static_cast<uint64_t>(std::max(entries_, kFewestSlots)));
  mask_ = slots - 1;
  ring_ = std::make_unique<Slot[]>(slots);
  detail::add_to_dump_signal(*this);
}

FlightRecorder::~FlightRecorder() { detail::remove_from_dump_signal(*this); }

FlightRecorder& FlightRecorder::current() { return RankContext::current().slot<FlightRecorder>(); }

FlightRecorder::Slot& FlightRecorder::slot_of(uint64_t id) const { return ring_[id & mask_]; }

FlightGroup& FlightRecorder::add_group(std::string name, std::string description, std::vector<int> ranks) {
  std::lock_guard lock(mutex_);
  const uint64_t next = next_.load(std::memory_order_relaxed);
  std::erase_if(groups_, [&](const std::unique_ptr<FlightGroup>& group) {
    const uint64_t last = group->last_id_.load(std::memory_order_relaxed);
    return group->closed_ && (last == 0 || last + static_cast<uint64_t>(entries_) < next);
  });
  groups_.push_back(
      std::make_unique<FlightGroup>(next_group_++, std::move(name), std::move(description), std::move(ranks)));
  return *groups_.back();
}

void FlightRecorder::close_group(FlightGroup& group) {
  std::lock_guard lock(mutex_);
  group.closed_ = true;
}

void FlightRecorder::mark(FlightGroup::Mark& mark, uint64_t what, uint64_t bytes_in, uint64_t bytes_out) {
  if (words_of(static_cast<CollectiveKind>(what & 0xff)).is_message) return;
  mark.what.store(what, relaxed);
  mark.bytes_in.store(static_cast<int64_t>(bytes_in), relaxed);
  mark.bytes_out.store(static_cast<int64_t>(bytes_out), relaxed);
}

void FlightRecorder::mark(FlightGroup::Mark& m, const Slot& slot) {
  mark(m, slot.what.load(relaxed), slot.bytes_in.load(relaxed), slot.bytes_out.load(relaxed));
}

uint64_t FlightRecorder::write(FlightGroup& group, const CallRecord& record, int64_t bytes_in, int64_t bytes_out,
                               int64_t timeout_ms, bool starts) {
  const uint64_t now = clock_.now();
  uint64_t id = next_.fetch_add(1, relaxed);
  while (!slot_of(id).claim(id)) id = next_.fetch_add(1, relaxed);
  const int32_t thread = this_thread_id != 0 ? this_thread_id : register_this_thread();
  const int64_t timeout =
      std::clamp<int64_t>(timeout_ms >= 0 ? timeout_ms : group.timeout_ms.load(relaxed), 0, UINT32_MAX);
  const int ndim = std::min<int>(record.ndim, kMaxRecordDims);
  const uint64_t what = static_cast<uint64_t>(record.sequence) << 16 | static_cast<uint64_t>(record.dtype) << 8 |
                        static_cast<uint64_t>(record.kind);

  Slot& slot = slot_of(id);
  slot.group.store(reinterpret_cast<uint64_t>(&group), relaxed);
  slot.what.store(what, relaxed);
  slot.state.store(static_cast<uint64_t>(starts ? FlightState::started : FlightState::scheduled), relaxed);
  slot.created.store(now, relaxed);
  slot.started.store(starts ? now : 0, relaxed);
  slot.ended.store(0, relaxed);
  slot.bytes_in.store(static_cast<uint64_t>(bytes_in), relaxed);
  slot.bytes_out.store(static_cast<uint64_t>(bytes_out), relaxed);
  slot.origin.store(static_cast<uint64_t>(thread) << 32 | static_cast<uint64_t>(timeout), relaxed);
  slot.how.store(static_cast<uint64_t>(static_cast<uint32_t>(record.root)) << 32 |
                     static_cast<uint64_t>(record.reduce) << 16 | static_cast<uint64_t>(record.same_sizes) << 8 |
                     static_cast<uint64_t>(ndim + 1),
                 relaxed);
  slot.extra.store(uint64_t{record.tag} << 32 | static_cast<uint32_t>(record.tensors), relaxed);
  slot.splits.store(record.splits, relaxed);
  for (int d = 0; d < ndim; ++d) slot.sizes[d].store(static_cast<uint64_t>(record.sizes[d]), relaxed);
  slot.release(id);

  group.last_id_.store(id, relaxed);
  // What has started was enqueued: snapshot() takes the later of the two.
  mark(starts ? group.started_ : group.enqueued_, what, static_cast<uint64_t>(bytes_in),
       static_cast<uint64_t>(bytes_out));
  return id;
}

void FlightRecorder::started(uint64_t id) {
  Slot& slot = slot_of(id);
  if (!slot.reopen(id)) return;
  slot.started.store(clock_.now(), relaxed);
  slot.state.store(static_cast<uint64_t>(FlightState::started), relaxed);
  mark(slot.group_pointer()->started_, slot);
  slot.release(id);
}

void FlightRecorder::ended(uint64_t id, FlightState state, bool took_time) {
  Slot& slot = slot_of(id);
  if (!slot.reopen(id)) return;
  const uint64_t started = slot.started.load(relaxed);
  slot.ended.store(took_time || started == 0 ? clock_.now() : started, relaxed);
  slot.state.store(static_cast<uint64_t>(state), relaxed);
  if (state == FlightState::completed) mark(slot.group_pointer()->completed_, slot);
  slot.release(id);
}

FlightDump FlightRecorder::snapshot(std::string_view reason) const {
  const TickClock::Scale scale = clock_.scale();
  const auto when = [&](uint64_t ticks) { return ticks == 0 ? 0 : scale.wall_ns(ticks); };
  FlightDump dump;
  dump.library = "tutti " TUTTI_VERSION;
  dump.rank = rank_;
  dump.world_size = world_size_;
  dump.host = host_name();
  dump.pid = getpid();
  dump.reason = reason;
  dump.dumped_ns = scale.wall_ns(clock_.now());

  std::lock_guard lock(mutex_);
  for (const auto& group : groups_) {
    const auto status = [](const FlightGroup::Mark& m) {
      FlightMark out;
      const uint64_t what = m.what.load(relaxed);
      if (what == 0) return out;
      const int64_t size = itemsize(static_cast<DType>(what >> 8 & 0xff));
      out.sequence = static_cast<int64_t>(what >> 16);
      out.name = name_of(static_cast<CollectiveKind>(what & 0xff));
      out.numel_in = m.bytes_in.load(relaxed) / size;
      out.numel_out = m.bytes_out.load(relaxed) / size;
      return out;
    };
    FlightMark enqueued = status(group->enqueued_);
    const FlightMark started = status(group->started_);
    if (started.sequence > enqueued.sequence) enqueued = started;
    dump.groups.push_back(
        {group->id, group->name, group->description, group->ranks, enqueued, started, status(group->completed_)});
  }

  const uint64_t end = next_.load(std::memory_order_acquire);
  const auto count = std::min(end - 1, static_cast<uint64_t>(entries_));
  ThreadNames& names = ThreadNames::instance();
  std::lock_guard names_lock(names.mutex);
  for (uint64_t id = end - count; id < end; ++id) {
    const Slot& slot = slot_of(id);
    const auto holds_it = [id](uint64_t owner) { return owner >> 2 == id && (owner & 3) != Slot::being_written; };
    if (!holds_it(slot.owner.load(std::memory_order_acquire)))
      continue;  // being written, passed over, or the next round's
    const CallRecord record = slot.record();
    const FlightGroup* group = slot.group_pointer();
    const auto state = static_cast<FlightState>(slot.state.load(relaxed));
    const uint64_t created = slot.created.load(relaxed), started = slot.started.load(relaxed),
                   ended = slot.ended.load(relaxed);
    const uint64_t origin = slot.origin.load(relaxed);
    const auto bytes_in = static_cast<int64_t>(slot.bytes_in.load(relaxed));
    const auto bytes_out = static_cast<int64_t>(slot.bytes_out.load(relaxed));
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!holds_it(slot.owner.load(relaxed))) continue;

    FlightEntry entry;
    entry.record_id = static_cast<int64_t>(id) - 1;
    entry.pg_id = group->id;
    entry.group = group->name;
    entry.group_description = group->description;
    entry.sequence = record.sequence;
    entry.is_p2p = words_of(record.kind).is_message;
    entry.name = name_of(record.kind);
    entry.call = describe(record);
    entry.input_sizes = sizes_of(record, bytes_in);
    entry.output_sizes = sizes_of(record, bytes_out);
    entry.input_dtypes.assign(entry.input_sizes.size(), std::string(name_of(record.dtype)));
    entry.output_dtypes = entry.input_dtypes;
    if (entry.name.find("reduce") != std::string::npos) entry.reduce_op = name_of(record.reduce);
    entry.root = record.root;
    entry.tag = record.tag;
    entry.tensors = record.tensors;
    entry.same_sizes = record.same_sizes;
    entry.splits = record.splits;
    entry.created_ns = when(created);
    entry.started_ns = when(started);
    entry.ended_ns = when(ended);
    entry.timeout_ms = static_cast<int64_t>(origin & UINT32_MAX);
    entry.state = state;
    entry.thread_id = static_cast<int64_t>(origin >> 32);
    if (const auto name = names.names.find(entry.thread_id); name != names.names.end())
      entry.thread_name = name->second;
    dump.entries.push_back(std::move(entry));
  }
  return dump;
}

void FlightRecorder::set_dump_prefix(std::string prefix) {
  std::lock_guard lock(mutex_);
  prefix_ = std::move(prefix);
}

std::string FlightRecorder::dump_path() const {
  std::lock_guard lock(mutex_);
  if (!prefix_.empty()) return prefix_ + std::to_string(rank_);
  // The ranks of one host have one parent, their launcher, so that their files stand together and apart from other
  // jobs'.
  return (dump_folder() / fmt::format("{}-{}", getppid(), rank_)).string();
}

std::string FlightRecorder::dump(std::string_view reason) const {
  const std::string path = dump_path();
  // A rank that reports a deadline must not be late itself.
  write_file_atomically(path, to_json(snapshot(reason)), Outlives::process, 0600);
  return path;
}

std::string FlightRecorder::dump_on_failure(FlightGroup& group, std::string_view reason) noexcept {
  if (group.dumped_.exchange(true)) return "";
  try {
    return fmt::format("the last calls are in {}", dump(reason));
  } catch (const std::exception& error) {
    return fmt::format("the last calls could not be written: {}", error.what());
  }
}

}  // namespace tutti::comm
