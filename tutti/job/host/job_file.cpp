#include "tutti/job/host/job_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tutti/core/error.h"
#include "tutti/runtime/held_signal.h"

namespace tutti::comm {
namespace {

constexpr uint64_t kJobMagic = 0x326c6c61626f6a74;  // also the version: a change of layout changes it
constexpr uint64_t kTeams = 32, kDeaths = 256;
constexpr int64_t kJobTextAt = 64 << 10;
constexpr int64_t kJobHeaderBytes = kJobTextAt + static_cast<int64_t>(JobFile::kMaxText);
constexpr const char* kJobVariable = "TUTTI_JOB_FILE";

struct TeamRecord {
  uint32_t size;
  TeamMember members[JobFile::kMaxSeats];
};

}  // namespace

struct JobFile::Header {
  std::atomic<uint64_t> magic;  // written last
  int32_t seats;
  std::atomic<uint32_t> has_ended;
  std::atomic<uint32_t> is_done;
  std::atomic<uint64_t> team;             // the newest; its record is written before
  std::atomic<uint64_t> deaths;           // how many; the record is written before
  std::atomic<uint64_t> text_bytes;       // the text is written before
  std::atomic<int32_t> ready[kMaxSeats];  // the pid of a process that is ready
  TeamRecord teams[kTeams];
  RankDeath dead[kDeaths];
};

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

JobFile::JobFile(UniqueFd fd) : fd_(std::move(fd)) {}

void JobFile::map_header() {
  static_assert(sizeof(Header) <= kJobTextAt);
  void* base = mmap(nullptr, kJobHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0);
  TUTTI_CHECK_ENV(base != MAP_FAILED, "cannot map the memory of the job: {}", detail::errno_text(errno));
  header_ = static_cast<Header*>(base);
}

std::shared_ptr<JobFile> JobFile::create(int seats) {
  TUTTI_CHECK(seats >= 1 && seats <= kMaxSeats, "a job of {} ranks that outlives one of them; expected 1 to {}", seats,
              kMaxSeats);
  std::shared_ptr<JobFile> file(new JobFile(UniqueFd(memfd_create("tutti-job", MFD_CLOEXEC))));
  TUTTI_CHECK_ENV(file->fd_, "cannot make the memory of the job: {}", detail::errno_text(errno));
  const HeldSignal held(SIGXFSZ);
  TUTTI_CHECK_ENV(ftruncate(file->fd(), kJobHeaderBytes) == 0, "cannot make the memory of the job: {}",
                  detail::errno_text(errno));
  file->map_header();
  file->header_->seats = seats;
  file->header_->magic.store(kJobMagic, std::memory_order_release);
  return file;
}

std::shared_ptr<JobFile> JobFile::open(UniqueFd fd) {
  struct stat status{};
  TUTTI_CHECK_ENV(fstat(fd.get(), &status) == 0 && status.st_size >= kJobHeaderBytes,
                  "descriptor {} is not the memory of a job", fd.get());
  std::shared_ptr<JobFile> file(new JobFile(std::move(fd)));
  file->map_header();
  TUTTI_CHECK_ENV(file->header_->magic.load(std::memory_order_acquire) == kJobMagic,
                  "descriptor {} is not the memory of a job of this version of Tutti; the launcher and all ranks must "
                  "run the same version",
                  file->fd());
  fcntl(file->fd(), F_SETFD, FD_CLOEXEC);  // a rank's own children are not ranks
  return file;
}

std::shared_ptr<JobFile> JobFile::inherited() {
  static const std::shared_ptr<JobFile> file = [] {
    const char* text = std::getenv(kJobVariable);
    return text == nullptr ? nullptr : open(UniqueFd(std::atoi(text)));
  }();
  return file;
}

JobFile::~JobFile() {
  if (header_ != nullptr) munmap(header_, kJobHeaderBytes);
  if (state_ != nullptr) munmap(state_, static_cast<size_t>(state_bytes_));
}

int JobFile::seats() const { return header_->seats; }
std::string JobFile::variable() const { return fmt::format("{}={}", kJobVariable, fd()); }

void JobFile::publish_team(const std::vector<TeamMember>& members) {
  TUTTI_ASSERT(members.size() <= kMaxSeats, "a team of {}", members.size());
  const uint64_t number = team() + 1;
  TeamRecord& record = header_->teams[number % kTeams];
  record.size = static_cast<uint32_t>(members.size());
  std::copy(members.begin(), members.end(), record.members);
  header_->team.store(number, std::memory_order_release);
}

void JobFile::note_death(const TeamMember& member, int signal) {
  const uint64_t number = header_->deaths.load(std::memory_order_relaxed);
  if (number < kDeaths)
    header_->dead[number] = {.seat = member.seat, .pid = member.pid, .signal = signal, .at_ns = monotonic_ns()};
  header_->deaths.store(number + 1, std::memory_order_release);
}

void JobFile::end_job() { header_->has_ended.store(1, std::memory_order_release); }

uint64_t JobFile::team() const { return header_->team.load(std::memory_order_acquire); }

std::vector<TeamMember> JobFile::members(uint64_t number) const {
  const TeamRecord& record = header_->teams[number % kTeams];
  std::vector<TeamMember> members(record.members, record.members + std::min<uint32_t>(record.size, kMaxSeats));
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint64_t newest = team();
  // The record may have been written anew meanwhile.
  if (number == 0 || number > newest || newest - number >= kTeams - 1) return {};
  return members;
}

std::vector<RankDeath> JobFile::deaths() const {
  const uint64_t count = std::min(header_->deaths.load(std::memory_order_acquire), kDeaths);
  return {header_->dead, header_->dead + count};
}

bool JobFile::has_ended() const { return header_->has_ended.load(std::memory_order_acquire) != 0; }
void JobFile::note_done() { header_->is_done.store(1, std::memory_order_release); }
bool JobFile::is_done() const { return header_->is_done.load(std::memory_order_acquire) != 0; }
void JobFile::set_ready(int seat, pid_t pid) { header_->ready[seat].store(pid, std::memory_order_release); }
bool JobFile::is_ready(int seat) const { return header_->ready[seat].load(std::memory_order_acquire) != 0; }
void JobFile::expect_replacement(int seat) { header_->ready[seat].store(0, std::memory_order_release); }

void JobFile::leave_text(const std::string& text) {
  TUTTI_CHECK_ENV(text.size() <= kMaxText, "a text of {} bytes for the ranks that join a job; at most {} have room",
                  text.size(), kMaxText);
  std::memcpy(reinterpret_cast<std::byte*>(header_) + kJobTextAt, text.data(), text.size());
  header_->text_bytes.store(text.size(), std::memory_order_release);
}

std::string JobFile::text() const {
  const uint64_t size = header_->text_bytes.load(std::memory_order_acquire);
  return {reinterpret_cast<const char*>(header_) + kJobTextAt, static_cast<size_t>(size)};
}

std::byte* JobFile::map_state(int64_t nbytes) {
  if (state_ != nullptr) {
    TUTTI_CHECK(
        nbytes <= state_bytes_,
        "the shared state of the job has {} bytes, and {} are wanted; all ranks of a job must have one configuration",
        state_bytes_, nbytes);
    return state_;
  }
  TUTTI_ASSERT(nbytes > 0, "a shared state of {} bytes", nbytes);
  const HeldSignal held(SIGXFSZ);
  int error = 0;
  do {
    error = posix_fallocate(fd(), kJobHeaderBytes, nbytes);
  } while (error == EINTR);
  TUTTI_CHECK_ENV(error == 0, "cannot get {} bytes for the shared state of the job: {}", nbytes,
                  detail::errno_text(error));
  void* base = mmap(nullptr, static_cast<size_t>(nbytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd(), kJobHeaderBytes);
  TUTTI_CHECK_ENV(base != MAP_FAILED, "cannot map {} bytes of the shared state of the job: {}", nbytes,
                  detail::errno_text(errno));
  state_ = static_cast<std::byte*>(base);
  state_bytes_ = nbytes;
  return state_;
}

}  // namespace tutti::comm
